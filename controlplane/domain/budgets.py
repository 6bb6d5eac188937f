"""Every retry bucket of one gateway process, and the question that several of them answer as one.

Invariant: a retry is spent in all the buckets that it concerns or in none. One lock covers them
all, because a tenant's and a circuit's bucket are asked together in every combination.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Lock
from typing import TypeAlias

from controlplane.domain.budget import Balance, BudgetPolicy, Level, RetryBudget
from controlplane.domain.circuit import Circuit, format_circuit
from controlplane.domain.gate import Gate, Refusal

Key: TypeAlias = tuple[Level, str]
"""A level and its subject: a tenant's name, a circuit's written form, '' for the system."""

PolicyFor: TypeAlias = Callable[[Level, str], BudgetPolicy]

SYSTEM: Key = (Level.SYSTEM, "")
_KNOWN = 100


class Budgets:
    """The buckets, made when first asked for. Every method may be called from any thread."""

    __slots__ = ("_buckets", "_instances", "_lock", "_policy_for")

    def __init__(self, policy_for: PolicyFor, instances: int = 1) -> None:
        self._lock = Lock()
        self._buckets: dict[Key, RetryBudget] = {}
        self._policy_for = policy_for
        self._instances = instances

    def of(self, tenant: str) -> TenantBudgets:
        """The view of one tenant, which is what a request loop asks."""
        return TenantBudgets(self, tenant)

    def earn(self, keys: tuple[Key, ...], now: float) -> float:
        """A first was sent; returns the mark for ``give_back``."""
        with self._lock:
            for key in keys:
                self._bucket(key).earn(now)
        return now

    def give_back(self, keys: tuple[Key, ...], mark: float, now: float) -> None:
        """The first of that mark ended in a failure that counts against its circuit."""
        with self._lock:
            for key in keys:
                self._bucket(key).give_back(mark, now)

    def ask(self, keys: tuple[Key, ...], now: float) -> Refusal | None:
        """Grant a retry in every bucket, or spend nothing and name the first that refused."""
        with self._lock:
            buckets = [self._bucket(key) for key in keys]
            for (level, _), bucket in zip(keys, buckets, strict=True):
                if not bucket.allows(now):
                    bucket.refuse(now)
                    return Refusal(Gate.BUDGET, level.value)
            for bucket in buckets:
                bucket.spend(now)
            return None

    def refund(self, keys: tuple[Key, ...], now: float) -> None:
        """A granted retry was not sent."""
        with self._lock:
            for key in keys:
                self._bucket(key).refund(now)

    def set_policies(self, policy_for: PolicyFor, instances: int) -> None:
        """New numbers, or a new count of live instances. Counts are kept."""
        with self._lock:
            self._policy_for, self._instances = policy_for, instances
            for (level, subject), bucket in self._buckets.items():
                bucket.set_policy(policy_for(level, subject), instances)

    def sweep(self, now: float) -> None:
        """Drop idle buckets: tenants come and go, and an empty bucket equals a new one."""
        with self._lock:
            for key in [key for key, bucket in self._buckets.items() if bucket.idle(now)]:
                del self._buckets[key]

    def balances(self, now: float) -> Iterator[tuple[Level, str, Balance]]:
        """Every bucket as reported, by level and subject."""
        with self._lock:
            rows = [(*key, bucket.balance(now)) for key, bucket in sorted(self._buckets.items())]
        return iter(rows)

    def _bucket(self, key: Key) -> RetryBudget:
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = RetryBudget(self._policy_for(*key), self._instances)
            self._buckets[key] = bucket
        return bucket


class TenantBudgets:
    """What the request loop asks: the tenant's, the circuit's and the system's bucket together."""

    __slots__ = ("_budgets", "_known", "_tenant")

    def __init__(self, budgets: Budgets, tenant: str) -> None:
        self._budgets = budgets
        self._tenant = tenant
        self._known: dict[Circuit, tuple[Key, ...]] = {}

    def earn(self, circuit: Circuit, now: float) -> float:
        """A first to ``circuit`` was sent."""
        return self._budgets.earn(self._keys(circuit), now)

    def give_back(self, circuit: Circuit, mark: float, now: float) -> None:
        """That first failed in a way that counts."""
        self._budgets.give_back(self._keys(circuit), mark, now)

    def ask(self, circuit: Circuit, now: float) -> Refusal | None:
        """May one retry go to ``circuit``? Spent at once when the answer is None."""
        return self._budgets.ask(self._keys(circuit), now)

    def refund(self, circuit: Circuit, now: float) -> None:
        """The retry was not sent."""
        self._budgets.refund(self._keys(circuit), now)

    def _keys(self, circuit: Circuit) -> tuple[Key, ...]:
        keys = self._known.get(circuit)
        if keys is None:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            name = format_circuit(circuit)
            keys = (Level.TENANT, self._tenant), (Level.CIRCUIT, name), SYSTEM
            self._known[circuit] = keys
        return keys


class Unlimited:
    """Grants that never refuse: for policies without a budget, in replays and comparisons."""

    def earn(self, circuit: Circuit, now: float) -> float:
        """Nothing is counted."""
        return now

    def give_back(self, circuit: Circuit, mark: float, now: float) -> None:
        """Nothing was counted."""

    def ask(self, circuit: Circuit, now: float) -> Refusal | None:
        """Always granted."""
        return None

    def refund(self, circuit: Circuit, now: float) -> None:
        """Nothing was spent."""
