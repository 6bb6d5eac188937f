"""What a selection covers at this moment: circuits, calls, £.

Invariant: the figures are those of the sliding minute at exactly the gateways and circuits that the
selection covers; what a selection does not cover adds nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from django.db import connection

from controlplane.domain.circuit import Circuit
from controlplane.domain.precedence import Selection
from controlplane.models import Circuit as CircuitModel
from controlplane.models import Route
from controlplane.models.pool import named_sql
from controlplane.reports.wall import Rates, sliding_minute
from controlplane.reports.wall_rows import MinuteRow

_SQL = Path(__file__).parent / "sql" / "effect.sql"


@dataclass(frozen=True, slots=True)
class RouteEffect:
    """A route that loses a target, and the approved targets that are left to it."""

    name: str
    left: tuple[Circuit, ...]


@dataclass(frozen=True, slots=True)
class Effect:
    """``circuits``: those known now; rates are sums over them."""

    at: datetime
    circuits: tuple[Circuit, ...]
    rates: Rates
    routes: tuple[RouteEffect, ...]


def read(selection: Selection, at: datetime) -> Effect:
    """The effect of a hand on ``selection`` at ``at``."""
    rows = CircuitModel.objects.order_by("provider", "model", "region")
    known = [Circuit(*row) for row in rows.values_list("provider", "model", "region")]
    covered = tuple(circuit for circuit in known if selection.covers_circuit(circuit))
    return Effect(at, covered, _rates(selection, at), _routes(selection, at))


def rates_by_circuit(at: datetime) -> dict[Circuit, Rates]:
    """The sliding minute of every circuit that had one, summed over gateways."""
    minutes: dict[Circuit, list[MinuteRow]] = {}
    for _, _, provider, model, region, *figures in _read(at):
        minutes.setdefault(Circuit(provider, model, region), []).append(MinuteRow(*figures))
    return {circuit: sliding_minute(rows, at) for circuit, rows in minutes.items()}


def _rates(selection: Selection, at: datetime) -> Rates:
    minutes = [
        MinuteRow(*figures)
        for gateway, labels, provider, model, region, *figures in _read(at)
        if selection.covers_gateway(gateway, _labels(labels))
        and selection.covers_circuit(Circuit(provider, model, region))
    ]
    return sliding_minute(minutes, at)


def _read(at: datetime) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(named_sql(_SQL), {"at": at})
        return list(cursor.fetchall())


def _labels(value: object) -> dict[str, str]:
    # Django's cursor hands jsonb over as text unless its own field reads it.
    return json.loads(value) if isinstance(value, str) else dict(value)  # type: ignore[call-overload]


def _routes(selection: Selection, at: datetime) -> tuple[RouteEffect, ...]:
    found = []
    for name, spec in Route.objects.order_by("name").values_list("name", "spec"):
        approved = [t for t in spec.get("targets", []) if _is_approved(t, at)]
        targets = [Circuit(t["provider"], t["model"], t.get("region", "")) for t in approved]
        left = tuple(t for t in targets if not selection.covers_circuit(t))
        if len(left) < len(targets):
            found.append(RouteEffect(name, left))
    return tuple(found)


def _is_approved(target: dict[str, object], at: datetime) -> bool:
    until = target.get("approved_until")
    if not target.get("approved", True):
        return False
    return until is None or datetime.fromisoformat(str(until)) > at
