"""``POST /api/v1/events``: the door of telemetry (docs/wire.md, section 1).

Invariants: the token is checked before a byte of the body is read; what is read, unpacked, waited
for and worked on at once is bounded, and beyond a bound the answer is 503 with ``Retry-After``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from weakref import WeakKeyDictionary

import psycopg
from psycopg_pool import PoolTimeout

from controlplane.api.hot.auth import authenticate
from controlplane.api.hot.http import Receive, Scope, Send, answer_json, header, read_body
from controlplane.api.hot.lifespan import ON_START
from controlplane.api.hot.unpack import known, unpack
from controlplane.errors import Busy, Problem
from controlplane.ingest.partitions import ensure_ahead
from controlplane.ingest.pipeline import accept
from controlplane.models.pool import pool

MOST_BYTES_SENT = 4 * 1024 * 1024
MOST_BYTES_UNPACKED = 32 * 1024 * 1024
# At most this many requests may be reading or waiting, and this many work at once: fewer than the
# pool has connections, so that status reports and watches always find one.
_MOST_IN_FLIGHT = 64
_MOST_AT_WORK = 4
_WAIT_SECONDS = 5.0
_READ_SECONDS = 20.0
# A small body is unpacked sooner than a thread takes it and gives it back, unless it is a bomb,
# which this size keeps to a few milliseconds.
_SMALL = 4 * 1024

log = logging.getLogger(__name__)


class Door:
    """The bounded queue of one event loop."""

    def __init__(self) -> None:
        self.in_flight = 0
        self._at_work = asyncio.Semaphore(_MOST_AT_WORK)

    @asynccontextmanager
    async def entered(self) -> AsyncIterator[None]:
        """Count a request in; ``Busy`` when too many are there."""
        if self.in_flight >= _MOST_IN_FLIGHT:
            raise Busy("Too many batches at once; send it again later.", retry_after_s=1)
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Wait for a place among those at work; ``Busy`` when none comes free in time."""
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                await self._at_work.acquire()
        except TimeoutError as error:
            raise Busy("The ingest queue is full; send it again.", retry_after_s=2) from error
        try:
            yield
        finally:
            self._at_work.release()


_doors: WeakKeyDictionary[asyncio.AbstractEventLoop, Door] = WeakKeyDictionary()


def door() -> Door:
    """The running loop's queue."""
    return _doors.setdefault(asyncio.get_running_loop(), Door())


async def post_events(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer 200 and a receipt once the batch is committed."""
    async with door().entered():
        try:
            caller = await authenticate(scope)
        except (psycopg.OperationalError, PoolTimeout) as error:
            raise Busy("Postgres is away; send the same batch again.", retry_after_s=2) from error
        encoding = _encoding(scope)
        try:
            async with asyncio.timeout(_READ_SECONDS):
                body = await read_body(scope, receive, MOST_BYTES_SENT)
        except TimeoutError as error:
            raise Problem("The body came too slowly.", code="too_slow", status=408) from error
        async with door().working():
            plain = await _plain(encoding, body)
            receipt = await accept(caller.gateway_id, plain, datetime.now(UTC))
    await answer_json(send, receipt)


def _encoding(scope: Scope) -> str:
    media_type = header(scope, b"content-type").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise Problem(
            f"Content-Type {media_type or '(none)'} is not read here: send application/json.",
            code="unsupported_media_type",
            status=415,
        )
    encoding = header(scope, b"content-encoding").strip().lower()
    if not known(encoding):
        raise Problem(
            f"Content-Encoding {encoding} is not read here: send gzip, zstd or plain JSON.",
            code="unsupported_encoding",
            status=415,
        )
    return encoding


async def _plain(encoding: str, body: bytes) -> bytes:
    if encoding in ("", "identity") or len(body) <= _SMALL:
        return unpack(encoding, body, MOST_BYTES_UNPACKED)
    return await asyncio.to_thread(unpack, encoding, body, MOST_BYTES_UNPACKED)


async def _make_days() -> Callable[[], Awaitable[None]]:
    """Have the days' partitions ready before the first batch is answered."""
    try:
        async with (await pool()).connection() as conn:
            await ensure_ahead(conn, datetime.now(UTC))
    except (psycopg.Error, PoolTimeout) as error:
        # Not fatal: a batch that finds its day missing makes it.
        log.warning("partitions were not checked at start: %s", error)

    async def end() -> None:
        return None

    return end


ON_START.append(_make_days)
