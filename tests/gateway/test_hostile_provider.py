"""A provider that speaks HTTP badly, or well and oddly: what the caller gets, whose fault it is,
and whether the connection is used again."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from controlplane.wire.events import Attempt
from tests.gateway.raw_server import serving
from tests.gateway.running import Running, running

CHOICE = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "oak"}}
WHOLE = json.dumps({"choices": [CHOICE], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
GOOD = WHOLE.encode()
STREAM = (
    b'data: {"choices":[{"index":0,"delta":{"content":"oak"},"finish_reason":"stop"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\ndata: [DONE]\n\n'
)
LIMITED = b'{"error":{"message":"slow down","code":"rate_limit_exceeded"}}'
JSON, EVENTS = b"content-type: application/json", b"content-type: text/event-stream"
GZIP, CHUNKED = b"content-encoding: gzip", b"transfer-encoding: chunked"
ROUTE = """
[[providers]]
name = "raw"
base_url = "http://127.0.0.1:{port}/v1"
keys = [{{ name = "main", secret = "three" }}]
[[routes]]
name = "raw"
deadline_seconds = {deadline}
attempt_seconds = {attempt}
first_byte_seconds = {attempt}
targets = [{{ provider = "raw", model = "m" }}]
"""


def head(*lines: bytes, begin: bytes = b"HTTP/1.1 200 OK") -> bytes:
    return b"\r\n".join((begin, *lines)) + b"\r\n\r\n"


def whole(*lines: bytes, body: bytes = GOOD, begin: bytes = b"HTTP/1.1 200 OK") -> bytes:
    return head(JSON, *lines, b"content-length: %d" % len(body), begin=begin) + body


def chunks(body: bytes, *, after_size: bytes = b"", trailer: bytes = b"") -> bytes:
    return b"%x%b\r\n%b\r\n0%b\r\n%b\r\n" % (len(body), after_size, body, after_size, trailer)


@dataclass
class Raw:
    """Says the same to every request. ``hangs_up``: its answer ends with the connection."""

    says: bytes
    hangs_up: bool = False
    connections: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while True:
            asked = await reader.readuntil(b"\r\n\r\n")
            length = asked.lower().partition(b"content-length: ")[2].partition(b"\r")[0]
            await reader.readexactly(int(length))
            writer.write(self.says)
            await writer.drain()
            if self.hangs_up:
                writer.close()
                return


@asynccontextmanager
async def before(
    raw: Raw, tmp_path: Path, *, deadline: float = 20, attempt: float = 10
) -> AsyncIterator[Running]:
    async with serving(raw.serve) as port:
        more = ROUTE.format(port=port, deadline=deadline, attempt=attempt)
        async with running(tmp_path, more=more) as gateway:
            yield gateway


ODD = {
    "trailers": head(JSON, CHUNKED) + chunks(GOOD, trailer=b"x-sum: 1\r\nset-cookie: a\r\n"),
    "extensions of chunks": head(JSON, CHUNKED) + chunks(GOOD, after_size=b";a=" + b"b" * 9000),
    "100": head(begin=b"HTTP/1.1 100 Continue") + whole(),
    "early hints": head(b"link: </a>", begin=b"HTTP/1.1 103 Early Hints") * 3 + whole(),
    "hints with a length": head(b"content-length: 9", begin=b"HTTP/1.1 103 E") + whole(),
    "gzip that nobody asked for": whole(GZIP, body=gzip.compress(GOOD)),
    "a header of 7 KiB": whole(b"x-a: " + b"a" * 7168),
    "a folded header": whole(b"x-a: a\r\n b"),
    "no reason phrase": whole(begin=b"HTTP/1.1 200"),
    "a line break after the body": whole() + b"\r\n",
    "bare line feeds": whole().replace(b"\r\n", b"\n"),
    "HTTP/1.0 that keeps": whole(b"connection: keep-alive", begin=b"HTTP/1.0 200 OK"),
}
ENDS_WITH_THE_CONNECTION = {
    "HTTP/1.0": head(JSON, begin=b"HTTP/1.0 200 OK") + GOOD,
    "HTTP/1.1": head(JSON) + GOOD,
    "identity": head(JSON, b"transfer-encoding: identity") + GOOD,
    "HTTP/1.0 with a length": whole(begin=b"HTTP/1.0 200 OK"),
    "close": whole(b"connection: close"),
}
MALFORMED = {
    "no HTTP": b"\x16\x03\x01no HTTP\r\n\r\n",
    "a header of 64 KiB": whole(b"x-a: " + b"a" * 65536),
    "1000 headers": whole(*(b"x-%d: a" % number for number in range(1000))),
    "two lengths": whole(b"content-length: 3"),
    "a list of lengths": head(JSON, b"content-length: 3, 3") + b"{ }",
    "a length below 0": head(JSON, b"content-length: -1") + GOOD,
    "a signed length": head(JSON, b"content-length: +%d" % len(GOOD)) + GOOD,
    "length and chunks": head(JSON, b"content-length: 3", CHUNKED) + chunks(GOOD),
    "a chunk below 0": head(JSON, CHUNKED) + b"-5\r\nabc",
    "an endless chunk": head(JSON, CHUNKED) + b"ffffffffffffffffff\r\nabc",
    "a NUL": whole(b"x-a: a\0b"),
    "a header in a header": whole(b"x-a: a\rx-should-retry: true"),
    "a space before the colon": whole(b"x-a : a"),
    "a header without a name": whole(b": a"),
    "an encoding that is not known": whole(b"content-encoding: br", body=b"\x8b\x02"),
    "gzip that is none": whole(GZIP, body=b"this is no gzip"),
    "gzip as a transfer encoding": head(JSON, b"transfer-encoding: gzip, chunked")
    + chunks(gzip.compress(GOOD)),
    "nonsense before an answer": b"nonsense\r\n\r\n" + whole(),
    "an answer that is cut by nonsense": head(JSON, CHUNKED) + b"3\r\nabcnonsense",
    "announcements without end": head(begin=b"HTTP/1.1 102 Processing") * 2000,
}


async def served(gateway: Running, *, stream: bool = False, body: bytes = GOOD) -> None:
    for _ in range(2):
        asked = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        answer = await gateway.chat("raw", **asked)
        assert (answer.status, await answer.read()) == (200, body)
        for name in ("content-encoding", "trailer", "set-cookie", "link", "x-sum"):
            assert name not in answer.headers
    assert [one.verdict for one in gateway.attempts()] == ["success"] * 2
    tokens = gateway.attempts()[0].tokens
    assert tokens is not None
    assert (tokens.input, tokens.output, tokens.estimated) == (3, 2, False)


@pytest.mark.parametrize("which", ODD)
async def test_odd_and_right_is_served_and_its_connection_kept(tmp_path: Path, which: str) -> None:
    raw = Raw(ODD[which])
    async with before(raw, tmp_path) as gateway:
        await served(gateway)
    assert raw.connections == 1


@pytest.mark.parametrize("which", ENDS_WITH_THE_CONNECTION)
async def test_what_ends_with_its_connection_is_served_and_not_kept(
    tmp_path: Path, which: str
) -> None:
    raw = Raw(ENDS_WITH_THE_CONNECTION[which], hangs_up=True)
    async with before(raw, tmp_path) as gateway:
        await served(gateway)
    assert raw.connections == 2


@pytest.mark.parametrize(
    ("says", "hangs_up"),
    [
        (head(EVENTS, CHUNKED) + chunks(STREAM, trailer=b"x-sum: 1\r\n"), False),
        (head(EVENTS, GZIP, CHUNKED) + chunks(gzip.compress(STREAM)), False),
        (head(EVENTS, begin=b"HTTP/1.0 200 OK") + STREAM, True),
    ],
    ids=["trailers", "gzip", "HTTP/1.0"],
)
async def test_odd_streams_are_served(tmp_path: Path, says: bytes, hangs_up: bool) -> None:
    raw = Raw(says, hangs_up)
    async with before(raw, tmp_path) as gateway:
        await served(gateway, stream=True, body=STREAM)
    assert raw.connections == 1 + hangs_up


async def first_failure(gateway: Running, status: int = 502) -> Attempt:
    answer = await gateway.chat("raw")
    assert answer.status == status, await answer.text()
    assert answer.headers["x-should-retry"] == "false"
    return gateway.attempts()[0]


@pytest.mark.parametrize("which", MALFORMED)
async def test_what_is_no_http_is_the_providers_and_its_connection_is_left(
    tmp_path: Path, which: str
) -> None:
    raw = Raw(MALFORMED[which])
    async with before(raw, tmp_path) as gateway:
        attempt = await first_failure(gateway)
        assert (attempt.verdict, attempt.reason) == ("retryable", "malformed_answer")
        assert attempt.counts_against_breaker
        # The one that was read to its end is understood as HTTP, if not as an answer.
        kept = which == "gzip as a transfer encoding"
        assert raw.connections == (1 if kept else len(gateway.attempts()))


@pytest.mark.parametrize("more", [b"nonsense\r\n\r\n", whole(), b"}"])
@pytest.mark.parametrize("announced", [b"", head(begin=b"HTTP/1.1 103 Early Hints")])
async def test_a_whole_answer_is_not_lost_with_what_stands_behind_it(
    tmp_path: Path, more: bytes, announced: bytes
) -> None:
    raw = Raw(announced + whole() + more)
    async with before(raw, tmp_path) as gateway:
        await served(gateway)
    assert raw.connections == 2


@pytest.mark.parametrize(
    ("begin", "status", "reason"),
    [
        (b"HTTP/1.1 204 No Content", 204, "ok"),
        (b"HTTP/1.1 304 Not Modified", 502, "redirected"),
    ],
)
async def test_a_body_that_must_not_be_there_costs_the_connection_alone(
    tmp_path: Path, begin: bytes, status: int, reason: str
) -> None:
    """Some servers put a ``null`` behind the 204 of a DELETE."""
    raw = Raw(whole(body=b"null", begin=begin))
    async with before(raw, tmp_path) as gateway:
        for _ in range(2):
            answer = await gateway.chat("raw")
            assert answer.status == status
        assert await answer.read() == b"" or status != 204
        assert [(a.reason, a.counts_against_breaker) for a in gateway.attempts()] == [
            (reason, False)
        ] * 2
    assert raw.connections == 2


async def test_no_http_on_a_kept_connection_is_no_connection_that_was_closed(
    tmp_path: Path,
) -> None:
    """It was taken for one that had been dead already, which is nobody's failure."""
    raw = Raw(whole())
    async with before(raw, tmp_path) as gateway:
        await (await gateway.chat("raw")).read()
        raw.says = MALFORMED["no HTTP"]
        assert (await gateway.chat("raw")).status == 502
        second = gateway.attempts()[1]
        assert (second.reason, second.counts_against_breaker) == ("malformed_answer", True)


