"""Counts of calls, failures and slow calls over the last n calls or the last t seconds.

Invariant: the three totals always equal the sum of what is held. Adding is O(1): the totals are
kept, never summed again, because a breaker adds on every call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TypeAlias

SLICES = 20

Row: TypeAlias = tuple[float, int, int, int]
"""(when, calls, failures, slow calls)."""


class CallWindow:
    """The last ``size`` calls."""

    __slots__ = ("_calls", "_size", "calls", "failures", "slow")

    def __init__(self, size: int) -> None:
        self._size = size
        self._calls: deque[tuple[float, bool, bool]] = deque()
        self.calls = self.failures = self.slow = 0

    def add(self, now: float, failed: bool, slow: bool) -> None:
        """Count one call; the oldest makes room."""
        if self.calls == self._size:
            _, old_failed, old_slow = self._calls.popleft()
            self.failures -= old_failed
            self.slow -= old_slow
        else:
            self.calls += 1
        self._calls.append((now, failed, slow))
        self.failures += failed
        self.slow += slow

    def expire(self, now: float) -> None:
        """A window of calls does not age."""

    def rows(self) -> Iterable[Row]:
        """One row for each call."""
        return [(at, 1, int(failed), int(slow)) for at, failed, slow in self._calls]

    def load(self, rows: Iterable[Row], now: float) -> None:
        """Replay other rows call by call; within a row failures are taken to be the newest."""
        for at, calls, failures, slow in rows:
            for place in range(calls):
                left = calls - place
                self.add(at, left <= failures, left <= slow)


class TimeWindow:
    """The last ``seconds``, in 20 slices: what it covers is exact to one slice."""

    __slots__ = ("_newest", "_slice_ends", "_slices", "_width", "calls", "failures", "slow")

    def __init__(self, seconds: float) -> None:
        self._width = seconds / SLICES
        self._slices: deque[list[int]] = deque()
        self._newest: list[int] = []
        self._slice_ends = float("-inf")
        self.calls = self.failures = self.slow = 0

    def add(self, now: float, failed: bool, slow: bool) -> None:
        """Count one call in the current slice."""
        # A thread that took its time before another one's counts in the newest slice.
        if now >= self._slice_ends:
            self._begin_slice(now)
            self.expire(now)
        newest = self._newest
        newest[1] += 1
        self.calls += 1
        if failed:
            newest[2] += 1
            self.failures += 1
        if slow:
            newest[3] += 1
            self.slow += 1

    def expire(self, now: float) -> None:
        """Drop the slices that have left the window."""
        oldest = int(now // self._width) - SLICES
        while self._slices and self._slices[0][0] <= oldest:
            _, calls, failures, slow = self._slices.popleft()
            self.calls -= calls
            self.failures -= failures
            self.slow -= slow
        if not self._slices:
            self._slice_ends = float("-inf")

    def rows(self) -> Iterable[Row]:
        """One row for each slice, dated at the slice's middle."""
        return [((i + 0.5) * self._width, calls, f, s) for i, calls, f, s in self._slices]

    def load(self, rows: Iterable[Row], now: float) -> None:
        """Put other rows into the slices of their own time."""
        for at, calls, failures, slow in rows:
            if min(at, now) >= self._slice_ends:
                self._begin_slice(min(at, now))
            newest = self._newest
            newest[1] += calls
            newest[2] += failures
            newest[3] += slow
            self.calls += calls
            self.failures += failures
            self.slow += slow
        self.expire(now)

    def _begin_slice(self, now: float) -> None:
        index = int(now // self._width)
        self._newest = [index, 0, 0, 0]
        self._slices.append(self._newest)
        self._slice_ends = (index + 1) * self._width
