"""Gateways and their instances: in contact, in sync, at which generation.

Invariant: what is shown of a silent instance is its last word, named and dated as such.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from controlplane.api import objects as api
from controlplane.domain.precedence import Selection, precedence
from controlplane.domain.sync import NOT_ON_DISK, Sync
from controlplane.models import BreakerPolicy, Gateway, Override, RetryBudget, Route
from controlplane.reports import fleet as reports
from controlplane.reports import wall, wall_rows
from dashboard import events, objects, present
from dashboard.cards import STATE_TONES, circuit_url
from dashboard.circuits import at_gateway, facts_of
from dashboard.fleet import Fleet
from dashboard.strip import gateway_line
from dashboard.views.circuits import SYNC_TONES
from dashboard.views.page import room, show


@require_safe
@room
def listing(request: HttpRequest) -> HttpResponse:
    """Every gateway with its instances."""
    now = wall.read_present()
    fleet = Fleet(now)
    gateways = [_described(fleet, gateway) for gateway in now.gateways]
    return show(request, "fleet/list.html", {"gateways": gateways}, at="gateways")


def _described(fleet: Fleet, gateway: wall_rows.GatewayRow) -> dict[str, Any]:
    members = [m for m in fleet.members.values() if m.gateway.id == gateway.id]
    lines = []
    for member in members:
        # What is enforced and would not outlive a restart is no plain tick.
        is_saved = member.verdict.reason != NOT_ON_DISK
        tone, glyph = SYNC_TONES[member.verdict.sync if is_saved else Sync.STALE]
        lines.append({"m": member, "tone": tone, "glyph": glyph})
    words = gateway_line(gateway, members) if members else None
    return {"row": gateway, "lines": lines, "g": words}


@require_safe
@room
def one(request: HttpRequest, name: str) -> HttpResponse:
    """One gateway: its instances, what it is told, what is open there, what happened."""
    at = timezone.now()
    found = reports.read(at, name)
    if not found:
        raise Http404(f"No gateway is named {name}")
    report = found[0]
    read = wall.read()
    fleet = Fleet(read.now)
    gateway = next(row for row in read.now.gateways if row.name == name)
    happened = events.newest(
        events.written("Gateway", name), events.of_gateway(report.row), _hands(report, at)
    )
    site = request.build_absolute_uri("/").rstrip("/")
    context = _described(fleet, gateway) | {
        "report": report,
        "object": objects.page(api.gateway(report, at), "gateways", happened, site),
        "told": _told(report.row),
        "circuits": _circuits(read, fleet, gateway),
        "local": [one for one in read.now.local if one.gateway_id == gateway.id],
    }
    return show(request, "fleet/one.html", context, at="gateways")


def _hands(report: reports.GatewayReport, at: datetime) -> list[events.Event]:
    """The overrides that are about this gateway by name or by its labels."""
    rows = Override.objects.order_by("-created_at")[:200]
    mine = [
        row
        for row in rows
        if (row.gateway or row.selector)
        and Selection(row.gateway, row.selector).covers_gateway(report.row.name, report.row.labels)
    ]
    return events.forced(mine, at)


def _told(gateway: Gateway) -> list[dict[str, Any]]:
    """What is about it, in order of precedence: what its snapshot is compiled from."""
    found = []
    for kind, page, rows in (
        ("Override", "override", Override.objects.filter(ended_at=None)),
        ("BreakerPolicy", "policy", BreakerPolicy.objects.all()),
        ("RetryBudget", "budget", RetryBudget.objects.all()),
        ("Route", "route", Route.objects.all()),
    ):
        about = [r for r in rows if _selection(r).covers_gateway(gateway.name, gateway.labels)]
        about.sort(key=lambda row: precedence(_selection(row), row.name, getattr(row, "mode", "")))
        found += [
            {
                "kind": kind,
                "row": row,
                "href": reverse(page, args=[row.name]),
                "about": present.match_words(row.provider, row.model, row.region),
                "gateways": present.gateways_words(row.gateway, row.selector),
            }
            for row in about
        ]
    return found


def _selection(row: Override | BreakerPolicy | RetryBudget | Route) -> Selection:
    return Selection(
        row.gateway, row.selector, row.provider, row.model, row.region, getattr(row, "tenant", "")
    )


def _circuits(
    read: wall_rows.Wall, fleet: Fleet, gateway: wall_rows.GatewayRow
) -> list[dict[str, Any]]:
    """Its circuits as its own instances have them, the sick first."""
    found = []
    for whole in facts_of(read, fleet):
        facts = at_gateway(whole, gateway.name)
        if facts.breakers or facts.silent:
            tone, glyph = STATE_TONES[facts.worst_state]
            found.append((facts.rank, facts.row, facts, tone, glyph))
    found.sort(key=lambda one: (one[0], one[1].provider, one[1].model, one[1].region))
    return [
        {
            "row": row,
            "href": circuit_url(row.circuit),
            "state": facts.worst_state,
            "count": f"{facts.states[facts.worst_state]}/{facts.total}" if facts.total else "",
            "tone": tone,
            "glyph": glyph,
            "since": facts.since,
            "override": facts.override,
        }
        for _, row, facts, tone, glyph in found
    ]
