"""The client side on a real socket: what is sent, and when a connection is used again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest

from controlplane.domain.classify import Phase
from gateway.config import Key
from gateway.config_file import parse
from gateway.faults import Progress
from gateway.outgoing import Outgoing
from gateway.upstream import Call, Upstream
from tests.gateway.fake_clock import until

GOOD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
CONFIG = """
[gateway]
name = "edge"
data_dir = "{data}"
[[providers]]
name = "openai"
base_url = "{url}"
keys = [{{ name = "main", secret = "one" }}]
[[routes]]
name = "alone"
targets = [{{ provider = "openai", model = "m" }}]
"""


@dataclass
class RawProvider:
    """Answers with the next of ``answers``, once it has read ``wants`` bytes of a body or all."""

    answers: list[bytes]
    wants: int | None = None
    heads: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    connections: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
                self.heads.append(head)
                self.bodies.append(await reader.readexactly(min(length, self.wants or length)))
                writer.write(self.answers.pop(0))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def calling(tmp_path: Path, provider: RawProvider) -> AsyncIterator[Upstream]:
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{port}/openai/v1"
    upstream = Upstream(parse(CONFIG.format(data=tmp_path, url=url), {}))
    await upstream.start()
    try:
        yield upstream
    finally:
        await upstream.close()
        server.close()
        await server.wait_closed()


def call_of(upstream: Upstream, body: bytes = b"{}") -> Call:
    return Call(
        path="chat/completions",
        provider=upstream.providers["openai"],
        key=Key("main", "one"),
        body=body,
        stream=False,
        hide_usage=False,
        idempotency_key="k-openai",
    )


async def read(upstream: Upstream, call: Call, progress: Progress | None = None) -> bytes:
    response = await upstream.post(call, {"user-agent": "sdk/1"}, progress or Progress())
    try:
        return await response.content.read()
    finally:
        response.close()


async def test_what_is_sent(tmp_path: Path) -> None:
    provider = RawProvider([GOOD])
    async with calling(tmp_path, provider) as upstream:
        assert await read(upstream, call_of(upstream, b'{"a":1}')) == b"{}"
    first, *lines = provider.heads[0].decode().removesuffix("\r\n\r\n").split("\r\n")
    assert first == "POST /openai/v1/chat/completions HTTP/1.1"
    headers = dict(line.lower().split(": ", 1) for line in lines)
    assert len(headers) == len(lines)
    assert headers.pop("host").startswith("127.0.0.1:")
    assert headers == {
        "accept": "application/json",
        "accept-encoding": "identity",
        "authorization": "bearer one",
        "content-length": "7",
        "content-type": "application/json",
        "idempotency-key": "k-openai",
        "user-agent": "sdk/1",
    }
    assert provider.bodies == [b'{"a":1}']


async def test_a_header_cannot_bring_another_one(tmp_path: Path) -> None:
    provider = RawProvider([GOOD])
    async with calling(tmp_path, provider) as upstream:
        with pytest.raises(ValueError, match="line break"):
            await upstream.post(call_of(upstream), {"user-agent": "a\r\nx-b: c"}, Progress())
    assert provider.heads == []


async def test_the_connection_is_used_again_and_the_call_knows_it(tmp_path: Path) -> None:
    provider = RawProvider([GOOD, GOOD])
    async with calling(tmp_path, provider) as upstream:
        first, second = Progress(), Progress()
        await read(upstream, call_of(upstream), first)
        await read(upstream, call_of(upstream), second)
    assert provider.connections == 1
    assert (first.reused, second.reused) == (False, True)
    assert second.phase is Phase.AWAITING_HEADERS


async def test_announcements_before_the_answer_are_skipped(tmp_path: Path) -> None:
    provider = RawProvider([b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" + GOOD])
    async with calling(tmp_path, provider) as upstream:
        response = await upstream.post(call_of(upstream), {}, Progress())
        assert (response.status, await response.content.read()) == (200, b"{}")


async def test_an_answer_before_the_whole_body_was_read_costs_the_connection(
    tmp_path: Path,
) -> None:
    """What is left of the body would be taken for the next request."""
    provider = RawProvider([GOOD, GOOD], wants=1)
    async with calling(tmp_path, provider) as upstream:
        assert await read(upstream, call_of(upstream, b"x" * 2**23)) == b"{}"
        assert await read(upstream, call_of(upstream, b"x")) == b"{}"
    assert provider.connections == 2


async def test_a_connection_that_breaks_off_or_talks_nonsense_is_told_apart(tmp_path: Path) -> None:
    provider = RawProvider([b"nonsense\r\n\r\n"])
    async with calling(tmp_path, provider) as upstream:
        with pytest.raises(aiohttp.ClientResponseError):
            await read(upstream, call_of(upstream))
    cut = RawProvider([GOOD.replace(b"length: 2", b"length: 9") + b"HTTP"])
    async with calling(tmp_path, cut) as upstream:
        response = await upstream.post(call_of(upstream), {}, Progress())
        response.close()
        with pytest.raises(aiohttp.ClientConnectionError):
            await response.content.read()


@pytest.mark.parametrize(
    "unasked",
    [GOOD, b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 1\r\n\r\nx"],
    ids=["a second answer", "a 408 for being idle"],
)
async def test_what_comes_unasked_is_not_the_next_call_s_answer(
    tmp_path: Path, unasked: bytes
) -> None:
    """It may be another tenant's answer; the connection is given up and the call gets a new one."""
    provider = RawProvider([GOOD.replace(b"{}", b"{"), GOOD.replace(b"{}", b"[]")])
    async with calling(tmp_path, provider) as upstream:
        response = await upstream.post(call_of(upstream), {}, Progress())
        provider.writers[0].write(b"}" + unasked)  # its end and more, in one piece
        assert await response.content.read() == b"{}"
        progress = Progress()
        assert await read(upstream, call_of(upstream), progress) == b"[]"
    assert (provider.connections, progress.reused) == (2, False)


