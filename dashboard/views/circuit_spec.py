"""What rules a circuit: its routes, its retry budgets and its breaker policies, by precedence.

Invariant: of policies the first that covers a gateway rules there; the list ends with the first
that covers every gateway, because behind it nothing can rule, or with the built-in numbers.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from controlplane.domain.circuit import Circuit as Name
from controlplane.domain.precedence import Selection, precedence
from controlplane.models import BreakerPolicy, Circuit, RetryBudget, Route
from dashboard import present
from dashboard.views import budgets, policies, settings


def told(row: Circuit, now: datetime) -> dict[str, Any]:
    """Everything of the circuit's Spec."""
    name = Name(row.provider, row.model, row.region)
    return {"policies": _policies(name), "budgets": _budgets(name), "routes": _routes(name, now)}


def trips_at(spec: dict[str, Any]) -> tuple[float, str] | None:
    """The failure ratio in per cent at which it opens, with words; None where gateways differ."""
    ruling = spec["policies"]
    if len(ruling) != 1 or not ruling[0]["spec"]["failure_ratio"]:
        return None
    per_cent = ruling[0]["spec"]["failure_ratio"] * 100
    return per_cent, f"opens at {per_cent:g}% of {ruling[0]['spec']['minimum_calls']:,} or more"


def _policies(name: Name) -> list[dict[str, Any]]:
    found = []
    for row in policies.in_order(list(BreakerPolicy.objects.all())):
        if not policies.selection_of(row).covers_circuit(name):
            continue
        found.append(_policy(row))
        if not (row.gateway or row.selector):
            return found
    return [*found, _policy(BreakerPolicy())]


def _policy(row: BreakerPolicy) -> dict[str, Any]:
    return {
        "row": row,
        "gateways": present.gateways_words(row.gateway, row.selector),
        "words": policies.words(row),
        "spec": settings.spec_of(policies.KIND, row.spec),
    }


def _budgets(name: Name) -> list[dict[str, Any]]:
    rows = [
        (precedence(selection, row.name), row)
        for row in RetryBudget.objects.exclude(level="tenant")
        for selection in [Selection(row.gateway, row.selector, row.provider, row.model, row.region)]
        if selection.covers_circuit(name)
    ]
    rows.sort(key=lambda one: (one[1].level, one[0]))
    return [budgets.described(row) for _, row in rows]


def _routes(name: Name, now: datetime) -> list[dict[str, Any]]:
    found = []
    for row in Route.objects.order_by("name"):
        targets = row.spec.get("targets", [])
        for place, target in enumerate(targets, start=1):
            if Name(target["provider"], target["model"], target.get("region", "")) != name:
                continue
            until = target.get("approved_until")
            lapsed = until is not None and datetime.fromisoformat(str(until)) <= now
            found.append(
                {
                    "name": row.name,
                    "place": place,
                    "of": len(targets),
                    "approved": bool(target.get("approved", True)) and not lapsed,
                }
            )
    return found
