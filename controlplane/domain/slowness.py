"""When a circuit is slow, judged by its own policy's word for a slow call.

Invariant: never on a handful of calls, and only of minutes that are finished: an attempt belongs
to the minute in which it was begun, so of a minute that still runs only the quick ones have ended.
Pure; times are whole milliseconds, shares parts of 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controlplane.domain.histogram import MOST_MS, bucket_of, quantile

SAMPLE = 20
"""Calls that ended, at least; with fewer nothing is said."""
TAIL = 0.05
"""Without a rule that opens it: the part of the calls from which it is slow, so p95 is slow."""
OF_WHAT_TRIPS = 0.5
"""With one: this part of the share of slow calls that opens it."""


@dataclass(frozen=True, slots=True)
class SlowRule:
    """From which duration a call is slow, and which share of slow calls opens (None: none does)."""

    call_seconds: float
    trips_at: float | None = None

    @property
    def call_ms(self) -> int:
        """The duration as histograms have it."""
        return min(max(round(self.call_seconds * 1000), 0), MOST_MS)

    @property
    def share(self) -> float:
        """The share of slow calls from which a circuit counts as slow."""
        return TAIL if self.trips_at is None else self.trips_at * OF_WHAT_TRIPS


@dataclass(frozen=True, slots=True)
class Slowness:
    """How slow: of ``calls`` the ``share`` took ``call_ms`` or longer; ``p95_ms`` where known."""

    calls: int
    share: float
    call_ms: int
    p95_ms: int | None


def slowness(calls: int, tail: Mapping[int, int], rule: SlowRule) -> Slowness | None:
    """None unless it is slow. ``tail``: counts by bucket, whole from some bucket on upwards.

    The bucket in which a call becomes slow counts whole, so that a call that was given up at
    exactly that duration does; it is at most 4 % wide.
    """
    if calls < SAMPLE:
        return None
    first = bucket_of(rule.call_ms)
    share = sum(count for bucket, count in tail.items() if bucket >= first) / calls
    if share < rule.share:
        return None
    return Slowness(calls, share, rule.call_ms, _p95(calls, tail))


def _p95(calls: int, tail: Mapping[int, int]) -> int | None:
    """Nearest rank, where the tail reaches down to it."""
    quicker = calls - sum(tail.values())
    if quicker >= -(-calls * 95 // 100):
        return None
    # What is quicker than the tail only has to stand before it.
    return quantile({-1: quicker, **tail}, 0.95)
