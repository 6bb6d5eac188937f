"""What one connection of a caller carries: many requests, out-of-the-ordinary ones among them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.gateway.fake_clock import until
from tests.gateway.running import Running, running

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path, limits="body_bytes = 100000") as started:
        yield started


@pytest.fixture
async def ends(gateway: Running) -> AsyncIterator[Ends]:
    place = urlsplit(gateway.url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    yield reader, writer
    writer.close()


def post(word: str, more: str = "") -> bytes:
    body = json.dumps({"model": "alone", "messages": [{"role": "user", "content": word}]})
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: {len(body)}\r\n"
    return f"{head}{more}\r\n{body}".encode()


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    async with asyncio.timeout(20):
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return int(head.split(b" ", 2)[1]), await reader.readexactly(length)


async def test_requests_follow_one_another(ends: Ends) -> None:
    reader, writer = ends
    for _ in range(3):
        writer.write(post("oak"))
        assert (await answer(reader))[0] == 200


async def test_requests_sent_at_once_are_answered_in_their_order(ends: Ends) -> None:
    reader, writer = ends
    health, unknown = (f"GET {p} HTTP/1.1\r\nhost: a\r\n\r\n".encode() for p in ("/healthz", "/x"))
    writer.write(post("oak") + unknown + health + post("elm") + unknown)
    assert [(await answer(reader))[0] for _ in range(5)] == [200, 404, 200, 200, 404]
    writer.write(post("ash"))
    assert (await answer(reader))[0] == 200


async def test_a_wish_for_another_protocol_is_passed_over(ends: Ends) -> None:
    reader, writer = ends
    writer.write(post("oak", "connection: upgrade\r\nupgrade: websocket\r\n"))
    assert (await answer(reader))[0] == 200


async def test_what_follows_a_good_request_and_is_no_http_is_refused(ends: Ends) -> None:
    reader, writer = ends
    writer.write(post("oak"))
    assert (await answer(reader))[0] == 200
    writer.write(b"\x16\x03\x01 hello\r\n\r\n")
    status, body = await answer(reader)
    assert (status, json.loads(body)["error"]["code"]) == (400, "unreadable_request")
    async with asyncio.timeout(20):
        assert await reader.read() == b""


async def test_a_body_that_is_refused_early_is_read_off(ends: Ends) -> None:
    reader, writer = ends
    body = b"x" * 300_000
    head = f"POST /nothing HTTP/1.1\r\nhost: a\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body[:1000])
    assert (await answer(reader))[0] == 404
    writer.write(body[1000:] + post("oak"))
    assert (await answer(reader))[0] == 200


async def test_the_last_request_of_a_connection_ends_it(ends: Ends) -> None:
    reader, writer = ends
    writer.write(post("oak", "connection: close\r\n"))
    assert (await answer(reader))[0] == 200
    async with asyncio.timeout(20):
        assert await reader.read() == b""


async def test_a_caller_that_ends_its_own_side_has_left(gateway: Running, ends: Ends) -> None:
    """Whether it would still read shows only when all of a plain answer has been paid for."""
    reader, writer = ends
    gateway.conditions(latency_ms=60_000.0)
    writer.write(post("oak"))
    await until(lambda: gateway.openai.in_flight)
    writer.write_eof()
    async with asyncio.timeout(20):
        assert await reader.read() == b""
    await until(lambda: gateway.openai.abandoned and gateway.outcomes())
    (attempt,) = gateway.attempts()
    assert (attempt.verdict, attempt.counts_against_breaker) == ("client_cancelled", False)


async def test_a_fault_of_the_handler_costs_its_connection_only(
    gateway: Running, ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("broken")

    reader, writer = ends
    with monkeypatch.context() as patched:
        patched.setattr("gateway.raw_answer.RawAnswer.prepare", broken)
        writer.write(post("oak"))
        async with asyncio.timeout(20):
            assert await reader.read() == b""
    async with gateway.http.get(f"{gateway.url}/healthz") as told:
        assert told.status == 200