async def test_an_answer_to_what_has_not_left_is_none(tmp_path: Path) -> None:
    class Unsent(Outgoing):
        """As if the turn of the loop in which a call is sent were not over yet."""

        def send(self, transport: asyncio.Transport, data: bytes) -> None:
            self._waiting[transport] = data
            provider.writers[0].write(GOOD)

    provider = RawProvider([GOOD])
    async with calling(tmp_path, provider) as upstream:
        await read(upstream, call_of(upstream))
        upstream.outgoing = Unsent(asyncio.get_running_loop())
        with pytest.raises(aiohttp.ClientConnectionResetError):
            await read(upstream, call_of(upstream))
        upstream.outgoing = Outgoing(asyncio.get_running_loop())
        provider.answers.append(GOOD)
        await read(upstream, call_of(upstream))
    assert (provider.connections, len(provider.bodies)) == (2, 2)


async def test_a_body_that_stops_being_http_is_told_at_once(tmp_path: Path) -> None:
    chunked = GOOD.replace(b"content-length: 2", b"transfer-encoding: chunked")
    provider = RawProvider([chunked.replace(b"{}", b"1\r\n{\r\n")])
    async with calling(tmp_path, provider) as upstream:
        response = await upstream.post(call_of(upstream), {}, Progress())
        provider.writers[0].write(b"no length\r\n")
        with pytest.raises(aiohttp.ClientPayloadError):
            async with asyncio.timeout(30):
                await response.content.read()
        response.close()


async def test_a_provider_that_does_not_read_keeps_no_connection(tmp_path: Path) -> None:
    """Its socket's buffer is full: what could not be sent must not be kept for it."""
    gone = asyncio.Event()

    class Deaf(RawProvider):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            self.connections += 1
            await gone.wait()
            writer.transport.abort()

    provider = Deaf([])
    async with calling(tmp_path, provider) as upstream:
        call = asyncio.create_task(
            upstream.post(call_of(upstream, b"x" * 2**24), {}, progress := Progress())
        )
        await until(lambda: progress.phase is Phase.AWAITING_HEADERS and provider.connections > 0)
        (protocol,) = upstream._connector._acquired  # type: ignore[union-attr]
        transport = protocol.transport
        assert transport is not None
        assert transport.get_write_buffer_size() > 0
        call.cancel()
        await until(lambda: transport.get_write_buffer_size() == 0)
        gone.set()
        with pytest.raises(asyncio.CancelledError):
            await call
