"""What a selection covers at this moment: circuits, calls, £.

Invariant: the figures are those of the sliding minute at exactly the gateways and circuits that the
selection covers; what a selection does not cover adds nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from django.db import connection

from controlplane.domain.circuit import Circuit
from controlplane.domain.histogram import counts_of, quantile
from controlplane.domain.precedence import Selection
from controlplane.models import Circuit as CircuitModel
from controlplane.models import Gateway, Route
from controlplane.models.pool import named_sql
from controlplane.reports.wall import Rates, sliding_minute
from controlplane.reports.wall_rows import MinuteRow

_FOLDER = Path(__file__).parent / "sql"
_SQL = _FOLDER / "effect.sql"
_BY_ROUTE, _LATENCY = _FOLDER / "effect_routes.sql", _FOLDER / "effect_latency.sql"


@dataclass(frozen=True, slots=True)
class RouteEffect:
    """A route that loses a target, and the approved targets that are left to it.

    ``attempts`` and ``failed``: of the last minute, on what is covered. ``recorded``: False when
    only a gateway's own file has it, so that nothing is known of its other targets.
    """

    name: str
    left: tuple[Circuit, ...]
    attempts: int = 0
    failed: int = 0
    recorded: bool = True


@dataclass(frozen=True, slots=True)
class Effect:
    """``circuits``: those known now; rates are sums over them; latency is counts by bucket."""

    at: datetime
    circuits: tuple[Circuit, ...]
    rates: Rates
    routes: tuple[RouteEffect, ...]
    latency: dict[int, int] = field(default_factory=dict)

    def latency_ms(self, q: float) -> int | None:
        """A quantile of how long attempts took; None when none has ended."""
        return quantile(self.latency, q) if self.latency else None

    @property
    def stranded(self) -> tuple[RouteEffect, ...]:
        """Routes that have nothing left to fall back to."""
        return tuple(route for route in self.routes if route.recorded and not route.left)


def read(selection: Selection, at: datetime) -> Effect:
    """The effect of a hand on ``selection`` at ``at``."""
    rows = CircuitModel.objects.order_by("provider", "model", "region")
    known = [
        (pk, Circuit(*parts))
        for pk, *parts in rows.values_list("pk", "provider", "model", "region")
    ]
    covered = [(pk, circuit) for pk, circuit in known if selection.covers_circuit(circuit)]
    values = {
        "at": at,
        "circuits": [pk for pk, _ in covered],
        "gateways": _gateways(selection),
    }
    return Effect(
        at,
        tuple(circuit for _, circuit in covered),
        _rates(selection, at),
        _routes(selection, at, values),
        _latency(values),
    )


def _gateways(selection: Selection) -> list[int] | None:
    if not (selection.gateway or selection.selector):
        return None
    return [g.pk for g in Gateway.objects.all() if selection.covers_gateway(g.name, g.labels)]


def _latency(values: dict[str, Any]) -> dict[int, int]:
    with connection.cursor() as cursor:
        cursor.execute(named_sql(_LATENCY), values)
        row = cursor.fetchone()
    return counts_of(row[0]) if row else {}


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
    labels: dict[str, str] = (
        json.loads(value) if isinstance(value, str) else dict(value)  # type: ignore[call-overload]
    )
    return labels


def _routes(selection: Selection, at: datetime, values: dict[str, Any]) -> tuple[RouteEffect, ...]:
    """Routes that lose an approved target, and others that sent something there just now."""
    with connection.cursor() as cursor:
        cursor.execute(named_sql(_BY_ROUTE), values)
        sent = {name: (attempts, failed) for name, attempts, failed in cursor.fetchall()}
    found = []
    for name, spec in Route.objects.order_by("name").values_list("name", "spec"):
        approved = [t for t in spec.get("targets", []) if _is_approved(t, at)]
        targets = [Circuit(t["provider"], t["model"], t.get("region", "")) for t in approved]
        left = tuple(t for t in targets if not selection.covers_circuit(t))
        used = sent.pop(name, (0, 0))
        if len(left) < len(targets):
            found.append(RouteEffect(name, left, *used))
    found += [RouteEffect(name, (), *used, recorded=False) for name, used in sent.items()]
    return tuple(sorted(found, key=lambda route: (-route.attempts, route.name)))


def _is_approved(target: dict[str, object], at: datetime) -> bool:
    until = target.get("approved_until")
    if not target.get("approved", True):
        return False
    return until is None or datetime.fromisoformat(str(until)) > at
