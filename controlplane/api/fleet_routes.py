"""``/gateways`` and ``/circuits``: what is read.

Invariant: desired and observed stand side by side and are never mixed; an old word is dated.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from django.http import HttpRequest, HttpResponse
from ninja import Router

from controlplane.actions.targets import nearest
from controlplane.api import objects
from controlplane.api.door import answer
from controlplane.domain.circuit import Circuit as Name
from controlplane.domain.circuit import parse_circuit
from controlplane.errors import NotFound
from controlplane.models import Revision
from controlplane.reports import circuits, effect, fleet
from controlplane.reports.wall import Rates

gateways = Router(tags=["gateways"])
circuit_routes = Router(tags=["circuits"])


@gateways.get("", summary="List gateways")
def list_gateways(request: HttpRequest) -> HttpResponse:
    """Each with its instances and their sync verdicts."""
    now = datetime.now(UTC)
    revision = Revision.objects.get(id=1).value
    found = [objects.gateway(report, now) for report in fleet.read(now)]
    return answer(objects.many("Gateway", found, revision))


@gateways.get("/{name}", summary="One gateway")
def get_gateway(request: HttpRequest, name: str) -> HttpResponse:
    """Generations, sync verdicts and ages of every instance."""
    now = datetime.now(UTC)
    found = fleet.read(now, name)
    if not found:
        known = [report.row.name for report in fleet.read(now)]
        raise NotFound(f"No gateway is named {name!r}{nearest(name, known)}.")
    return answer(objects.gateway(found[0], now))


@circuit_routes.get("", summary="List circuits")
def list_circuits(request: HttpRequest) -> HttpResponse:
    """Desired and observed of every circuit."""
    now = datetime.now(UTC)
    revision = Revision.objects.get(id=1).value
    rates = effect.rates_by_circuit(now)
    found = [_circuit(report, rates) for report in circuits.read(now)]
    return answer(objects.many("Circuit", found, revision))


@circuit_routes.get("/{path:name}", summary="One circuit")
def get_circuit(request: HttpRequest, name: str) -> HttpResponse:
    """The name plain (``openai/gpt-4o@eu``) or percent-encoded."""
    now = datetime.now(UTC)
    known = circuits.read(now)
    for wanted in _readings(request, name):
        for report in known:
            if report.name == wanted:
                return answer(_circuit(report, effect.rates_by_circuit(now)))
    names = [str(report.name) for report in known]
    raise NotFound(f"No circuit is named {name!r}{nearest(name, names)}.")


def _readings(request: HttpRequest, name: str) -> list[Name]:
    """What a path may mean: decoded once by the server, or plain with its own ``%40`` in it."""
    scope: dict[str, Any] = getattr(request, "scope", {})
    raw = scope.get("raw_path", b"").decode("latin-1").partition("/circuits/")[2]
    found = []
    for text in (name, raw, unquote(name)):
        try:
            found.append(parse_circuit(text))
        except ValueError:
            continue
    return found


def _circuit(report: circuits.CircuitReport, rates: Mapping[Name, Rates]) -> dict[str, Any]:
    return objects.circuit(report, rates.get(report.name, Rates()))
