"""A sum over the last so many seconds, of calls, tokens or pounds.

Invariant: what was added counts for at least the whole window and at most one slice longer, so a
limit on the sum holds over every window of that length. Amounts are exact (whole numbers or
decimals); time is monotonic seconds.
"""

from __future__ import annotations

from decimal import Decimal
from math import inf
from typing import Generic, TypeVar

Amount = TypeVar("Amount", int, Decimal)


class SlidingSum(Generic[Amount]):
    """Slices of the window, each with its own sum, oldest first. Not locked."""

    __slots__ = ("_held", "_slices", "_total", "_width", "_zero")

    def __init__(self, window_s: float, zero: Amount, slices: int = 60) -> None:
        if not 0 < window_s < inf:
            raise ValueError(f"window_s must be above 0, got {window_s!r}")
        self._width = window_s / slices
        self._slices = slices
        self._zero: Amount = zero
        self._held: dict[int, Amount] = {}
        self._total: Amount = zero

    def total(self, now: float) -> Amount:
        """The sum of what still counts."""
        oldest = int(now // self._width) - self._slices
        while self._held and (first := next(iter(self._held))) < oldest:
            self._total -= self._held.pop(first)
        return self._total

    def add(self, amount: Amount, now: float) -> int:
        """Count an amount; returns the mark under which it may be corrected."""
        self.total(now)
        mark = int(now // self._width)
        if self._held:
            mark = max(mark, next(reversed(self._held)))
        self._held[mark] = self._held.get(mark, self._zero) + amount
        self._total += amount
        return mark

    def correct(self, mark: int, by: Amount, now: float) -> None:
        """Change what was added under ``mark``, if that still counts."""
        self.total(now)
        if mark in self._held:
            self._held[mark] += by
            self._total += by

    def fits_at(self, most: Amount, now: float) -> float | None:
        """When the sum will have fallen to ``most`` by itself; None if it never does."""
        left = self.total(now)
        if left <= most:
            return now
        for mark, amount in self._held.items():
            left -= amount
            if left <= most:
                return (mark + self._slices + 1) * self._width
        return None
