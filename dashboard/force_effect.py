"""What a hand would do now, in words: whom it stops, who falls back, who refuses, who is silent.

Invariant: figures are of the last minute and of exactly what is covered; where nothing is known it
says so. A fallback is called one only if it is approved, and says when it is in trouble itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from controlplane.domain.circuit import Circuit
from controlplane.domain.overrides import OverrideMode
from controlplane.domain.precedence import Selection
from controlplane.reports import circuits, effect, wall
from controlplane.reports.effect import RouteEffect
from controlplane.reports.wall import Rates
from controlplane.reports.wall_rows import Now
from dashboard import present
from dashboard.fleet import Fleet

_MOST_ROUTES = 8
SLOW_MS = 10_000
FAILING = 0.05


def words(selection: Selection, mode: OverrideMode, now: datetime) -> dict[str, Any]:
    """Everything of the dialog's "What this affects now"."""
    read = wall.read_present()
    fleet = Fleet(read)
    members = [
        m
        for m in fleet.members.values()
        if selection.covers_gateway(m.gateway.name, m.gateway.labels)
    ]
    found = effect.read(selection, now)
    opens = mode is OverrideMode.FORCE_OPEN
    stranded = sum(route.attempts for route in found.stranded) / 60
    refusing = circuits.left_without_healthy(selection, now) if opens else []
    return {
        "effect": _figures(found),
        "in_contact": sum(m.reachable for m in members),
        "silent": sum(not m.reachable for m in members),
        "refusing": refusing[:3],
        "refusing_more": max(0, len(refusing) - 3),
        "refusing_count": len(refusing),
        "routes": _routes(found, fleet, read, now) if opens else [],
        "routes_more": max(0, len(found.routes) - _MOST_ROUTES),
        # Empty: not one came in the last minute, and the next one would fail all the same.
        "stranded": present.rate(stranded) if stranded else "",
        "stranded_names": [route.name for route in found.stranded],
    }


def _figures(found: effect.Effect) -> dict[str, Any]:
    rates = found.rates
    refused = (rates.refused_breaker + rates.refused_override) / 60
    p50, p95 = found.latency_ms(0.5), found.latency_ms(0.95)
    return {
        "circuits": len(found.circuits),
        "calls": present.rate(rates.attempts / 60),
        "refused": present.rate(refused),
        "failed": present.failure(rates.failure_ratio),
        "spend": f"{present.money(rates.cost_gbp)}/min",
        "wasted": f"{present.money(rates.wasted_gbp)}/min",
        "unpriced": round(rates.unpriced),
        "p50": present.took(p50),
        "p95": present.took(p95),
        "slow": p95 is not None and p95 >= SLOW_MS,
    }


def _routes(found: effect.Effect, fleet: Fleet, read: Now, now: datetime) -> list[dict[str, Any]]:
    rates = effect.rates_by_circuit(now)
    opened = _open_somewhere(fleet, read)
    return [_route(route, rates, opened) for route in found.routes[:_MOST_ROUTES]]


def _open_somewhere(fleet: Fleet, read: Now) -> set[Circuit]:
    """The circuits that an instance in contact has Open."""
    names = {row.id: row.circuit for row in read.circuits}
    return {
        names[row.circuit_id]
        for row in read.states
        if (row.state == "Open" or row.mode == OverrideMode.FORCE_OPEN)
        and fleet.members[row.instance_id].reachable
    }


def _route(
    route: RouteEffect, rates: Mapping[Circuit, Rates], opened: set[Circuit]
) -> dict[str, Any]:
    first = route.left[0] if route.left else None
    own = rates.get(first, Rates()) if first else Rates()
    failing = own.failure_ratio is not None and own.failure_ratio >= FAILING
    return {
        "name": route.name or "(no route)",
        "recorded": route.recorded,
        "calls": present.rate(route.attempts / 60),
        "fallback": str(first) if first else "",
        "more": len(route.left) - 1,
        "health": f"{present.rate(own.attempts / 60)}, {present.failure(own.failure_ratio)} fail"
        if own.attempts
        else "no call in the last minute",
        "troubled": "it is Open too" if first in opened else "it fails too" if failing else "",
    }
