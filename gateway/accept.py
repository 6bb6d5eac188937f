"""Judges the items of a snapshot one by one: which can be enforced here, and why not.

Invariants: every item gets exactly one verdict; a sibling's fault changes nothing for the others;
while the new form of an item is rejected, its last good form (same uid) stays in force. Pure: this
puts nothing in force.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from controlplane.domain.breaker import BreakerPolicy
from controlplane.domain.budget import BudgetPolicy
from controlplane.domain.limits import RatePolicy
from controlplane.wire.desired import BudgetItem, Match, OverrideItem, PolicyItem, RouteItem
from controlplane.wire.status import ItemStatus, ItemVerdict
from gateway.budgeting import InForce as BudgetsInForce
from gateway.budgeting import unsupported
from gateway.config import Route
from gateway.routing import Routing, UnknownTarget
from gateway.snapshot import Item, Read, Received
from gateway.thresholds import OutOfRange, breaker_policy, budget_policy, rate_policy

Value = TypeVar("Value")


@dataclass(slots=True)
class Accepted:
    """What a snapshot came to, by uid and in the snapshot's order. Overrides stand elsewhere."""

    policies: dict[str, tuple[PolicyItem, BreakerPolicy, RatePolicy]] = field(default_factory=dict)
    budgets: dict[str, tuple[BudgetItem, BudgetPolicy]] = field(default_factory=dict)
    routes: dict[str, Route] = field(default_factory=dict)
    verdicts: dict[str, ItemStatus] = field(default_factory=dict)
    refused: list[ItemStatus] = field(default_factory=list)
    """Overrides that were not armed."""
    forms: dict[str, Read[Any]] = field(default_factory=dict)
    """What is in force, as it was read."""

    def last_good(self, overrides: list[OverrideItem]) -> bytes:
        """The spec of what is in force and the snapshot no longer says: its new form is rejected.

        A snapshot alone cannot bring these back after a restart (``snapshot.as_before``).
        ``overrides``: of those, the ones that are kept.
        """

        def forms(uids: Iterable[str]) -> list[Any]:
            return [self.forms[uid].value for uid in uids if uid in rejected]

        bad = ("Rejected", "Unsupported")
        rejected = {uid for uid, status in self.verdicts.items() if status.verdict in bad}
        spec: dict[str, Iterable[str]] = {
            "policies": self.policies,
            "budgets": self.budgets,
            "routes": self.routes,
        }
        good = {kind: forms(held) for kind, held in spec.items()}
        return msgspec.json.encode(good | {"overrides": overrides})

    def budgets_in_force(self) -> BudgetsInForce:
        """The budgets as buckets look them up."""
        return BudgetsInForce(self.budgets.values())

    def statuses(self) -> list[ItemStatus]:
        """Every verdict."""
        return [*self.verdicts.values(), *self.refused]


def accept(received: Received, before: Accepted, routing: Routing, wall: datetime) -> Accepted:
    """Judge policies, budgets and routes, and the overrides that could not be read."""
    out = Accepted()
    covered: list[Match] = []
    for policy in received.policies:
        _take_policy(policy, before, out, covered, wall)
    covered_at: dict[str, list[Match]] = {}
    for budget in received.budgets:
        level = budget.value.level if budget.value else ""
        _take_budget(budget, before, out, covered_at.setdefault(level, []), wall)
    for route in received.routes:
        _take_route(route, before, out, routing, wall)
    for override in received.overrides:
        if override.value is None:
            out.refused.append(_rejected(override, "SchemaInvalid", *_why(override)))
    return out


def _take_policy(
    read: Read[PolicyItem],
    before: Accepted,
    out: Accepted,
    covered: list[Match],
    wall: datetime,
) -> None:
    if read.value is None:
        status = _rejected(read, "SchemaInvalid", *_why(read))
    elif read.value.match.tenant:
        status = _rejected(read, "", "match.tenant", "a breaker has no tenant", "Unsupported")
    else:
        try:
            numbers = read.value.breaker
            out.policies[read.uid] = read.value, breaker_policy(numbers), rate_policy(numbers)
        except OutOfRange as error:
            status = _rejected(read, "OutOfRange", error.field, str(error))
        else:
            status = _good(read, before, _covers(covered, read.value.match), wall)
            covered.append(read.value.match)
    _settle(read, status, before, before.policies, out, out.policies)


def _take_budget(
    read: Read[BudgetItem],
    before: Accepted,
    out: Accepted,
    covered: list[Match],
    wall: datetime,
) -> None:
    item = read.value
    if item is None:
        status = _rejected(read, "SchemaInvalid", *_why(read))
    elif why := unsupported(item):
        status = _rejected(read, "", *why, "Unsupported")
    else:
        try:
            out.budgets[read.uid] = item, budget_policy(item.bucket)
        except OutOfRange as error:
            status = _rejected(read, "OutOfRange", error.field, str(error))
        else:
            status = _good(read, before, _covers(covered, item.match), wall)
            covered.append(item.match)
    _settle(read, status, before, before.budgets, out, out.budgets)


def _take_route(
    read: Read[RouteItem], before: Accepted, out: Accepted, routing: Routing, wall: datetime
) -> None:
    if read.value is None:
        status = _rejected(read, "SchemaInvalid", *_why(read))
    else:
        try:
            out.routes[read.uid] = routing.read(read.value)
        except UnknownTarget as error:
            status = _rejected(read, "UnknownTarget", error.field, str(error))
        except OutOfRange as error:
            status = _rejected(read, "OutOfRange", error.field, str(error))
        else:
            status = _good(read, before, False, wall)
    _settle(read, status, before, before.routes, out, out.routes)


def _settle(
    read: Read[Item],
    status: ItemStatus,
    before: Accepted,
    earlier: dict[str, Value],
    out: Accepted,
    now: dict[str, Value],
) -> None:
    """Keep the verdict, and the last good form of what was rejected."""
    out.verdicts[read.uid] = status
    if read.uid in now:
        out.forms[read.uid] = read
    elif read.uid in earlier:
        now[read.uid] = earlier[read.uid]
        out.forms[read.uid] = before.forms[read.uid]


def _good(read: Read[Item], before: Accepted, superseded: bool, wall: datetime) -> ItemStatus:
    was = before.verdicts.get(read.uid)
    same = was is not None and was.generation == read.generation
    return ItemStatus(
        kind=read.kind,
        name=read.name,
        uid=read.uid,
        generation=read.generation,
        verdict="Superseded" if superseded else "Applied",
        reason="Superseded" if superseded else "",
        applied_at=(was.applied_at if was and same else None) or wall,
    )


def _rejected(
    read: Read[Item],
    reason: str,
    field_path: str,
    message: str,
    verdict: ItemVerdict = "Rejected",
) -> ItemStatus:
    return ItemStatus(
        kind=read.kind,
        name=read.name,
        uid=read.uid,
        generation=read.generation,
        verdict=verdict,
        reason=reason or "UnsupportedField",
        message=message[:1000],
        field_path=field_path[:200],
    )


def _why(read: Read[Item]) -> tuple[str, str]:
    return read.field_path, read.message


def _covers(earlier: list[Match], match: Match) -> bool:
    """True when an earlier match leaves this one nothing to decide."""
    return any(
        one.provider in ("", match.provider)
        and one.model in ("", match.model)
        and one.region in ("", match.region)
        and one.tenant in ("", match.tenant)
        for one in earlier
    )
