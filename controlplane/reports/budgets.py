"""What a retry budget had to deal with, minute by minute, and what its buckets hold and held.

Invariant: only whole minutes; a minute of which no gateway spoke is absent, never 0. Refusals are
those of every budget over these circuits, because a refusal does not say which level it was. A
bucket is an instance's; it is a budget's when the budget matches it, also where a narrower rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import connection

from controlplane.domain.circuit import Circuit as Name
from controlplane.domain.circuit import parse_circuit
from controlplane.domain.precedence import Selection
from controlplane.models import Circuit, Gateway, RetryBudget
from controlplane.models.pool import named_sql

_SQL = Path(__file__).parent / "sql"
# Whose last word is older is not connected any more, and its buckets are no news.
ALIVE = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Minute:
    """First attempts, retries that were sent, retries that budgets refused."""

    minute: datetime
    firsts: int
    retries: int
    refused: int


def minutes(selection: Selection, start: datetime, end: datetime) -> list[Minute]:
    """The minutes of [start, end) of what a budget matches; of the last 48 hours."""
    values = {
        "start": start,
        "end": end,
        "circuits": _circuits(selection),
        "gateways": _gateways(selection),
    }
    with connection.cursor() as cursor:
        cursor.execute(named_sql(_SQL / "budget_minutes.sql"), values)
        return [Minute(*row) for row in cursor.fetchall()]


@dataclass(frozen=True, slots=True)
class Lately:
    """Of the last whole minute firsts and retries, of the last hour refusals. None: not known."""

    firsts: int | None
    retries: int | None
    refused: int | None

    @property
    def ratio(self) -> float | None:
        """Retries by first attempts; None without a first attempt."""
        return self.retries / self.firsts if self.firsts and self.retries is not None else None


def lately(rows: Sequence[RetryBudget], end: datetime) -> list[Lately]:
    """What each budget had to deal with up to ``end``, in one read. Nothing is known by tenant."""
    end = end.replace(second=0, microsecond=0)
    values = {"start": end - timedelta(hours=1), "last": end - timedelta(minutes=1), "end": end}
    with connection.cursor() as cursor:
        cursor.execute(named_sql(_SQL / "budget_lately.sql"), values)
        found = cursor.fetchall()
    return [_lately(row, found) for row in rows]


def _lately(budget: RetryBudget, found: Sequence[tuple[Any, ...]]) -> Lately:
    if budget.level == "tenant" or budget.tenant:
        return Lately(None, None, None)
    selection = Selection(
        budget.gateway, budget.selector, budget.provider, budget.model, budget.region
    )
    circuits, gateways = _circuits(selection), _gateways(selection)
    about = [
        counts
        for circuit, gateway, *counts in found
        if (circuits is None or circuit in circuits) and (gateways is None or gateway in gateways)
    ]

    def total(place: int) -> int | None:
        known = [int(counts[place]) for counts in about if counts[place] is not None]
        return sum(known) if known else None

    return Lately(firsts=total(1), retries=total(2), refused=total(0))


@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket of one instance; earned, spent and refused are those within ``window_s``."""

    scope: str
    gateway: str
    slot: str
    boot_id: UUID
    balance: int
    earned: int
    spent: int
    refused: int
    window_s: float
    reported_at: datetime


def buckets(budget: RetryBudget, now: datetime) -> list[Bucket]:
    """The buckets that a budget matches, of the instances that are connected."""
    selection = _selection(budget)
    found = _read_buckets(now, _gateways(selection))
    return [one for one in found if covers(budget.level, selection, one.scope)]


def _read_buckets(now: datetime, gateways: list[int] | None) -> list[Bucket]:
    values = {"alive": now - ALIVE, "gateways": gateways}
    with connection.cursor() as cursor:
        cursor.execute(named_sql(_SQL / "budget_buckets.sql"), values)
        return [Bucket(*row) for row in cursor.fetchall()]


def _selection(budget: RetryBudget) -> Selection:
    return Selection(
        budget.gateway,
        budget.selector,
        budget.provider,
        budget.model,
        budget.region,
        budget.tenant,
    )


@dataclass(frozen=True, slots=True)
class Holding:
    """What all buckets of a budget hold: their sum, the least of one, and how many stand at 0."""

    buckets: int
    balance: int
    spent: int
    least: int
    at_zero: int


def holdings(rows: Sequence[RetryBudget], now: datetime) -> list[Holding | None]:
    """What each budget's buckets hold, in one read; None: no connected instance reported one."""
    found = _read_buckets(now, None)
    by_scope: dict[str, list[Bucket]] = {}
    for bucket in found:
        by_scope.setdefault(bucket.scope, []).append(bucket)
    names = dict(Gateway.objects.values_list("name", "labels"))
    return [_holding(row, by_scope, names) for row in rows]


def _holding(
    budget: RetryBudget, by_scope: dict[str, list[Bucket]], names: dict[str, dict[str, str]]
) -> Holding | None:
    selection = _selection(budget)
    there = {name for name, labels in names.items() if selection.covers_gateway(name, labels)}
    held = [
        bucket
        for scope, some in by_scope.items()
        if covers(budget.level, selection, scope)
        for bucket in some
        if bucket.gateway in there
    ]
    if not held:
        return None
    return Holding(
        buckets=len(held),
        balance=sum(max(0, one.balance) for one in held),
        spent=sum(one.spent for one in held),
        least=min(max(0, one.balance) for one in held),
        at_zero=sum(one.balance <= 0 for one in held),
    )


def covers(level: str, selection: Selection, scope: str) -> bool:
    """True when a budget of this level and selection is about that scope."""
    kind, _, subject = scope.partition("/")
    if kind != level:
        return False
    if level == "tenant":
        return selection.tenant in ("", subject)
    if level == "circuit":
        try:
            return selection.covers_circuit(parse_circuit(subject))
        except ValueError:
            return False
    return True


@dataclass(frozen=True, slots=True)
class Held:
    """A step of a scope: its instances, how many stood at 0, and what they held together."""

    at: datetime
    instances: int
    at_zero: int
    balance: int
    earned: int
    spent: int
    refused: int


def series(
    scope: str, start: datetime, end: datetime, step: timedelta, selection: Selection | None = None
) -> list[Held]:
    """What a scope's buckets held over [start, end); of raw retention. Silent steps are absent."""
    gateways = _gateways(selection) if selection is not None else None
    values = {"scope": scope, "start": start, "end": end, "step": step, "gateways": gateways}
    with connection.cursor() as cursor:
        cursor.execute(named_sql(_SQL / "budget_series.sql"), values)
        return [Held(row[0], *map(int, row[1:])) for row in cursor.fetchall()]


def _circuits(selection: Selection) -> list[int] | None:
    if not (selection.provider or selection.model or selection.region):
        return None
    return [
        row.pk
        for row in Circuit.objects.all()
        if selection.covers_circuit(Name(row.provider, row.model, row.region))
    ]


def _gateways(selection: Selection) -> list[int] | None:
    if not (selection.gateway or selection.selector):
        return None
    return [g.pk for g in Gateway.objects.all() if selection.covers_gateway(g.name, g.labels)]
