"""Room for bytes: how much of what callers send may be in memory at once.

Invariant: what is taken never exceeds the size, and whoever waits is let in in the order of coming,
so that a large body is not passed by small ones for ever.
"""

from __future__ import annotations

import asyncio
from collections import deque

from controlplane.errors import Busy


class Taken:
    """Bytes of a room that are held for the length of an ``async with``.

    A class and no generator, which costs three times as much: small batches enter three rooms each.
    """

    __slots__ = ("_room", "_size", "_wait_s")

    def __init__(self, room: Room, size: int, wait_s: float) -> None:
        self._room, self._size, self._wait_s = room, size, wait_s

    async def __aenter__(self) -> None:
        await self._room.take(self._size, self._wait_s)

    async def __aexit__(self, *_: object) -> None:
        self._room.give_back(self._size)


class Room:
    """A weighted semaphore of one event loop. Sizes are bytes."""

    def __init__(self, size: int) -> None:
        self._size = self._free = size
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def taken(self, size: int, *, wait_s: float) -> Taken:
        """Hold ``size`` bytes, at most all; ``Busy`` if they do not come free in time."""
        return Taken(self, size, wait_s)

    async def take(self, size: int, wait_s: float) -> None:
        """Take ``size`` bytes, at most all; give them back as they were asked for."""
        size = min(size, self._size)
        if self._waiting or size > self._free:
            await self._wait(size, wait_s)
        else:
            self._free -= size

    def give_back(self, size: int) -> None:
        """Give back what was taken, to whoever waits."""
        self._free += min(size, self._size)
        if self._waiting:
            self._let_in()

    async def _wait(self, size: int, wait_s: float) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            async with asyncio.timeout(wait_s):
                await turn
        except (TimeoutError, asyncio.CancelledError) as error:
            if turn.done() and not turn.cancelled():
                # Let in at the very moment of giving up: what was taken is given back.
                self._free += size
            self._waiting = deque(w for w in self._waiting if w[1] is not turn)
            self._let_in()
            if isinstance(error, TimeoutError):
                raise Busy("The ingest queue is full; send it again.", retry_after_s=2) from error
            raise

    def _let_in(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._free:
            size, turn = self._waiting.popleft()
            if not turn.done():
                self._free -= size
                turn.set_result(None)