async def test_an_error_in_gzip_is_read(tmp_path: Path) -> None:
    says = whole(
        GZIP, b"retry-after: 30", body=gzip.compress(LIMITED), begin=b"HTTP/1.1 429 Too Many"
    )
    async with before(Raw(says), tmp_path) as gateway:
        answer = await gateway.chat("raw")
        assert (answer.status, await answer.read()) == (429, LIMITED)
        assert "content-encoding" not in answer.headers
        (attempt,) = gateway.attempts()
        assert (attempt.reason, attempt.retry_after_s) == ("rate_limited", 30.0)


async def test_an_answer_that_unpacks_without_end_is_paid_for_once(tmp_path: Path) -> None:
    says = whole(GZIP, body=gzip.compress(b" " * 50_000_000))
    async with before(Raw(says), tmp_path) as gateway:
        attempt = await first_failure(gateway)
        assert (attempt.verdict, attempt.reason) == ("local_fault", "answer_too_large")
        assert (attempt.counts_against_breaker, attempt.billing) == (False, "unknown")
        assert len(gateway.attempts()) == 1


async def test_another_protocol_is_not_switched_to(tmp_path: Path) -> None:
    lines = b"upgrade: h2c", b"connection: upgrade"
    raw = Raw(head(*lines, begin=b"HTTP/1.1 101 Switching Protocols") + whole())
    async with before(raw, tmp_path) as gateway:
        attempt = await first_failure(gateway)
        assert (attempt.reason, attempt.counts_against_breaker) == ("server_error", True)
        assert raw.connections == len(gateway.attempts())


async def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    raw = Raw(whole(b"location: http://127.0.0.1:9/", begin=b"HTTP/1.1 307 Temporary Redirect"))
    async with before(raw, tmp_path) as gateway:
        attempt = await first_failure(gateway)
        assert (attempt.verdict, attempt.reason) == ("permanent", "redirected")
        assert raw.connections == 1


@pytest.mark.parametrize("says", [whole(), head(JSON, CHUNKED) + chunks(GOOD)])
async def test_a_provider_that_drips_has_its_time_and_no_more(tmp_path: Path, says: bytes) -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for place in range(len(says)):
            writer.write(says[place : place + 1])
            await writer.drain()
            await asyncio.sleep(0.02)

    async with serving(drip) as port:
        more = ROUTE.format(port=port, deadline=0.9, attempt=0.4)
        async with running(tmp_path, more=more) as gateway:
            attempt = await first_failure(gateway, status=504)
            assert (attempt.verdict, attempt.reason) == ("retryable", "timeout")
            assert attempt.counts_against_breaker
            assert 400 <= attempt.ended_ms < 700
