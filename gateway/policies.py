"""Which breaker policy is in force for which circuit (design 4.5).

Invariant: the first policy of the list that matches a circuit is its policy; without one it has the
wire's defaults, so that a gateway without a control plane behaves as documented. New numbers keep
what the breaker has counted.
"""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.domain.breaker import BreakerPolicy
from controlplane.domain.circuit import Circuit
from controlplane.domain.matching import matches
from controlplane.wire.desired import Breaker, PolicyItem
from gateway.circuits import Circuits, Entry
from gateway.thresholds import breaker_policy


class Policies:
    """The list in force."""

    def __init__(self) -> None:
        self._items: tuple[tuple[PolicyItem, BreakerPolicy], ...] = ()
        self._default = breaker_policy(Breaker())

    def replace(self, items: Iterable[tuple[PolicyItem, BreakerPolicy]]) -> None:
        """Another list, in order of precedence."""
        self._items = tuple(items)

    def add(self, circuits: Circuits, circuit: Circuit, now: float) -> Entry:
        """Begin to track a circuit under its policy."""
        policy, rate_limits_count = self._of(circuit)
        entry = circuits.add(circuit, policy, now)
        entry.rate_limits_count = rate_limits_count
        return entry

    def put(self, entry: Entry, now: float) -> None:
        """Put a circuit's policy in force, if it is another than before."""
        policy, entry.rate_limits_count = self._of(entry.circuit)
        if policy != entry.policy:
            entry.policy = policy
            entry.breaker.set_policy(policy, now)

    def _of(self, circuit: Circuit) -> tuple[BreakerPolicy, bool]:
        for item, policy in self._items:
            match = item.match
            if matches(match.provider, match.model, match.region, circuit):
                return policy, item.breaker.rate_limits_count
        return self._default, True
