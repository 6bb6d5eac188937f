"""The position of desired state, read once a second for all streams of this process.

Invariant: the position is (epoch, revision), read from the row that every change locks until it
commits; so whoever acts on a position has missed none before it. A notification only makes the next
reading come sooner.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple

from controlplane.models.pool import pool
from controlplane.notify import Hub, Wakeups, hub

POLL_SECONDS = 1.0
_READ = "SELECT epoch::text, value FROM revision"

log = logging.getLogger(__name__)


class Position(NamedTuple):
    """Where desired state stands."""

    epoch: str = ""
    revision: int = -1

    def is_beyond(self, seen: Position) -> bool:
        """True when whoever has seen ``seen`` has something to read; never of the empty one."""
        return bool(self.epoch) and (self.epoch != seen.epoch or self.revision > seen.revision)


class Heads:
    """Follows the revision; ``start`` is run by the lifespan."""

    def __init__(self, wake: Hub) -> None:
        self._hub = wake
        self._followers: set[Wakeups] = set()
        self.at = Position()

    @contextlib.contextmanager
    def following(self) -> Iterator[Wakeups]:
        """What is woken whenever the position moves; then look at ``at``.

        A reader's own reading may be ahead of it: the move is then nothing new to that reader.
        """
        wakeups = Wakeups()
        self._followers.add(wakeups)
        try:
            yield wakeups
        finally:
            self._followers.discard(wakeups)

    async def start(self) -> Callable[[], Awaitable[None]]:
        """Begin to follow; returns the coroutine function that ends it."""
        task = asyncio.create_task(self._follow())

        async def stop() -> None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

        return stop

    async def _follow(self) -> None:
        async with self._hub.subscribe("desired") as wakeups:
            while True:
                try:
                    async with (await pool()).connection() as conn:
                        row = await (await conn.execute(_READ)).fetchone()
                except Exception as error:
                    log.warning("the revision was not read (streams wait): %s", error)
                    row = None
                if row is not None:
                    self._move(Position(*row))
                await wakeups.wait(POLL_SECONDS)

    def _move(self, at: Position) -> None:
        if at != self.at:
            self.at = at
            for wakeups in self._followers:
                wakeups.wake()


heads = Heads(hub)
