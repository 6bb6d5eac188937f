"""Retry budgets: how many of the calls sent may be second chances.

Invariant, checked at the moment of each grant: with R retries and F earning firsts in the window,
``R + 1 <= max(min_per_second x W, min(max_per_second x W, ratio x F))``, and fewer than ``burst``
grants lie in the last second. A first earns when it is sent and gives that back when it ends in a
failure that counts against its circuit, so an outage mints nothing; a retry never earns.

Units: seconds on the owner's monotonic clock; ratios in thousandths. The sums are whole thousandths
of a retry: ten times 0.1 in floats is less than one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from math import ceil, inf

SLICES = 20


class Level(StrEnum):
    """Who has to agree to a retry. The first two are the request loop's own counts."""

    REQUEST = "request"
    TASK = "task"
    TENANT = "tenant"
    CIRCUIT = "circuit"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class BudgetPolicy:
    """The numbers of one bucket, written for a whole gateway.

    ``window_seconds`` has to exceed the 99th percentile of a call's duration, or firsts leave the
    window before they are known to have failed. Raises ``ValueError`` naming the field.
    """

    ratio_per_mille: int = 100
    min_per_second: float = 0.1
    max_per_second: float | None = None
    window_seconds: float = 60.0
    burst: int = 20

    def __post_init__(self) -> None:
        for name in ("ratio_per_mille", "min_per_second", "burst"):
            if not 0 <= getattr(self, name) < inf:
                raise ValueError(f"{name} must be 0 or more, got {getattr(self, name)!r}")
        if self.max_per_second is not None and not 0 <= self.max_per_second < inf:
            raise ValueError(f"max_per_second must be 0 or more, got {self.max_per_second!r}")
        if not 0 < self.window_seconds < inf:
            raise ValueError(f"window_seconds must be above 0, got {self.window_seconds!r}")

    def limits(self, instances: int = 1) -> Limits:
        """The share of one of ``instances`` live instances: rounded up, at least 1 unless 0.

        The ratio needs no sharing, since each instance counts its own firsts.
        """
        ceiling = self.max_per_second
        return Limits(
            ratio=self.ratio_per_mille,
            floor=_share(self.min_per_second * self.window_seconds, instances),
            ceiling=None if ceiling is None else _share(ceiling * self.window_seconds, instances),
            burst=ceil(self.burst / instances),
        )


@dataclass(frozen=True, slots=True)
class Limits:
    """A policy resolved for one instance and one window, in thousandths of a retry."""

    ratio: int
    floor: int
    ceiling: int | None
    burst: int

    def allowed(self, firsts: int) -> int:
        """Thousandths of a retry that the window may hold, given its earning firsts."""
        earned = self.ratio * firsts
        if self.ceiling is not None and earned > self.ceiling:
            earned = self.ceiling
        return max(self.floor, earned)


def _share(retries: float, instances: int) -> int:
    if instances > 1:
        # Rounding away the float's own error first: 0.3 x 10 must not become 4.
        return ceil(round(retries / instances, 6)) * 1000
    return round(retries * 1000)


@dataclass(frozen=True, slots=True)
class Balance:
    """One bucket as reported: over the window, ``earned`` in firsts, the rest in retries."""

    balance: int
    earned: int
    spent: int
    refused: int
    window_s: float


class RetryBudget:
    """One bucket. Not locked: ``Budgets`` asks several under one lock."""

    __slots__ = (
        "_firsts",
        "_granted",
        "_limits",
        "_refused",
        "_retries",
        "_slices",
        "_width",
        "policy",
    )

    def __init__(self, policy: BudgetPolicy, instances: int = 1) -> None:
        self._slices: deque[list[int]] = deque()  # [index, firsts, retries, refused]
        self._firsts = self._retries = self._refused = 0
        self._granted: deque[float] = deque()
        self._apply(policy, instances)

    def set_policy(self, policy: BudgetPolicy, instances: int = 1) -> None:
        """Swap the numbers live; what was counted stays, in slices of the new width."""
        old_width, old = self._width, list(self._slices)
        self._apply(policy, instances)
        if self._width == old_width:
            return
        self._slices.clear()
        for index, *counts in old:
            place = int((index + 0.5) * old_width // self._width)
            if not self._slices or self._slices[-1][0] != place:
                self._slices.append([place, 0, 0, 0])
            for column, count in enumerate(counts, start=1):
                self._slices[-1][column] += count

    def earn(self, now: float) -> float:
        """A first was sent. Returns the mark with which it may be given back."""
        self._slice(now)[1] += 1
        self._firsts += 1
        return now

    def give_back(self, mark: float, now: float) -> None:
        """That first ended in a counted failure. Nothing happens once it has left the window."""
        self._slice(now)
        index = int(mark // self._width)
        if index <= self._gone(now):
            return
        older = (held for held in reversed(self._slices) if held[0] <= index)
        # After a change of window it may have been put into a slice near its own.
        for held in chain(older, self._slices):
            if held[1]:
                held[1] -= 1
                self._firsts -= 1
                return

    def allows(self, now: float) -> bool:
        """Would one more retry keep the inequality and the burst limit? Spends nothing."""
        self._slice(now)
        if (self._retries + 1) * 1000 > self._limits.allowed(self._firsts):
            return False
        while self._granted and now - self._granted[0] >= 1.0:
            self._granted.popleft()
        return len(self._granted) < self._limits.burst

    def spend(self, now: float) -> None:
        """Grant one retry; ask ``allows`` first, under the same lock."""
        self._slice(now)[2] += 1
        self._retries += 1
        self._granted.append(now)

    def refund(self, now: float) -> None:
        """A granted retry was not sent after all: another gate was shut, or the caller left.

        Taken from the newest slice that holds one, so that it may leave the window a little late
        but never early. The burst limit does not forget it: grants are what bursts.
        """
        self._slice(now)
        for held in reversed(self._slices):
            if held[2]:
                held[2] -= 1
                self._retries -= 1
                return

    def refuse(self, now: float) -> None:
        """Count a retry that this bucket refused."""
        self._slice(now)[3] += 1
        self._refused += 1

    def balance(self, now: float) -> Balance:
        """The room left in the inequality, and what led to it."""
        self._expire(now)
        room = self._limits.allowed(self._firsts) // 1000 - self._retries
        return Balance(
            balance=max(0, room),
            earned=self._firsts,
            spent=self._retries,
            refused=self._refused,
            window_s=self.policy.window_seconds,
        )

    def idle(self, now: float) -> bool:
        """True when the window is empty: a new bucket would behave the same."""
        self._expire(now)
        return not self._slices

    def _apply(self, policy: BudgetPolicy, instances: int) -> None:
        self.policy = policy
        self._limits = policy.limits(max(1, instances))
        self._width = policy.window_seconds / SLICES

    def _slice(self, now: float) -> list[int]:
        index = int(now // self._width)
        if not self._slices or index > self._slices[-1][0]:
            self._expire(now)
            self._slices.append([index, 0, 0, 0])
        return self._slices[-1]

    def _expire(self, now: float) -> None:
        gone = self._gone(now)
        while self._slices and self._slices[0][0] <= gone:
            _, firsts, retries, refused = self._slices.popleft()
            self._firsts -= firsts
            self._retries -= retries
            self._refused -= refused

    def _gone(self, now: float) -> int:
        """The newest slice that has left the window."""
        return int(now // self._width) - SLICES
