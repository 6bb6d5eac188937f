"""Which budget's numbers are in force for whom, and the buckets that count (design 4.3).

Invariants: the first budget of a level in the list that matches a subject sets its numbers; new
numbers or a new count of live instances never lose what was counted; at most ``TENANTS`` tenants
have a bucket of their own, later ones share ``(other)``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import getrandbits

from controlplane.domain.budget import Balance, BudgetPolicy, Level
from controlplane.domain.budgets import Budgets, TenantBudgets
from controlplane.domain.circuit import parse_circuit
from controlplane.domain.matching import matches
from controlplane.domain.request_plan import AttemptAllowance
from controlplane.wire import events
from controlplane.wire.desired import Bucket, BudgetItem, Match
from controlplane.wire.status import BudgetStatus
from gateway.clock import Clock

TENANTS = 1000
TASKS = 10_000
OTHER = "(other)"
REPORT_EVERY_S = 10.0

_LEVELS = {Level.SYSTEM.value: Level.SYSTEM, Level.TENANT.value: Level.TENANT}
_LEVELS[Level.CIRCUIT.value] = Level.CIRCUIT


class InForce:
    """Budgets of the snapshot in their order, each with its policy worked out."""

    def __init__(self, items: Iterable[tuple[BudgetItem, BudgetPolicy]] = ()) -> None:
        self._items = tuple(items)
        self._default = BudgetPolicy()

    def policy_for(self, level: Level, subject: str) -> BudgetPolicy:
        """The numbers of one subject's bucket."""
        for item, policy in self._items:
            if item.level == level.value and _names(item.match, level, subject):
                return policy
        return self._default

    @property
    def has_ceiling(self) -> bool:
        """True when any of them bounds a cost."""
        return any(item.bucket.has_ceiling for item, _ in self._items)

    def bucket_for(self, level: Level, subject: str) -> Bucket:
        """The item itself, for the limits that are not a bucket's."""
        for item, _ in self._items:
            if item.level == level.value and _names(item.match, level, subject):
                return item.bucket
        return Bucket()


class Budgeting:
    """All buckets of one process. Used from the loop's thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._in_force = InForce()
        self._budgets = Budgets(self._in_force.policy_for)
        self._views: dict[str, TenantBudgets] = {}
        self._limits: dict[str, tuple[int, int]] = {}
        self._tasks: dict[tuple[str, str], AttemptAllowance] = {}
        self._reported: dict[str, Balance] = {}
        self._report_at = clock.monotonic() + REPORT_EVERY_S

    def use(self, in_force: InForce, instances: int) -> None:
        """Put other numbers in force, for the share of one of ``instances`` live instances."""
        self._in_force = in_force
        self._limits.clear()
        self._budgets.set_policies(in_force.policy_for, max(1, instances))

    def of(self, tenant: str) -> TenantBudgets:
        """What a request of this tenant asks for its retries."""
        view = self._views.get(tenant)
        if view is None:
            if len(self._views) >= TENANTS and tenant != OTHER:
                return self.of(OTHER)
            view = self._views[tenant] = self._budgets.of(tenant)
        return view

    def max_attempts(self, tenant: str) -> int:
        """Attempts that one request of this tenant may make, by its own and the system's budget."""
        return self._limits_of(tenant)[0]

    def task_allowance(self, tenant: str, task: str | None) -> AttemptAllowance:
        """The attempts left to a task; without a task, to the request alone.

        The oldest of 10,000 tasks is forgotten first, and then starts anew if it comes back.
        """
        limit = self._limits_of(tenant)[1]
        if task is None:
            return AttemptAllowance(limit)
        held = self._tasks.pop((tenant, task), None) or AttemptAllowance(limit)
        held.limit = limit
        self._tasks[tenant, task] = held
        if len(self._tasks) > TASKS:
            del self._tasks[next(iter(self._tasks))]
        return held

    def statuses(self, now: float) -> list[BudgetStatus]:
        """Every bucket as a status report says it."""
        return [
            BudgetStatus(
                scope=scope,
                balance=held.balance,
                earned=held.earned,
                spent=held.spent,
                refused=held.refused,
                window_s=held.window_s,
            )
            for scope, held in self._balances(now)
        ]

    def tick(self, now: float) -> Iterator[events.Budget]:
        """Every 10 s: an event for each bucket that changed; empty buckets are dropped."""
        if now < self._report_at:
            return
        self._report_at = now + REPORT_EVERY_S
        changed = {
            scope: held for scope, held in self._balances(now) if self._reported.get(scope) != held
        }
        at = self._clock.wall()
        for scope, held in changed.items():
            yield events.Budget(
                id=events.mint_id(at, getrandbits(74)),
                occurred_at=at,
                scope=scope,
                balance=held.balance,
                earned=held.earned,
                spent=held.spent,
                refused=held.refused,
                window_s=held.window_s,
            )
        self._budgets.sweep(now)
        self._reported = dict(self._balances(now))
        living = {scope.removeprefix("tenant/") for scope in self._reported}
        self._views = {name: view for name, view in self._views.items() if name in living}

    def _balances(self, now: float) -> Iterator[tuple[str, Balance]]:
        for level, subject, held in self._budgets.balances(now):
            yield f"{level.value}/{subject}"[:200], held

    def _limits_of(self, tenant: str) -> tuple[int, int]:
        """Attempts for one request and for one task: every level has to agree."""
        limits = self._limits.get(tenant)
        if limits is None:
            if len(self._limits) >= TENANTS:
                self._limits.clear()
            in_force = self._in_force
            levels = ((Level.TENANT, tenant), (Level.SYSTEM, ""))
            buckets = [in_force.bucket_for(level, subject) for level, subject in levels]
            limits = self._limits[tenant] = (
                min(bucket.max_attempts for bucket in buckets),
                min(bucket.max_attempts_per_task for bucket in buckets),
            )
        return limits


def unsupported(item: BudgetItem) -> tuple[str, str] | None:
    """Field and reason why this instance cannot enforce an item as written, or None."""
    match, level = item.match, _LEVELS.get(item.level)
    if level is None:
        return "level", f"level must be system, tenant or circuit, got {item.level!r}"
    named = {"provider": match.provider, "model": match.model, "region": match.region}
    if level is not Level.CIRCUIT:
        for field, value in named.items():
            if value:
                return f"match.{field}", f"a {item.level} bucket spans all circuits"
    if match.tenant and level is not Level.TENANT:
        return "match.tenant", f"a {item.level} bucket spans all tenants"
    if level is Level.CIRCUIT:
        for field in ("max_cost_gbp_per_request", "max_cost_gbp_per_task"):
            if getattr(item.bucket, field) is not None:
                return f"bucket.{field}", "a request may use several circuits"
    return None


def _names(match: Match, level: Level, subject: str) -> bool:
    if level is Level.TENANT:
        return match.tenant in ("", subject)
    if level is Level.CIRCUIT:
        return matches(match.provider, match.model, match.region, parse_circuit(subject))
    return True
