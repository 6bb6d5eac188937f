"""A clock that only a test moves."""

import asyncio
import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count

START = datetime(2026, 11, 30, 3, 10, tzinfo=UTC)


class FakeClock:
    """``gateway.clock.Clock`` for tests: `step` moves it, `advance` also wakes who sleeps."""

    def __init__(self, wall: datetime = START) -> None:
        self._wall = wall
        self._now = 1000.0
        self._order = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self.asked: list[float] = []
        """Every sleep that was asked for, in order."""

    def monotonic(self) -> float:
        return self._now

    def wall(self) -> datetime:
        return self._wall

    async def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), done))
        await done

    async def first(self, event: asyncio.Event, seconds: float) -> bool:
        if event.is_set():
            return True
        waits = {asyncio.ensure_future(event.wait()), asyncio.ensure_future(self.sleep(seconds))}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
        return event.is_set()

    def step(self, seconds: float) -> None:
        """Move both clocks; nobody is woken."""
        self._now += seconds
        self._wall += timedelta(seconds=seconds)

    def step_wall(self, seconds: float) -> None:
        """Move the time of day alone, as an administrator or NTP does."""
        self._wall += timedelta(seconds=seconds)

    @property
    def next_wake(self) -> float | None:
        """Seconds until the first sleeper wakes."""
        self._sleepers = [held for held in self._sleepers if not held[2].done()]
        heapq.heapify(self._sleepers)
        return self._sleepers[0][0] - self._now if self._sleepers else None

    async def advance(self, seconds: float) -> None:
        """Move both clocks, waking sleepers in the order of their times."""
        end = self._now + seconds
        await _settle()
        while (wake := self.next_wake) is not None and self._now + wake <= end + 1e-9:
            self.step(max(0.0, wake))
            _, _, done = heapq.heappop(self._sleepers)
            done.set_result(None)
            await _settle()
        self.step(max(0.0, end - self._now))

    async def advance_until(self, condition: Callable[[], object], timeout: float = 10.0) -> None:
        """Let time pass, with real sockets answering in between, until the condition holds."""
        async with asyncio.timeout(timeout):
            while not condition():
                await self.advance(0.25)
                await asyncio.sleep(0.002)


async def _settle() -> None:
    """Let what was woken run until it waits again."""
    for _ in range(5):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object], timeout: float = 10.0) -> None:
    """Wait, in real time, for what real sockets and threads bring about."""
    async with asyncio.timeout(timeout):
        while not condition():  # noqa: ASYNC110 - sockets and threads set no event of ours
            await asyncio.sleep(0.002)
