"""``/probes``: let open breakers try again now, and see which did.

Invariant: HTTP shape only; what it means is in ``actions.probes``.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router

from controlplane.actions import probes
from controlplane.api import objects
from controlplane.api.bodies import ProbeIn
from controlplane.api.door import answer
from controlplane.api.idempotency import once
from controlplane.api.overrides import actor_of
from controlplane.errors import NotFound
from controlplane.models import Probe, Revision
from controlplane.reports import fleet, progress

router = Router(tags=["probes"])


@router.get("", summary="List probes")
def list_probes(request: HttpRequest, limit: int = Query(100, ge=1, le=1000)) -> HttpResponse:
    """Newest first."""
    now = datetime.now(UTC)
    among = fleet.instances(now)
    rows = list(Probe.objects.order_by("-id")[:limit])
    far = progress.of_items(rows, now, among)
    found = [objects.probe(row, one, now) for row, one in zip(rows, far, strict=True)]
    return answer(objects.many("Probe", found, Revision.objects.get(id=1).value))


@router.get("/{name}", summary="One probe, with each instance's word")
def get_probe(request: HttpRequest, name: str) -> HttpResponse:
    """Delivered and obeyed at each instance, in ms since it was recorded."""
    row = Probe.objects.filter(name=name).first()
    if row is None:
        raise NotFound(f"No probe is named {name!r}.")
    now = datetime.now(UTC)
    return answer(objects.probe(row, progress.of_item(row, now), now))


@router.post("", summary="Let open breakers probe now")
def create_probe(request: HttpRequest, payload: ProbeIn) -> HttpResponse:
    """Needs operator and a reason. A circuit that an override holds open stays so."""
    actor, now = actor_of(request), datetime.now(UTC)

    def act() -> tuple[int, Any]:
        spec = payload.spec
        row = probes.probe_now(actor=actor, reason=spec.reason, now=now, **spec.parts())
        return 201, objects.probe(row, progress.of_item(row, now), now)

    return once(request, actor, now, act)
