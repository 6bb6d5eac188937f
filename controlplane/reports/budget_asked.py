"""What the buckets of one retry budget had to decide in whole minutes, for ``budget_replay``.

Invariant: only where this budget's numbers ruled: a circuit or gateway for which a narrower budget
of its level stands is left out. By tenant nothing is counted, so a tenant's budget has none.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from pathlib import Path

from django.db import connection

from controlplane.domain.budget_replay import Asked
from controlplane.domain.circuit import Circuit as Name
from controlplane.domain.precedence import Selection, precedence
from controlplane.models import Circuit, Gateway, RetryBudget
from controlplane.models.pool import named_sql
from controlplane.reports import fleet

_SQL = Path(__file__).parent / "sql" / "budget_asked.sql"


def asked(budget: RetryBudget, start: datetime, end: datetime, now: datetime) -> list[Asked]:
    """The minutes of [start, end) in which a retry was asked for; of the last 48 hours."""
    if budget.level == "tenant" or budget.tenant:
        return []
    rulings = _Rulings(budget)
    by_circuit = budget.level == "circuit"
    values = {
        "start": start,
        "end": end,
        "by_circuit": by_circuit,
        "circuits": list(rulings.circuits) if by_circuit else None,
        "gateways": list(rulings.gateways),
    }
    sharing = Counter(one.gateway_id for one in fleet.instances(now))
    with connection.cursor() as cursor:
        cursor.execute(named_sql(_SQL), values)
        found = cursor.fetchall()
    return [
        Asked(max(1, sharing[gateway]), *counts)
        for gateway, circuit, *counts in found
        if rulings.ruled(gateway, circuit)
    ]


class _Rulings:
    """Where a budget is the narrowest of its level."""

    def __init__(self, budget: RetryBudget) -> None:
        own = _selection(budget)
        self.gateways = {
            g.pk: g for g in Gateway.objects.all() if own.covers_gateway(g.name, g.labels)
        }
        self.circuits = {
            row.pk: name
            for row in Circuit.objects.all()
            for name in [Name(row.provider, row.model, row.region)]
            if own.covers_circuit(name)
        }
        rank = precedence(own, budget.name)
        others = RetryBudget.objects.filter(level=budget.level).exclude(pk=budget.pk)
        self._narrower = [
            selection
            for row in others
            for selection in [_selection(row)]
            if precedence(selection, row.name) < rank
        ]
        self._known: dict[tuple[int, int | None], bool] = {}

    def ruled(self, gateway: int, circuit: int | None) -> bool:
        """True when no narrower budget takes that circuit (None: all of them) there."""
        key = gateway, circuit
        if key not in self._known:
            self._known[key] = not any(self._takes(one, *key) for one in self._narrower)
        return self._known[key]

    def _takes(self, other: Selection, gateway: int, circuit: int | None) -> bool:
        there = self.gateways[gateway]
        if not other.covers_gateway(there.name, there.labels):
            return False
        return circuit is None or other.covers_circuit(self.circuits[circuit])


def _selection(row: RetryBudget) -> Selection:
    return Selection(row.gateway, row.selector, row.provider, row.model, row.region, row.tenant)
