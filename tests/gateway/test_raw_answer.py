"""Answers as they stand on the wire, for every kind of caller: HTTP/1.1, its last request, 1.0."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer, make_mocked_request
from multidict import CIMultiDict, CIMultiDictProxy

from controlplane.domain.circuit import Circuit
from controlplane.domain.request_plan import Role, Send, Target
from gateway import raw_answer
from gateway.answers import Head, lines_passed_on
from gateway.outgoing import Outgoing
from gateway.raw_answer import RawAnswer
from tests.gateway.running import Running, running


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path) as started:
        yield started


def outgoing() -> Outgoing:
    return Outgoing(asyncio.get_running_loop())


async def ask(gateway: Running, version: str, more: str = "", *, stream: bool) -> tuple[str, bytes]:
    """Head and the rest until the gateway closes the connection."""
    body = json.dumps(
        {"model": "alone", "stream": stream, "messages": [{"role": "user", "content": "oak"}]}
    )
    place = urlsplit(gateway.url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    head = (
        f"POST /v1/chat/completions {version}\r\nhost: a\r\ncontent-length: {len(body)}\r\n{more}"
    )
    writer.write(f"{head}\r\n{body}".encode())
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    told, _, rest = answer.partition(b"\r\n\r\n")
    return told.decode().lower(), rest


@pytest.mark.parametrize(
    ("version", "more"), [("HTTP/1.1", "connection: close\r\n"), ("HTTP/1.0", "")]
)
async def test_plain_answer_has_its_length(gateway: Running, version: str, more: str) -> None:
    head, rest = await ask(gateway, version, more, stream=False)
    assert head.startswith(f"{version.lower()} 200 ok\r\n")
    lines = head.split("\r\n")[1:]
    names = [line.partition(":")[0] for line in lines]
    assert len(set(names)) == len(names)
    assert f"content-length: {len(rest)}" in lines
    assert {"content-type", "date", "server", "x-switchgear-circuit"} <= set(names)
    assert json.loads(rest)["object"] == "chat.completion"


async def test_stream_to_1_1_ends_with_the_last_chunk(gateway: Running) -> None:
    head, rest = await ask(gateway, "HTTP/1.1", "connection: close\r\n", stream=True)
    assert "\r\ntransfer-encoding: chunked" in head
    assert "\r\nconnection: close" in head
    assert rest.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    said = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        said += rest[: int(size, 16)]
        rest = rest[int(size, 16) + 2 :]
    assert said.startswith(b"data: {")
    assert said.endswith(b"data: [DONE]\n\n")


async def test_stream_to_1_0_ends_with_the_connection(gateway: Running) -> None:
    head, rest = await ask(gateway, "HTTP/1.0", stream=True)
    assert "transfer-encoding" not in head
    assert rest.startswith(b"data: {")
    assert rest.endswith(b"data: [DONE]\n\n")


def test_another_gateways_own_headers_are_not_passed_on() -> None:
    head = Head("r1")
    head.sent = Send(Target(Circuit("openai", "m")), 2, Role.RETRY, False, 1.0)
    told = CIMultiDictProxy(
        CIMultiDict({"X-Switchgear-Request": "theirs", "X-Kept": "1", "Content-Type": "a/b"})
    )
    lines = [
        "X-Kept: 1\r\n",
        "Content-Type: a/b\r\n",
        "x-switchgear-request: r1\r\n",
        "x-switchgear-attempts: 2\r\n",
        "x-switchgear-decision: retry\r\n",
        "x-switchgear-circuit: openai/m\r\n",
    ]
    assert lines_passed_on(told) + head.own_lines() == lines
    assert [f"{name}: {value}\r\n" for name, value in head.good(told).items()] == lines


@pytest.mark.parametrize("value", ["a\r\nx-b: c", "a\nx-b: c", "a\r", "a\0"])
async def test_a_header_cannot_bring_another_one(value: str) -> None:
    request = make_mocked_request("POST", "/")
    with pytest.raises(ValueError, match="line break"):
        await RawAnswer([f"x-a: {value}\r\n"], outgoing(), b"{}").prepare(request)


async def test_a_caller_that_reads_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would hold its answer in memory for as long as it likes."""
    monkeypatch.setattr(raw_answer, "SILENT_S", 0.05)
    ended = asyncio.Event()

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        answer = RawAnswer(["content-type: text/plain\r\n"], outgoing(), b"x" * 2**25)
        await answer.prepare(request)
        try:
            await answer.write_eof()
        except (ConnectionError, asyncio.CancelledError):
            ended.set()
            raise
        return answer

    async with RawTestServer(handle, handler_cancellation=True) as server:
        _, writer = await asyncio.open_connection(server.host, server.port, limit=2**10)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        async with asyncio.timeout(20):
            await ended.wait()
        writer.transport.abort()


async def test_a_slow_caller_gets_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_answer, "SILENT_S", 0.5)
    size = 2**24

    async def handle(_: web.BaseRequest) -> web.StreamResponse:
        return RawAnswer(["content-type: text/plain\r\n"], outgoing(), b"x" * size)

    async with RawTestServer(handle) as server:
        reader, writer = await asyncio.open_connection(server.host, server.port)
        writer.write(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        async with asyncio.timeout(30):
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            assert len(await reader.read()) == size
        writer.close()
