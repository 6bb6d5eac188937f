"""Handshakes that fail: whose fault each is, and what it costs the provider's circuit."""

from __future__ import annotations

import asyncio
import logging
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from controlplane.wire.events import Attempt
from tests.certificates import Authority
from tests.gateway.raw_server import serving
from tests.gateway.running import Running, running
from tests.gateway.tls.test_calls import SECURE

NOW = datetime.now(UTC)
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def never(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """After a handshake that nobody should finish."""
    writer.close()


async def failed(gateway: Running, model: str = "secure") -> Attempt:
    answer = await gateway.chat(model)
    assert answer.status in (502, 504), await answer.text()
    return gateway.attempts()[0]


@asynccontextmanager
async def calling(
    tmp_path: Path, authority: Authority, serve: Serve, context: ssl.SSLContext | None
) -> AsyncIterator[Running]:
    async with serving(serve, context) as port:
        more = SECURE.format(port=port, ca=authority.file)
        async with running(tmp_path, more=more) as gateway:
            gateway.conditions(chunk_ms=0.0)
            yield gateway


@pytest.mark.parametrize(
    ("names", "dates"),
    [
        (["localhost"], {"not_before": NOW - timedelta(9), "not_after": NOW - timedelta(1)}),
        (["api.example.com"], {}),
    ],
    ids=["expired", "of another name"],
)
async def test_a_bad_certificate_is_the_providers(
    tmp_path: Path, authority: Authority, names: list[str], dates: dict[str, datetime]
) -> None:
    context = authority.context(*names, **dates)
    async with calling(tmp_path, authority, never, context) as gateway:
        attempt = await failed(gateway)
        assert (attempt.verdict, attempt.reason) == ("permanent", "certificate")
        assert (attempt.counts_against_breaker, attempt.billing) == (True, "not_billed")
        assert len(gateway.attempts()) == 1  # in a second it will be as bad


@pytest.mark.parametrize("which", ["of nobody we know", "by itself", "of tomorrow"])
async def test_a_certificate_that_only_this_host_does_not_know_opens_no_circuit(
    tmp_path: Path, authority: Authority, which: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its store lacks an authority, or something on the way reads along: the provider is well."""
    context = {
        "of nobody we know": lambda: Authority.in_folder(tmp_path).context(),
        "by itself": Authority.in_folder(tmp_path).own_context,
        "of tomorrow": lambda: authority.context(
            not_before=NOW + timedelta(1), not_after=NOW + timedelta(9)
        ),
    }[which]()
    async with calling(tmp_path, authority, never, context) as gateway:
        with caplog.at_level(logging.ERROR, "gateway.upstream"):
            for _ in range(8):
                answer = await gateway.chat("secure")
                assert (answer.status, (await answer.json())["error"]["code"]) == (
                    502,
                    "untrusted_certificate",
                )
        attempts = gateway.attempts()
        assert {(one.verdict, one.reason) for one in attempts} == {
            ("local_fault", "untrusted_certificate")
        }
        assert not any(one.counts_against_breaker for one in attempts)
        assert (len(attempts), gateway.refusals()) == (8, [])
        told = [record.getMessage() for record in caplog.records]
        assert [text.partition(":")[0] for text in told] == ["try 1", "try 2", "try 4", "try 8"]
        assert "name its authority in the ca_file of [[providers]] secure" in told[0]
        # Another provider serves what it can.
        assert (await gateway.chat("secured")).status == 200
        assert gateway.attempts()[-1].provider == "mistral"


@pytest.mark.parametrize("limit", ["attempt_seconds", "connect_seconds"])
async def test_a_handshake_that_hangs_ends_with_its_time(
    tmp_path: Path, authority: Authority, limit: str
) -> None:
    gone: list[bytes] = []

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.read(2**16):
                pass
        except ConnectionError:
            pass
        gone.append(b"")

    async with serving(deaf, None) as port:
        more = SECURE.format(port=port, ca=authority.file)
        if limit == "connect_seconds":
            more = more.replace('name = "secure"', 'name = "secure"\nconnect_seconds = 0.2', 1)
        else:
            short = "attempt_seconds = 0.2\ndeadline_seconds = 0.5"
            more = more.replace("attempt_seconds = 10", short)
        async with running(tmp_path, more=more) as gateway:
            attempt = await failed(gateway)
            assert (attempt.verdict, attempt.reason) == ("retryable", "tls")
            assert (attempt.counts_against_breaker, attempt.billing) == (True, "not_billed")
            assert 200 <= attempt.ended_ms < 400
            assert len(gone) >= 1  # nothing is left open behind it


@pytest.mark.parametrize("says", ["plain HTTP", "an alert", "a reset"])
async def test_what_is_no_handshake_is_told_as_one_that_failed(
    tmp_path: Path, authority: Authority, says: str
) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        if says == "plain HTTP":
            writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        elif says == "an alert":
            writer.write(struct.pack("!BHHBB", 21, 0x303, 2, 2, 40))  # fatal, handshake failure
        else:
            writer.transport.abort()
            return
        await writer.drain()
        writer.close()

    async with calling(tmp_path, authority, speak, None) as gateway:
        attempt = await failed(gateway)
        assert (attempt.verdict, attempt.reason) == ("retryable", "tls")
        assert (attempt.counts_against_breaker, attempt.billing) == (True, "not_billed")


async def test_a_provider_that_wants_a_certificate_of_ours_fails(
    tmp_path: Path, authority: Authority
) -> None:
    """With TLS 1.3 it says so after the handshake, when the request may have left."""
    context = authority.context()
    context.verify_mode = ssl.CERT_REQUIRED
    authority.ca.configure_trust(context)

    async with calling(tmp_path, authority, never, context) as gateway:
        attempt = await failed(gateway)
        assert (attempt.verdict, attempt.counts_against_breaker) == ("retryable", True)
        assert attempt.reason in ("tls", "reset")
