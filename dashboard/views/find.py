"""Find circuits, gateways, tenants, tasks; and one task's trace.

Invariant: what is asked for is only ever matched, never run; an exact hit of one task goes straight
to its trace, and of several none is guessed.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from controlplane.domain.circuit import Circuit as Name
from controlplane.models import Gateway
from controlplane.reports import finding, telemetry
from dashboard import cards, present
from dashboard.views.page import room, show


@require_safe
@room
def page(request: HttpRequest) -> HttpResponse:
    """Everything that matches ``q``."""
    q = request.GET.get("q", "").replace("\x00", "").strip()[:200]
    found = finding.find(q, timezone.now()) if q else None
    if found and len(found.tasks) == 1 and not (found.circuits or found.gateways):
        return HttpResponseRedirect(trace_url(found.tasks[0]))
    context = {
        "q": q,
        "found": found,
        "circuits": [(_name(c), cards.circuit_url(_name(c))) for c in found.circuits]
        if found
        else [],
        "tasks": [(hit, trace_url(hit)) for hit in found.tasks] if found else [],
        "tenants": [
            (t, present.money(t.cost_gbp), present.money(t.wasted_final_gbp)) for t in found.tenants
        ]
        if found
        else [],
        "most": finding.MOST,
    }
    return show(request, "find/list.html", context)


def _name(row: Any) -> Name:
    return Name(row.provider, row.model, row.region)


def trace_url(hit: finding.TaskHit | finding.Known) -> str:
    """The page of a task at its gateway and tenant."""
    where = {"gateway": hit.gateway, "tenant": hit.tenant}
    return f"{reverse('task', args=[hit.id])}?{urlencode(where)}"


@require_safe
@room
def task(request: HttpRequest, name: str) -> HttpResponse:
    """What happened to one task, in order; where else it may be when it is not one alone."""
    gateway, tenant = _asked(request, "gateway"), _asked(request, "tenant")
    found = [] if "\x00" in name else finding.where_known(name, gateway or None, tenant or None)
    if len(found) != 1:
        return _not_one(request, name, gateway, tenant, found)
    (hit,) = found
    if (hit.id, hit.gateway, hit.tenant) != (name, gateway, tenant):
        return HttpResponseRedirect(trace_url(hit))
    trace = finding.trace(hit.gateway_id, hit.tenant, hit.id)
    if trace is None:  # its last event was dropped between the two readings
        return _not_one(request, name, gateway, tenant, [])
    context = {
        "name": name,
        "tenant": tenant,
        "gateway": hit.gateway,
        "trace": trace,
        "cost": present.money(trace.cost_gbp),
        "rows": [_row(row, trace.rows[0]) for row in trace.rows],
    }
    return show(request, "find/task.html", context)


def _asked(request: HttpRequest, field: str) -> str:
    return request.GET.get(field, "").replace("\x00", "").strip()[:200]


def _not_one(
    request: HttpRequest, name: str, gateway: str, tenant: str, found: list[finding.Known]
) -> HttpResponse:
    """No such task (404), or several places at which it is known: nothing is guessed."""
    elsewhere: list[finding.Known] = []
    if not found and (gateway or tenant) and "\x00" not in name:
        elsewhere = finding.where_known(name, None, None)
    places = found or elsewhere
    context = {
        "name": name,
        "gateway": gateway,
        "tenant": tenant,
        "no_gateway": bool(gateway) and not Gateway.objects.filter(name=gateway).exists(),
        "several": bool(found),
        "places": [(hit, trace_url(hit)) for hit in places],
        "most": len(places) == finding.MOST_PLACES,
        "days": settings.RAW_RETENTION_DAYS,
    }
    return show(request, "find/no_task.html", context, status=200 if found else 404)


def _row(row: telemetry.TraceRow, first: telemetry.TraceRow) -> dict[str, Any]:
    after = (row.occurred_at - first.occurred_at).total_seconds()
    circuit = Name(row.provider, row.model or "", row.region or "") if row.provider else None
    return {
        "row": row,
        "after": f"+{after:.3f} s",
        "circuit": circuit,
        "href": cards.circuit_url(circuit) if circuit else "",
        "cost": present.money(row.cost_gbp) if row.kind == "attempt" else "",
        "took": f"{row.ended_ms:,} ms" if row.ended_ms is not None else present.NOT_KNOWN,
        "tone": _tone(row),
        "words": _words(row),
    }


def _tone(row: telemetry.TraceRow) -> str:
    if row.kind == "refusal":
        return "half"
    good = row.success if row.kind == "outcome" else row.verdict == "success"
    return "closed" if good else "open"


def _words(row: telemetry.TraceRow) -> str:
    if row.kind == "refusal":
        return f"refused by {row.verdict}"
    if row.kind == "outcome":
        said = " (said by the caller)" if row.explicit else ""
        return ("succeeded" if row.success else "failed") + said
    status = f" {row.status}" if row.status else ""
    return f"{row.verdict}{status}"
