"""When an attempt has had its time: one timer of the event loop for all attempts of a worker.

Invariants: a limit never ends an attempt before its time, and ends it with ``TimeoutError`` only if
nobody else cancelled the task; what is over is forgotten, so memory is bounded by the attempts in
flight. Seconds of the loop's clock.

A timer of its own for each limit (``asyncio.timeout``) was measured at 8 us on uvloop, and a stream
needs three; a place in a heap at 1 us warm and 11 of a busy worker's 240 us a request. Here a limit
is a member of a set: only the soonest moment that was ever asked for is on the timer, and when that
comes, all that run are looked at. As nearly every attempt has the same time, that is once in such a
time and not once for each.
"""

from __future__ import annotations

import asyncio
from math import inf
from types import TracebackType
from typing import Any


class TimeLimits:
    """The limits in force. Used from the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.in_force: set[TimeLimit] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = inf

    @property
    def running(self) -> int:
        """Limits in force."""
        return len(self.in_force)

    def within(self, seconds: float) -> TimeLimit:
        """A context in which at most so many seconds may pass."""
        return TimeLimit(self, self.loop.time() + seconds)

    def look_at(self, when: float) -> None:
        """Look at what runs at that time, if not before."""
        if when < self._wakes_at:
            if self._timer is not None:
                self._timer.cancel()
            self._wakes_at = when
            self._timer = self.loop.call_at(when, self._look)

    def _look(self) -> None:
        self._timer, self._wakes_at = None, inf
        now = self.loop.time()
        dues = (limit.due(now) for limit in self.in_force)
        soonest = min((due for due in dues if due is not None), default=inf)
        if soonest < inf:
            self.look_at(soonest)


class TimeLimit:
    """One attempt's limit: a moment, and in a stream also the longest silence of the provider."""

    __slots__ = ("_cancelling", "_idle_s", "_last", "_limits", "_struck", "_task", "_until",
                 "reading")  # fmt: skip

    def __init__(self, limits: TimeLimits, until: float) -> None:
        self._limits = limits
        self._until = until
        self._idle_s = inf
        self._last = 0.0
        self.reading = True
        """False while the client is waited for: the silence is then not the provider's."""
        self._struck = False

    def __enter__(self) -> TimeLimit:
        limits = self._limits
        task = asyncio.current_task()
        assert task is not None
        self._task: asyncio.Task[Any] = task
        self._cancelling = task.cancelling()
        limits.in_force.add(self)
        limits.look_at(self._until)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._limits.in_force.remove(self)
        if not self._struck:
            return
        alone = self._task.uncancel() <= self._cancelling
        if alone and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def move(self, seconds: float, idle_s: float) -> None:
        """From now so many seconds are left, and at most ``idle_s`` without a ``touch``."""
        self._last = self._limits.loop.time()
        self._until, self._idle_s = self._last + seconds, idle_s
        self._limits.look_at(min(self._until, self._last + idle_s))

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
