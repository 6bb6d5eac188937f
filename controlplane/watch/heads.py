"""The position of desired state, read once a second for all streams of this process.

Invariant: the position is (epoch, revision), read from the row that every change locks until it
commits; so whoever acts on a position has missed none before it. A notification only makes the next
reading come sooner.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from controlplane.models.pool import pool
from controlplane.notify import Hub, hub

POLL_SECONDS = 1.0
_READ = "SELECT epoch::text, value FROM revision"

log = logging.getLogger(__name__)


class Position(NamedTuple):
    """Where desired state stands."""

    epoch: str = ""
    revision: int = -1


class Heads:
    """Follows the revision; ``start`` is run by the lifespan."""

    def __init__(self, wake: Hub) -> None:
        self._hub = wake
        self._at = Position()
        self._moved = asyncio.Event()

    async def beyond(self, seen: Position, timeout: float) -> Position:
        """The position once it is beyond ``seen``, or whatever it is after ``timeout`` seconds.

        A reader's own reading may be ahead of this one; that is not a reason to wake it.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self._at.epoch == seen.epoch and self._at.revision <= seen.revision:
                    await self._moved.wait()
        return self._at

    async def start(self) -> Callable[[], Awaitable[None]]:
        """Begin to follow; returns the coroutine function that ends it."""
        self._moved = asyncio.Event()
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
        if at != self._at:
            self._at = at
            moved, self._moved = self._moved, asyncio.Event()
            moved.set()


heads = Heads(hub)
