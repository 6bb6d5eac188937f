"""Calls to a provider behind TLS: what goes over the wire, and how a connection ends."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path

import aiohttp
import pytest

from tests.certificates import Authority
from tests.gateway.fake_clock import until
from tests.gateway.raw_server import serving
from tests.gateway.running import Running, running, until_broken
from tests.gateway.tls.front import Front, standing

MIB = 2**20
SECURE = """
[[providers]]
name = "secure"
base_url = "https://localhost:{port}/openai/v1"
ca_file = "{ca}"
keys = [{{ name = "main", secret = "three" }}]
[[routes]]
name = "secure"
attempt_seconds = 10
idle_seconds = 10
targets = [{{ provider = "secure", model = "gpt-4.1-mini" }}]
[[routes]]
name = "secured"
targets = [
    {{ provider = "secure", model = "gpt-4.1-mini" }},
    {{ provider = "mistral", model = "mistral-small-latest" }},
]
"""


@asynccontextmanager
async def secured(tmp_path: Path, authority: Authority) -> AsyncIterator[tuple[Running, Front]]:
    """A gateway whose provider ``secure`` is the simulator's first one behind TLS."""
    async with standing(authority.context()) as front:
        more = SECURE.format(port=front.port, ca=authority.file)
        async with running(tmp_path, more=more) as gateway:
            front.target = int(gateway.agent._config.providers[0].base_url.split(":")[2][:5])
            yield gateway, front


async def long_chat(gateway: Running, size: int) -> aiohttp.ClientResponse:
    body = {"model": "secure", "messages": [{"role": "user", "content": "x" * size}]}
    data = BytesIO(json.dumps(body).encode())
    headers = {"content-type": "application/json"}
    return await gateway.http.post("/v1/chat/completions", data=data, headers=headers)


async def test_plain_streamed_and_tool_calls_share_one_connection(
    tmp_path: Path, authority: Authority
) -> None:
    async with secured(tmp_path, authority) as (gateway, front):
        gateway.conditions(chunk_ms=0.0)
        answer = await gateway.chat("secure")
        assert answer.status == 200, await answer.text()
        assert (await answer.json())["choices"][0]["finish_reason"] == "stop"
        answer = await gateway.chat("secure", stream=True)
        events = (await answer.read()).split(b"\n\n")
        assert events[-2:] == [b"data: [DONE]", b""]
        tool = {"type": "function", "function": {"name": "look_up", "parameters": {}}}
        answer = await gateway.chat("secure", tools=[tool], tool_choice="required")
        (call,) = (await answer.json())["choices"][0]["message"]["tool_calls"]
        assert call["function"]["name"] == "look_up"
        assert [one.verdict for one in gateway.attempts()] == ["success"] * 3
    assert front.connections == 1
    assert front.protocols == ["http/1.1"]
    assert front.server_names == ["localhost"]


async def test_a_long_body_arrives_whole_and_its_connection_is_kept(
    tmp_path: Path, authority: Authority
) -> None:
    async with secured(tmp_path, authority) as (gateway, front):
        gateway.conditions(chunk_ms=0.0)
        for _ in range(3):
            answer = await long_chat(gateway, 6_000_000)
            assert answer.status == 200
            await answer.read()
        assert [call["bytes"] > 6_000_000 for call in gateway.openai.calls] == [True] * 3
    assert front.connections == 1


@pytest.mark.parametrize("stream", [True, False])
async def test_a_caller_that_leaves_ends_the_call_at_once(
    tmp_path: Path, authority: Authority, stream: bool
) -> None:
    """TLS's own goodbye would wait half a minute for the provider's, who goes on generating."""
    async with secured(tmp_path, authority) as (gateway, front):
        gateway.conditions(chunk_ms=20.0, output_tokens=4000)
        asking = asyncio.create_task(gateway.chat("secure", stream=stream))
        if stream:
            answer = await asking
            await answer.content.readany()
            answer.close()
        else:
            await until(lambda: gateway.openai.in_flight)
            asking.cancel()
        await until(lambda: front.open == 0, timeout=3)
        await until(lambda: gateway.openai.abandoned, timeout=3)
        await until(gateway.attempts)
        assert gateway.attempts()[0].verdict == "client_cancelled"


