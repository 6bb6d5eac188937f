"""Which breaker policy is in force for which circuit (design 4.5).

Invariant: the first policy of the list that matches a circuit is its policy; without one it has the
wire's defaults, so that a gateway without a control plane behaves as documented. New numbers keep
what the breaker has counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from controlplane.domain.breaker import BreakerPolicy
from controlplane.domain.circuit import Circuit
from controlplane.domain.limits import RateLimit, RatePolicy
from controlplane.domain.matching import matches
from controlplane.wire.desired import Breaker, PolicyItem
from gateway.circuits import Circuits, Entry
from gateway.config import UNLIMITED
from gateway.thresholds import breaker_policy


class Policies:
    """The list in force. ``own_rate``: what the file lets a circuit have."""

    def __init__(self, own_rate: Callable[[Circuit], RatePolicy]) -> None:
        self._items: tuple[tuple[PolicyItem, BreakerPolicy, RatePolicy], ...] = ()
        self._default = breaker_policy(Breaker())
        self._own_rate = own_rate
        self.instances = 1
        """Live instances of this gateway, which share its limits. Then ``put`` every circuit."""

    def replace(self, items: Iterable[tuple[PolicyItem, BreakerPolicy, RatePolicy]]) -> None:
        """Another list, in order of precedence."""
        self._items = tuple(items)

    def add(self, circuits: Circuits, circuit: Circuit, now: float) -> Entry:
        """Begin to track a circuit under its policy."""
        policy, rate, rate_limits_count = self._of(circuit)
        entry = circuits.add(circuit, policy, now)
        entry.rate_limits_count = rate_limits_count
        self._limit(entry, rate)
        return entry

    def put(self, entry: Entry, now: float) -> None:
        """Put a circuit's policy in force, if it is another than before."""
        policy, rate, entry.rate_limits_count = self._of(entry.circuit)
        self._limit(entry, rate)
        if policy != entry.policy:
            entry.policy = policy
            entry.breaker.set_policy(policy, now)

    def _limit(self, entry: Entry, rate: RatePolicy) -> None:
        rate &= self._own_rate(entry.circuit)
        if not rate.limits:
            entry.rate = None
        elif entry.rate is None:
            entry.rate = RateLimit(rate, self.instances)
        else:
            entry.rate.set_policy(rate, self.instances)

    def _of(self, circuit: Circuit) -> tuple[BreakerPolicy, RatePolicy, bool]:
        for item, policy, rate in self._items:
            match = item.match
            if matches(match.provider, match.model, match.region, circuit):
                return policy, rate, item.breaker.rate_limits_count
        return self._default, UNLIMITED, True
