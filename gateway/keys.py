"""Which key of a provider the next call uses, and which of them rest (design 4.8).

Invariant: a fault of a key never says anything about the circuit; it rests that key alone, and a
rest only ever gets longer. Times are monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import NamedTuple

from controlplane.domain.gate import Gate, Refusal
from controlplane.domain.limits import RateLimit
from controlplane.domain.rest import Rest
from controlplane.domain.verdict import Scope, Verdict
from gateway.config import Key, Provider

FAULT_REST_S = 60.0
"""Rest of a key without quota or permission when the provider names no time: one call a minute is
what it costs to notice that the account was topped up."""

LOAD_REASON = "rate_limited"
"""The one key fault that is evidence of load. It rests a key only where another can take over:
resting a provider's only key would hide the overload from its breaker."""


class KeysStatus(NamedTuple):
    """What a circuit's card says about its provider's keys."""

    ready: int
    total: int
    note: str


class _Held:
    __slots__ = ("key", "rate", "rest")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.rest = Rest()
        self.rate = RateLimit(key.rate) if key.rate.limits else None


class Keys:
    """Every provider's keys in the order of the file. Used from the loop's thread."""

    def __init__(self, providers: tuple[Provider, ...]) -> None:
        self._held = {p.name: tuple(_Held(key) for key in p.keys) for p in providers}

    def choose(
        self, provider: str, now: float, tokens: Callable[[], int] = lambda: 0
    ) -> Key | Refusal | None:
        """The first key that does not rest and whose minute has room for so many ``tokens``.

        None for a provider that needs no key; else the refusal of the key that is ready soonest.
        """
        held = self._held.get(provider, ())
        soonest: Refusal | None = None
        for one in held:
            if one.rest.until > now:
                refusal: Refusal | None = Refusal(Gate.KEY, one.rest.reason, one.rest.until)
            else:
                refusal = None if one.rate is None else one.rate.refusal(tokens(), now)
            if refusal is None:
                return one.key
            if soonest is None or _when(refusal) < _when(soonest):
                soonest = refusal
        return soonest

    def rate(self, provider: str, name: str) -> RateLimit | None:
        """What counts the minute of a key, if the file limits it."""
        held = self._held.get(provider, ())
        return next((one.rate for one in held if one.key.name == name), None)

    def share(self, instances: int) -> None:
        """So many live instances share the limits of every key."""
        for held in self._held.values():
            for one in held:
                if one.rate is not None:
                    one.rate.set_policy(one.key.rate, instances)

    def rest(self, provider: str, name: str, verdict: Verdict, now: float) -> bool:
        """Rest the key that a verdict of scope ``key`` is about.

        True when another key of the provider is ready, so that the same target may be tried at
        once.
        """
        held = self._held.get(provider, ())
        other = any(one.key.name != name and one.rest.until <= now for one in held)
        if verdict.scope is Scope.KEY and (other or verdict.reason != LOAD_REASON):
            seconds = verdict.retry_after_s
            self._extend(held, name, FAULT_REST_S if seconds is None else seconds, verdict, now)
        return other

    def pace(self, provider: str, name: str, rest_s: float, now: float) -> None:
        """A good answer said that this key's allowance is used up for ``rest_s`` seconds."""
        for one in self._held.get(provider, ()):
            if one.key.name == name and rest_s > 0:
                one.rest.extend(now, rest_s, "paced")

    def status(self, provider: str, now: float) -> KeysStatus | None:
        """Ready and total keys, and why the soonest of the resting ones rests."""
        held = self._held.get(provider, ())
        if not held:
            return None
        resting = [one for one in held if one.rest.until > now]
        note = min(resting, key=lambda one: one.rest.until).rest.reason if resting else ""
        return KeysStatus(len(held) - len(resting), len(held), note[:200])

    def _extend(
        self, held: tuple[_Held, ...], name: str, seconds: float, verdict: Verdict, now: float
    ) -> None:
        for one in held:
            if one.key.name == name:
                one.rest.extend(now, seconds, verdict.reason)


def _when(refusal: Refusal) -> float:
    return inf if refusal.retry_at is None else refusal.retry_at