@pytest.mark.parametrize("goodbye", [True, False], ids=["with a goodbye", "without"])
async def test_a_stream_that_is_cut_is_partial(
    tmp_path: Path, authority: Authority, goodbye: bool
) -> None:
    async with secured(tmp_path, authority) as (gateway, front):
        gateway.conditions(chunk_ms=20.0, output_tokens=4000)
        answer = await gateway.chat("secured", stream=True)
        begun = b""
        while begun.count(b'"content"') < 3:
            begun += await answer.content.readany()
        writer = front.writers[0]
        if goodbye:
            writer.close()
        else:
            writer.transport.abort()
        told = begun + await until_broken(answer)
        assert b"broke off" in told
        (attempt,) = gateway.attempts()
        assert (attempt.verdict, attempt.counts_against_breaker) == ("partial", True)
        assert attempt.tokens is not None
        assert attempt.tokens.output


@pytest.mark.parametrize("goodbye", [True, False], ids=["with a goodbye", "without"])
async def test_a_kept_connection_that_the_provider_closed_is_nobodys_failure(
    tmp_path: Path, authority: Authority, goodbye: bool
) -> None:
    async with secured(tmp_path, authority) as (gateway, front):
        gateway.conditions(chunk_ms=0.0)
        for number in range(1, 6):
            answer = await gateway.chat("secure")
            assert (answer.status, front.connections) == (200, number)
            await answer.read()
            if goodbye:
                front.writers[-1].close()
            else:
                front.writers[-1].transport.abort()
            for _ in range(number - 1):
                await asyncio.sleep(0)  # from not seen yet to seen
        failed = [one for one in gateway.attempts() if one.verdict != "success"]
        assert {(one.reason, one.counts_against_breaker) for one in failed} <= {
            ("stale_connection", False)
        }


async def test_a_provider_that_answers_early_and_reads_no_further_is_left(
    tmp_path: Path, authority: Authority
) -> None:
    """What of the body has not left would be the begin of the next request."""
    got: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.append(await reader.readuntil(b"\r\n\r\n"))
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n")
        writer.write(b"\r\n{}")

    async with serving(serve, authority.context()) as port:
        more = SECURE.format(port=port, ca=authority.file)
        async with running(tmp_path, more=more) as gateway:
            for _ in range(2):
                answer = await long_chat(gateway, 20_000_000)
                assert answer.status == 200, await answer.text()
            assert len(got) == 2


async def test_what_the_provider_says_goes_on_byte_for_byte(
    tmp_path: Path, authority: Authority
) -> None:
    body = b'data: {"choices":[{"delta":{"content":"\\u00e4 \xe2\x82\xac"}}]}\r\n\r\n: a remark\n\n'
    body += b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        hosts.append(head.partition(b"Host: ")[2].partition(b"\r\n")[0].decode())
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
        writer.write(b"transfer-encoding: chunked\r\n\r\n")
        for place in range(0, len(body), 7):
            piece = body[place : place + 7]
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        writer.close()

    hosts: list[str] = []
    async with serving(serve, authority.context()) as port:
        more = SECURE.format(port=port, ca=authority.file)
        async with running(tmp_path, more=more) as gateway:
            asked = {"stream": True, "stream_options": {"include_usage": True}}
            answer = await gateway.chat("secure", **asked)
            assert await answer.read() == body
    assert hosts == [f"localhost:{port}"]


@pytest.mark.parametrize("early", [False, True], ids=["read to its end", "answered early"])
async def test_a_body_that_is_not_read_goes_through_in_constant_memory(
    tmp_path: Path, authority: Authority, early: bool
) -> None:
    """TLS keeps what the provider has not read in a buffer of its own, beside the connection's."""
    total = 64 * MIB
    got = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal got
        await reader.readuntil(b"\r\n\r\n")
        while got < total and not (early and got):
            got += len(await reader.read(MIB))
        status = b"413 Content Too Large" if early else b"200 OK"
        writer.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 2\r\n\r\n{}")
        await reader.read()

    async def flood() -> AsyncIterator[bytes]:
        for _ in range(total // MIB):
            yield b"\xfe" * MIB

    async with serving(serve, authority.context()) as port:
        more = SECURE.format(port=port, ca=authority.file)
        async with running(tmp_path, more=more) as gateway:
            headers = {"x-switchgear-route": "secure", "content-type": "application/octet-stream"}
            headers["content-length"] = str(total)
            tracemalloc.start()
            try:
                answer = await gateway.http.post("/v1/files", data=flood(), headers=headers)
                assert answer.status == (413 if early else 200)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
    assert (got == total) is not early
    # Caller, gateway and provider are all in this process.
    assert peak < 24 * MIB
