"""``POST /api/v1/events``: the door of telemetry (docs/wire.md, section 1).

Invariants: the token is checked before a byte of the body is read; what is read, unpacked, waited
for and worked on at once is bounded, and beyond a bound the answer is 503 with ``Retry-After``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from weakref import WeakKeyDictionary

import psycopg
from psycopg_pool import PoolTimeout

from controlplane.api.hot.auth import Caller, authenticate
from controlplane.api.hot.http import Receive, Scope, Send, answer_json, header, read_body
from controlplane.api.hot.lifespan import ON_START
from controlplane.api.hot.room import Room
from controlplane.api.hot.unpack import known, unpack
from controlplane.errors import Busy, Problem, TooLarge
from controlplane.ingest.partitions import ensure_ahead
from controlplane.ingest.pipeline import accept
from controlplane.models.pool import AWAY, pool
from controlplane.wire.events import Receipt

MIB = 1024 * 1024
MOST_BYTES_SENT = 4 * MIB
MOST_BYTES_UNPACKED = 32 * MIB
# How many requests may be here at once, and how many of one gateway, whose slow or many senders
# must leave places for the others.
_MOST_IN_FLIGHT = 128
_MOST_OF_ONE = 64
# What may be in memory at once of bodies as sent, and of bodies unpacked.
_SENT_ROOM = 64 * MIB
# What one gateway may hold of it: a body that is announced and does not come holds its own.
_SENT_OF_ONE = _SENT_ROOM // 2
_UNPACKED_ROOM = 128 * MIB
_WAIT_SECONDS = 5.0
_READ_SECONDS = 20.0
# What comes out up to this size is unpacked sooner than a thread takes it and gives it back; the
# rest of a larger one, or of a bomb, is left to the thread.
_AT_ONCE = MIB

log = logging.getLogger(__name__)


class Door:
    """The bounded queue of one event loop."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.sent = Room(_SENT_ROOM)
        self.unpacked = Room(_UNPACKED_ROOM)
        # Of each gateway with requests here: how many, and the room of their bytes.
        self.of: dict[int, int] = {}
        self.room_of: dict[int, Room] = {}

    def enter(self) -> None:
        """Count a request in, which is to leave; ``Busy`` when too many are there."""
        if self.in_flight >= _MOST_IN_FLIGHT:
            raise Busy("Too many batches at once; send it again later.", retry_after_s=1)
        self.in_flight += 1

    def leave(self) -> None:
        """Count it out."""
        self.in_flight -= 1

    def known(self, caller: Caller, size: int) -> Known:
        """Count a gateway's request in, and its bytes; ``Busy`` when too much of it is there."""
        return Known(self, caller.gateway_id, size)


class Known:
    """A gateway's request within the door, for the length of an ``async with``.

    The gateway's own room comes first: only who has that may wait for the room that all share.
    """

    __slots__ = ("_door", "_gateway", "_own", "_size")

    def __init__(self, door: Door, gateway: int, size: int) -> None:
        self._door, self._gateway, self._size = door, gateway, size

    async def __aenter__(self) -> None:
        door, gateway = self._door, self._gateway
        if door.of.get(gateway, 0) >= _MOST_OF_ONE:
            raise Busy("Too many batches of this gateway at once; send it later.", retry_after_s=1)
        door.of[gateway] = door.of.get(gateway, 0) + 1
        self._own = door.room_of.get(gateway)
        if self._own is None:
            self._own = door.room_of[gateway] = Room(_SENT_OF_ONE)
        try:
            await self._own.take(self._size, _WAIT_SECONDS)
            try:
                await door.sent.take(self._size, _WAIT_SECONDS)
            except BaseException:
                self._own.give_back(self._size)
                raise
        except BaseException:
            self._count_out()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._door.sent.give_back(self._size)
        self._own.give_back(self._size)
        self._count_out()

    def _count_out(self) -> None:
        door, gateway = self._door, self._gateway
        door.of[gateway] -= 1
        if not door.of[gateway]:
            del door.of[gateway], door.room_of[gateway]


_doors: WeakKeyDictionary[asyncio.AbstractEventLoop, Door] = WeakKeyDictionary()


def door() -> Door:
    """The running loop's queue."""
    loop = asyncio.get_running_loop()
    found = _doors.get(loop)
    if found is None:
        found = _doors[loop] = Door()
    return found


async def post_events(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer 200 and a receipt once the batch is committed."""
    here = door()
    here.enter()
    try:
        try:
            caller = await authenticate(scope)
        except AWAY as error:
            raise Busy("Postgres is away; send the same batch again.", retry_after_s=2) from error
        encoding = _encoding(scope)
        async with here.known(caller, _announced(scope)):
            receipt = await _accept(caller, encoding, scope, receive)
    finally:
        here.leave()
    await answer_json(send, receipt)


def _announced(scope: Scope) -> int:
    """How many bytes a body may turn out to have."""
    declared = header(scope, b"content-length")
    size = int(declared) if declared.isdigit() else MOST_BYTES_SENT
    return min(size, MOST_BYTES_SENT)


async def _accept(caller: Caller, encoding: str, scope: Scope, receive: Receive) -> Receipt:
    try:
        async with asyncio.timeout(_READ_SECONDS):
            body = await read_body(scope, receive, MOST_BYTES_SENT)
    except TimeoutError as error:
        raise Problem("The body came too slowly.", code="too_slow", status=408) from error
    try:
        plain = unpack(encoding, body, _AT_ONCE)
    except TooLarge:
        async with door().unpacked.taken(MOST_BYTES_UNPACKED, wait_s=_WAIT_SECONDS):
            plain = await asyncio.to_thread(unpack, encoding, body, MOST_BYTES_UNPACKED)
            return await accept(caller.gateway_id, plain, datetime.now(UTC))
    async with door().unpacked.taken(len(plain), wait_s=_WAIT_SECONDS):
        return await accept(caller.gateway_id, plain, datetime.now(UTC))


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
