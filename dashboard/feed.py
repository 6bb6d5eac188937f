"""One reader of the wall in each web process; every socket looks at what it composed last.

Invariant: reads never overlap, come at most four times a second and, while anybody looks, at least
once a second; nobody looking means no reading. A read that fails leaves the last board in place
with its time, and is tried again, so that a viewer sees it age and never sees it blank; that it
failed, or that it hangs after Postgres was lost, is said at once (``lost``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from time import monotonic

from controlplane.notify import Wakeups, hub
from controlplane.reports import wall
from controlplane.reports.wall_rows import Trail, Wall
from dashboard import frames
from dashboard.board import Board, compose

APART_SECONDS = 0.25
POLL_SECONDS = 1.0
# At most one part in so many of the time goes to composing, which is this process's own work, and
# to reading, which is Postgres's; the trail moves by the minute and is read apart, more seldom.
COMPOSE_SHARE, READ_SHARE, TRAIL_SHARE = 4, 2, 8
TRAIL_SECONDS = 2.0
# How long a read may run once LISTEN is lost, and at any time, before the data counts as lost. The
# pool tries for 5 s to find a connection; on a busy machine a healthy read has taken a second.
LOST_SECONDS = 0.5
HANGS_SECONDS = 4.0

log = logging.getLogger(__name__)


class Feed:
    """The newest board, and a wake-up for each viewer when there is a newer one."""

    def __init__(self, read: Callable[[], Coroutine[None, None, Wall]] | None = None) -> None:
        self.board: Board | None = None
        self._read = read or self._read_wall
        self._viewers: set[asyncio.Event] = set()
        self._task: asyncio.Task[None] | None = None
        self._trail = _Trail()
        self._texts = frames.Shared()
        self._failed = False
        self._reading_since: float | None = None

    @property
    def lost(self) -> bool:
        """True when the newest reading failed, or hangs: the board is not the present any more."""
        if self._failed or self._reading_since is None:
            return self._failed
        patience = HANGS_SECONDS if hub.listening else LOST_SECONDS
        return monotonic() - self._reading_since > patience

    @contextlib.asynccontextmanager
    async def viewer(self) -> AsyncIterator[asyncio.Event]:
        """An event that is set whenever a read has ended. The first viewer starts reading."""
        event = asyncio.Event()
        self._viewers.add(event)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            yield event
        finally:
            self._viewers.discard(event)
            if not self._viewers and self._task is not None:
                self._task.cancel()
                self._task = None
                self._trail.stop()

    def frame(self, sent: Board | None) -> str | None:
        """The newest board as text for who was sent that one before; None: it shows no change."""
        assert self.board is not None
        return self._texts.frame(sent, self.board)

    async def _run(self) -> None:
        async with hub.subscribe("observed") as observed, hub.subscribe("desired") as desired:
            while True:
                began = read = self._reading_since = monotonic()
                try:
                    found = await self._read()
                    read = monotonic()
                    # In a thread: composing 200 circuits of 20 instances takes some 50 ms, and the
                    # loop carries everybody's sockets and watches meanwhile.
                    self.board = await asyncio.to_thread(compose, found, self.board)
                except Exception as error:
                    log.warning("the wall was not read (tried again): %s", error)
                    self._failed = True
                else:
                    self._failed = False
                self._reading_since = None
                for event in self._viewers:
                    event.set()
                now = monotonic()
                whole = max(APART_SECONDS, (now - read) * COMPOSE_SHARE, (now - began) * READ_SHARE)
                await asyncio.sleep(whole - (now - began))
                await _either(observed, desired)

    async def _read_wall(self) -> Wall:
        return Wall(await wall.read_now(), await self._trail.newest())


class _Trail:
    """The last quarter of an hour, read beside the present: no change waits for it but the first.

    Its read takes ten times the present's (200 circuits of 20 gateways: 64,000 rows of minutes).
    One that failed fails the next ``newest``, so that rates do not stand still unseen.
    """

    def __init__(self) -> None:
        self._held: Trail | None = None
        self._task: asyncio.Task[Trail] | None = None
        self._due = 0.0

    async def newest(self) -> Trail:
        """The newest that has been read; starts the next reading when it is due."""
        if self._task is not None and self._task.done():
            task, self._task = self._task, None
            self._held = task.result()
        if self._task is None and monotonic() >= self._due:
            self._task = asyncio.create_task(self._read())
        if self._held is None:
            assert self._task is not None
            task, self._task = self._task, None
            self._held = await task
        return self._held

    async def _read(self) -> Trail:
        began = monotonic()
        self._due = began + TRAIL_SECONDS
        found = await wall.read_trail()
        ended = monotonic()
        self._due = began + max(TRAIL_SECONDS, (ended - began) * TRAIL_SHARE)
        return found

    def stop(self) -> None:
        """Nobody looks: what comes next is read anew."""
        if self._task is not None:
            self._task.cancel()
        self._held, self._task, self._due = None, None, 0.0


async def _either(first: Wakeups, second: Wakeups) -> None:
    """Until one of the two wakes, or the poll is due."""
    waits = [asyncio.create_task(one.wait(POLL_SECONDS)) for one in (first, second)]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


_feeds: dict[int, Feed] = {}


def feed() -> Feed:
    """The feed of the running loop: one in a web process."""
    key = id(asyncio.get_running_loop())
    if key not in _feeds:
        _feeds.clear()  # another loop's feed belongs to a loop that has ended
        _feeds[key] = Feed()
    return _feeds[key]


def newest(within: timedelta) -> Board | None:
    """What this process's feed has composed within that time; None: nobody looks at a live page."""
    boards = [one.board for one in list(_feeds.values()) if one.board is not None and not one.lost]
    since = datetime.now(UTC) - within
    return next((board for board in boards if board.at >= since), None)
