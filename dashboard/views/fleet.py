"""Gateways and their instances: in contact, in sync, at which generation.

Invariant: what is shown of a silent instance is its last word, named and dated as such.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from controlplane.reports import wall
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
    gateways = []
    for gateway in now.gateways:
        members = [m for m in fleet.members.values() if m.gateway.id == gateway.id]
        lines = [
            {
                "m": member,
                "tone": SYNC_TONES[member.verdict.sync][0],
                "glyph": SYNC_TONES[member.verdict.sync][1],
            }
            for member in members
        ]
        words = gateway_line(gateway, members) if members else None
        gateways.append({"row": gateway, "lines": lines, "g": words})
    return show(request, "fleet/list.html", {"gateways": gateways}, at="gateways")
