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
from controlplane.api import objects, telemetry
from controlplane.api.bodies import Moment
from controlplane.api.door import answer
from controlplane.domain.circuit import Circuit as Name
from controlplane.domain.circuit import parse_circuit
from controlplane.errors import NotFound
from controlplane.models import Circuit, Revision
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


# Before the circuit itself, whose path would take it in.
@circuit_routes.get(
    "/{path:name}/series", summary="A circuit over time", openapi_extra=telemetry.SERIES
)
def get_series(
    request: HttpRequest,
    name: str,
    since: Moment | None = telemetry.FROM,
    until: Moment | None = telemetry.TO,
    step: str = telemetry.STEP,
) -> HttpResponse:
    """Retry ratio, verdicts, refusals, quantiles, cost and waste. Steps without anything in them
    are absent; ``retryRatio`` is null in a step in which no request began.
    """
    readings = _readings(request, name, "/series")
    if not readings:
        return get_circuit(request, f"{name}/series")  # a model of that name
    for wanted in readings:
        found = Circuit.objects.filter(
            provider=wanted.provider, model=wanted.model, region=wanted.region
        ).first()
        if found is not None:
            return telemetry.series(found.pk, wanted, since, until, step)
    raise _unknown(name, [str(report.name) for report in circuits.read(datetime.now(UTC))])


@circuit_routes.get("/{path:name}", summary="One circuit")
def get_circuit(request: HttpRequest, name: str) -> HttpResponse:
    """The name plain (``openai/gpt-4o@eu``) or percent-encoded."""
    now = datetime.now(UTC)
    known = circuits.read(now)
    for wanted in _readings(request, name):
        for report in known:
            if report.name == wanted:
                return answer(_circuit(report, effect.rates_by_circuit(now)))
    raise _unknown(name, [str(report.name) for report in known])


def _unknown(name: str, known: list[str]) -> NotFound:
    return NotFound(f"No circuit is named {name!r}{nearest(name, known)}.")


def _readings(request: HttpRequest, name: str, suffix: str = "") -> list[Name]:
    """What a path may mean: decoded once by the server, or plain with its own ``%40`` in it."""
    scope: dict[str, Any] = getattr(request, "scope", {})
    raw = scope.get("raw_path", b"").decode("latin-1").partition("/circuits/")[2]
    raw = raw.removesuffix(suffix)
    found = []
    for text in (name, raw, unquote(name)):
        try:
            found.append(parse_circuit(text))
        except ValueError:
            continue
    return found


def _circuit(report: circuits.CircuitReport, rates: Mapping[Name, Rates]) -> dict[str, Any]:
    return objects.circuit(report, rates.get(report.name, Rates()))
