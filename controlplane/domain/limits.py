"""Limits on how fast and how many: requests and tokens a minute, calls at one time (design 4.4).

Invariants: over any 60 seconds no more requests are taken than the limit, nor more tokens than it
as far as they were known when they were taken; a limit is written for a whole gateway, and each of
its live instances has its share, rounded up and at least 1 unless the limit is 0. A call that needs
more tokens than a whole minute has is let through when the minute is unused, or it never could be.

Units: seconds on the owner's monotonic clock; whole tokens, as estimated before and counted after.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from controlplane.domain.gate import Gate, Refusal
from controlplane.domain.sliding import SlidingSum

MINUTE_S = 60.0
ROOM_FOR_PROBES = 16
"""One place in so many is kept for what must not wait behind ordinary calls."""
LOW_SHARE = 0.75
"""Low-priority work is refused above this share of the ordinary places."""


def share(limit: int, instances: int) -> int:
    """One instance's part of a gateway's limit."""
    return -(-limit // max(1, instances))


@dataclass(frozen=True, slots=True)
class RatePolicy:
    """Of a whole gateway; None is no limit, 0 lets nothing through. ``ValueError`` names it."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None

    def __post_init__(self) -> None:
        for name in ("requests_per_minute", "tokens_per_minute"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name} must be 0 or more, got {value!r}")

    def __and__(self, other: RatePolicy) -> RatePolicy:
        """Both policies at once: the lower of each limit."""
        return RatePolicy(
            _lower(self.requests_per_minute, other.requests_per_minute),
            _lower(self.tokens_per_minute, other.tokens_per_minute),
        )

    @property
    def limits(self) -> bool:
        """True when there is anything to keep."""
        return self.requests_per_minute is not None or self.tokens_per_minute is not None


def _lower(one: int | None, other: int | None) -> int | None:
    return min((limit for limit in (one, other) if limit is not None), default=None)


class Taken(NamedTuple):
    """What one call has taken: the marks of its request and its tokens, and how many tokens."""

    request: int
    tokens_mark: int
    tokens: int


class RateLimit:
    """The last minute of one key or circuit in one instance. Not locked."""

    __slots__ = ("_requests", "_requests_most", "_tokens", "_tokens_most")

    def __init__(self, policy: RatePolicy, instances: int = 1) -> None:
        self._requests = SlidingSum(MINUTE_S, 0)
        self._tokens = SlidingSum(MINUTE_S, 0)
        self.set_policy(policy, instances)

    def set_policy(self, policy: RatePolicy, instances: int) -> None:
        """Other numbers, or another count of live instances; the last minute is kept."""
        requests, tokens = policy.requests_per_minute, policy.tokens_per_minute
        self._requests_most = None if requests is None else share(requests, instances)
        self._tokens_most = None if tokens is None else share(tokens, instances)

    def refusal(self, tokens: int, now: float) -> Refusal | None:
        """Why a call of so many tokens may not go now, and when it may; takes nothing."""
        if (most := self._requests_most) is not None:
            at = self._requests.fits_at(most - 1, now) if most else None
            if at is None or at > now:
                return Refusal(Gate.RATE, "requests_per_minute", at)
        if (most := self._tokens_most) is not None:
            at = self._tokens.fits_at(max(0, most - tokens), now) if most else None
            if at is None or at > now:
                return Refusal(Gate.RATE, "tokens_per_minute", at)
        return None

    def take(self, tokens: int, now: float) -> Taken:
        """Count a call that goes."""
        return Taken(self._requests.add(1, now), self._tokens.add(tokens, now), tokens)

    def settle(self, taken: Taken, tokens: int, now: float) -> None:
        """The call used so many tokens."""
        self._tokens.correct(taken.tokens_mark, tokens - taken.tokens, now)

    def give_back(self, taken: Taken, now: float) -> None:
        """The call was not made after all."""
        self._requests.correct(taken.request, -1, now)
        self._tokens.correct(taken.tokens_mark, -taken.tokens, now)


@dataclass(frozen=True, slots=True)
class Concurrency:
    """Calls at one time to one dependency. ``reserved`` places are never taken by ordinary calls.

    They are for probes of a half-open breaker: without them a provider that hangs fills every
    place with calls that wait, and nobody can find out that it has come back. ``low``: so many
    places may be in use before work of low priority is refused, so that it goes first when it gets
    tight; None: as ordinary calls.
    """

    most: int
    reserved: int
    low: int | None = None

    def admits(self, in_flight: int, *, urgent: bool, low: bool = False) -> bool:
        """True when one more call has a place beside so many."""
        if low and self.low is not None:
            return in_flight < self.low
        return in_flight < (self.most if urgent else self.most - self.reserved)


def concurrency(most: int) -> Concurrency:
    """A limit with the usual room: a sixteenth, at least 1, none where there is only one place."""
    reserved = max(1, most // ROOM_FOR_PROBES) if most > 1 else 0
    ordinary = most - reserved
    return Concurrency(most, reserved, max(min(1, ordinary), int(ordinary * LOW_SHARE)))
