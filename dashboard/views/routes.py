"""Routes: which targets may serve a name, in which order, and which of them are approved.

Invariant: read only: a route is an admin's file (``switchgear apply -f``), because an approval
names a person, what was tested and until when. A target that is not approved now says so.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from controlplane.actions import revisions, routes
from controlplane.api.setting_objects import alone
from controlplane.domain.circuit import Circuit as Name
from controlplane.models import Role, Route
from controlplane.reports import effect, fleet, progress
from controlplane.reports.wall import Rates
from dashboard import approvals, cards, events, objects, present
from dashboard.progress import shown
from dashboard.views.page import person_of, room, show


@require_safe
@room
def listing(request: HttpRequest) -> HttpResponse:
    """Every route with its targets in order."""
    now = timezone.now()
    rows = list(Route.objects.order_by("name"))
    far = progress.of_items(rows, now, fleet.instances(now))
    found = [
        {
            "row": row,
            "gateways": present.gateways_words(row.gateway, row.selector),
            "targets": _targets(row, now, {}),
            "progress": shown(one, now),
        }
        for row, one in zip(rows, far, strict=True)
    ]
    return show(request, "routes/list.html", {"routes": found}, at="budgets")


@require_safe
@room
def one(request: HttpRequest, name: str) -> HttpResponse:
    """One route."""
    row = Route.objects.filter(name=name).first()
    if row is None:
        raise Http404(f"No route is named {name}")
    now = timezone.now()
    far = progress.of_item(row, now)
    happened = events.newest(
        events.written("Route", row.name),
        events.delivered(str(row.uid), row.updated_at, row.generation),
    )
    site = request.build_absolute_uri("/").rstrip("/")
    body, targets = alone(row, far, now), _targets(row, now, effect.rates_by_circuit(now))
    if Role(person_of(request).role).includes(Role.ADMIN):
        by = person_of(request).username
        for place, target in enumerate(targets):
            approve = not target["approved"] or target["ends_soon"]
            target["approves"] = approve
            target["command"] = approvals.command(body, place, approve=approve, by=by, now=now)
    context = {
        "row": row,
        "gateways": present.gateways_words(row.gateway, row.selector),
        "targets": targets,
        "lasts": approvals.LASTS.days,
        "object": objects.page(body, "routes", happened, site),
        "progress": shown(far, now),
        "history": revisions.history(routes.ROUTES, row.name)[1:50],
    }
    return show(request, "routes/one.html", context, at="budgets")


def _targets(row: Route, now: datetime, rates: dict[Name, Rates]) -> list[dict[str, Any]]:
    return [_target(target, now, rates) for target in row.spec.get("targets", [])]


def _target(target: dict[str, Any], now: datetime, rates: dict[Name, Rates]) -> dict[str, Any]:
    name = Name(target["provider"], target["model"], target.get("region", ""))
    until = _moment(target.get("approved_until"))
    approved = bool(target.get("approved", True)) and (until is None or until > now)
    own = rates.get(name)
    return {
        "name": str(name),
        "href": cards.circuit_url(name),
        "approved": approved,
        "ends_soon": approved and until is not None and until <= now + approvals.SOON,
        "lapsed": bool(target.get("approved", True)) and not approved,
        "by": target.get("approved_by", ""),
        "at": _moment(target.get("approved_at")),
        "until": until,
        "features": ", ".join(target.get("features", [])),
        "regions": ", ".join(target.get("processing_regions", [])),
        "transfer": target.get("transfer_mechanism", ""),
        "retention": target.get("retention_days"),
        "calls": present.rate(own.attempts / 60) if own else present.NOT_KNOWN,
        "failed": present.failure(own.failure_ratio) if own else present.NOT_KNOWN,
    }


def _moment(text: object) -> datetime | None:
    return datetime.fromisoformat(str(text)) if text else None
