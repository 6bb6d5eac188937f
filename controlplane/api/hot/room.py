"""Room for bytes: how much of what callers send may be in memory at once.

Invariant: what is taken never exceeds the size, and whoever waits is let in in the order of coming,
so that a large body is not passed by small ones for ever.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from controlplane.errors import Busy


class Room:
    """A weighted semaphore of one event loop. Sizes are bytes."""

    def __init__(self, size: int) -> None:
        self._size = self._free = size
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def taken(self, size: int, *, wait_s: float) -> AsyncIterator[None]:
        """Hold ``size`` bytes, at most all; ``Busy`` if they do not come free in time."""
        size = min(size, self._size)
        if self._waiting or size > self._free:
            await self._wait(size, wait_s)
        else:
            self._free -= size
        try:
            yield
        finally:
            self._free += size
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
