"""The watch: desired state of one gateway as server-sent events.

Invariant: every frame is whole and the newest at the time it is made; a slow reader skips over
states that were replaced meanwhile, and never over the last one. A stream always ends by itself
(rotation), when its reader has gone or its token is not valid any more, and when the process stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from weakref import WeakKeyDictionary

import psycopg
from psycopg_pool import PoolTimeout

from controlplane.errors import Busy
from controlplane.models.pool import pool
from controlplane.notify import Wakeups
from controlplane.watch.heads import Heads, Position
from controlplane.watch.snapshot import Head, read_head

BOOKMARK_SECONDS = 10.0
# How often the reader's token is looked at again.
TOKEN_SECONDS = 5.0
# How old a reading may be that is sent to one more stream of the same gateway.
FRESH_SECONDS = 0.1
MAX_STREAMS = 2000
MAX_STREAMS_A_GATEWAY = 200
_open: dict[int, int] = {}

log = logging.getLogger(__name__)


@contextlib.contextmanager
def admitted(gateway_id: int) -> Iterator[None]:
    """Hold one of the stream places; ``Busy`` when all are taken."""
    mine = _open.get(gateway_id, 0)
    if mine >= MAX_STREAMS_A_GATEWAY or sum(_open.values()) >= MAX_STREAMS:
        raise Busy("Too many open watches here; poll meanwhile.", retry_after_s=5)
    _open[gateway_id] = mine + 1
    try:
        yield
    finally:
        _open[gateway_id] -= 1
        if not _open[gateway_id]:
            del _open[gateway_id]


async def frames(
    gateway_id: int,
    head: Head,
    *,
    known: tuple[int, str],
    heads: Heads,
    ended: asyncio.Event,
    lasts_s: float,
    allowed: Callable[[], Awaitable[bool]],
) -> AsyncGenerator[bytes]:
    """The frames of one stream until ``ended`` is set or ``lasts_s`` have passed.

    ``head`` is the first reading, ``known`` the generation and hash that the caller runs,
    ``allowed`` whether its token is still valid. When Postgres does not answer the stream ends;
    its reader comes again and keeps what it has.
    """
    until = time.monotonic() + lasts_s
    bookmark_at = time.monotonic()
    token_at = bookmark_at + TOKEN_SECONDS
    # A caller that is current has, in effect, been sent this head.
    sent = _identity(head) if (head.generation, head.hash) == known else None
    acted = Position()
    try:
        async with _following(heads, ended) as wakeups:
            while not ended.is_set():
                if _identity(head) != sent:
                    yield _frame("snapshot", head.revision, head.snapshot)
                    sent = _identity(head)
                    bookmark_at = time.monotonic() + BOOKMARK_SECONDS
                elif time.monotonic() >= bookmark_at:
                    yield _frame("bookmark", head.revision, head.bookmark)
                    bookmark_at = time.monotonic() + BOOKMARK_SECONDS
                if time.monotonic() >= until:
                    return
                seen = Position(head.epoch, head.revision)
                left = min(bookmark_at, until, token_at) - time.monotonic()
                at = await _news(heads, seen, acted, wakeups, ended, left)
                if time.monotonic() >= token_at:
                    if not await allowed():
                        return
                    token_at = time.monotonic() + TOKEN_SECONDS
                if at is not None or time.monotonic() >= bookmark_at:
                    acted = at or acted
                    head = await latest(gateway_id, head.gateway, at or seen)
    except (psycopg.Error, PoolTimeout) as error:
        log.warning("the watch of %s ends: %s", head.gateway, error)


def _identity(head: Head) -> tuple[str, int, str]:
    return head.epoch, head.generation, head.hash


def _frame(event: str, revision: int, data: bytes) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (revision, event.encode(), data)


class _Shared:
    """One reading for the streams of a gateway that wake at the same moment.

    A hundred instances of one gateway want the same bytes: they are read and encoded once. A
    reading serves those who came before it began, and for ``FRESH_SECONDS`` after, so that no
    remaining second is off by more than that.
    """

    def __init__(self) -> None:
        self._reading: asyncio.Task[Head] | None = None
        self._head: Head | None = None
        self._at = float("-inf")

    async def read(self, gateway_id: int, gateway: str, beyond: Position | None) -> Head:
        head = self._head
        fresh = time.monotonic() - self._at < FRESH_SECONDS
        if head is not None and fresh and _is_at(head, beyond):
            return head
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read(gateway_id, gateway))
        reading = self._reading
        head = await asyncio.shield(reading)
        # It may have begun before what we wait for was committed.
        return head if _is_at(head, beyond) else await self._read(gateway_id, gateway)

    async def _read(self, gateway_id: int, gateway: str) -> Head:
        async with (await pool()).connection() as conn:
            began = time.monotonic()
            head = await read_head(conn, gateway_id, gateway)
        if began >= self._at:
            self._head, self._at = head, began
        return head


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, _Shared]] = WeakKeyDictionary()


async def latest(gateway_id: int, gateway: str, beyond: Position | None = None) -> Head:
    """A reading that is not older than ``beyond``, nor than ``FRESH_SECONDS``."""
    mine = _shared.setdefault(asyncio.get_running_loop(), {})
    return await mine.setdefault(gateway_id, _Shared()).read(gateway_id, gateway, beyond)


def _is_at(head: Head, beyond: Position | None) -> bool:
    if beyond is None:
        return True
    return head.epoch == beyond.epoch and head.revision >= beyond.revision


@contextlib.asynccontextmanager
async def _following(heads: Heads, ended: asyncio.Event) -> AsyncIterator[Wakeups]:
    """What is woken when the position moves and when the stream is to end: one wait for both."""
    with heads.following() as wakeups:
        end = asyncio.create_task(ended.wait())
        end.add_done_callback(lambda _: wakeups.wake())
        try:
            yield wakeups
        finally:
            end.cancel()


async def _news(
    heads: Heads,
    seen: Position,
    acted: Position,
    wakeups: Wakeups,
    ended: asyncio.Event,
    timeout: float,
) -> Position | None:
    """The position when it is beyond ``seen``; None when the stream is to end or time is up.

    ``acted`` is the one that was acted on last: once is enough, also while the shared position has
    not yet heard of the epoch that this stream has read already.
    """
    until = time.monotonic() + timeout
    while not ended.is_set():
        if heads.at != acted and heads.at.is_beyond(seen):
            return heads.at
        if not await wakeups.wait(until - time.monotonic()):
            return None
    return None
