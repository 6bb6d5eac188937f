"""When an attempt has had its time: one timer of the event loop for all attempts of a worker.

Invariants: a limit never ends an attempt before its time, and ends it with ``TimeoutError`` only if
nobody else cancelled the task; what is over is forgotten, so memory is bounded by the attempts in
flight. Seconds of the loop's clock.

A timer of its own for each limit (``asyncio.timeout``) was measured at 8 us on uvloop, and a stream
needs three; a place in a heap costs 1 us.
"""

from __future__ import annotations

import asyncio
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from types import TracebackType
from typing import Any

_SPARE = 64


class TimeLimits:
    """The limits in force, soonest first. Used from the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.running = 0
        self._heap: list[tuple[float, int, TimeLimit]] = []
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = inf

    @property
    def waiting(self) -> int:
        """Places in the heap, those of limits that are over included."""
        return len(self._heap)

    def within(self, seconds: float) -> TimeLimit:
        """A context in which at most so many seconds may pass."""
        return TimeLimit(self, self.loop.time() + seconds)

    def look_at(self, limit: TimeLimit, when: float) -> None:
        """Look at a limit again at that time."""
        heappush(self._heap, (when, next(self._numbers), limit))
        if len(self._heap) > 4 * self.running + _SPARE:
            # Most ended long before their time and are still in here.
            self._heap = [entry for entry in self._heap if entry[2].running]
            heapify(self._heap)
        if when < self._wakes_at:
            self._wake_at(when)

    def _wake_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._wakes_at = when
        self._timer = self.loop.call_at(when, self._look)

    def _look(self) -> None:
        self._timer, self._wakes_at = None, inf
        now, heap = self.loop.time(), self._heap
        while heap and heap[0][0] <= now:
            limit = heappop(heap)[2]
            if limit.running and (due := limit.due(now)) is not None:
                heappush(heap, (due, next(self._numbers), limit))
        if heap:
            self._wake_at(heap[0][0])


class TimeLimit:
    """One attempt's limit: a moment, and in a stream also the longest silence of the provider."""

    __slots__ = ("_cancelling", "_idle_s", "_last", "_limits", "_struck", "_task", "_until",
                 "reading", "running")  # fmt: skip

    def __init__(self, limits: TimeLimits, until: float) -> None:
        self._limits = limits
        self._until = until
        self._idle_s = inf
        self._last = 0.0
        self.reading = True
        """False while the client is waited for: the silence is then not the provider's."""
        self.running = False
        self._struck = False

    def __enter__(self) -> TimeLimit:
        task = asyncio.current_task()
        assert task is not None
        self._task: asyncio.Task[Any] = task
        self._cancelling = task.cancelling()
        self.running = True
        self._limits.running += 1
        self._limits.look_at(self, self._until)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.running = False
        self._limits.running -= 1
        if not self._struck:
            return
        alone = self._task.uncancel() <= self._cancelling
        if alone and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def move(self, seconds: float, idle_s: float) -> None:
        """From now so many seconds are left, and at most ``idle_s`` without a ``touch``."""
        self._last = self._limits.loop.time()
        self._until, self._idle_s = self._last + seconds, idle_s
        self._limits.look_at(self, min(self._until, self._last + idle_s))

    def touch(self) -> None:
        """The provider sent something."""
        self._last = self._limits.loop.time()

    def due(self, now: float) -> float | None:
        """When to look again; None when the time is over, and then the task has been told."""
        silent_until = (self._last if self.reading else now) + self._idle_s
        when = min(self._until, silent_until)
        if when > now:
            return when
        if not self._struck:
            self._struck = True
            self._task.cancel()
        return None
