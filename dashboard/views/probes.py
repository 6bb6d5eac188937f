"""Probe now: open breakers of a circuit try again before their time, and each is followed.

Invariant: asking needs a reason, and "recorded" is not "probed": the strip follows each instance.
"""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from controlplane.actions import probes
from controlplane.errors import Problem
from controlplane.models import Probe
from controlplane.reports import progress
from dashboard import present
from dashboard.progress import shown
from dashboard.views.overrides import dialog, is_htmx
from dashboard.views.page import actor_of, problem_fields, room

_PARTS = ("gateway", "selector", "provider", "model", "region")


@require_http_methods(["GET", "HEAD", "POST"])
@room
def new(request: HttpRequest) -> HttpResponse:
    """GET: the dialog. POST: record the wish, then follow it."""
    fields = request.POST if request.method == "POST" else request.GET
    chosen = {part: fields.get(part, "").replace("\x00", "") for part in _PARTS}
    if request.method != "POST":
        return _form(request, chosen, {}, 200)
    try:
        row = probes.probe_now(
            actor=actor_of(request),
            reason=fields.get("reason", ""),
            now=timezone.now(),
            **{part: fields.get(part, "") for part in _PARTS},
        )
    except Problem as problem:
        status = 200 if is_htmx(request) else problem.status
        return _form(request, chosen, problem_fields(problem), status)
    if is_htmx(request):
        return _progress(request, row)
    return HttpResponseRedirect(reverse("probe", args=[row.name]))


@require_safe
@room
def one(request: HttpRequest, name: str) -> HttpResponse:
    """One probe with its progress at each instance."""
    row = Probe.objects.filter(name=name).first()
    if row is None:
        raise Http404(f"No probe is named {name}")
    return _progress(request, row)


def _form(
    request: HttpRequest, chosen: dict[str, str], faults: dict[str, str], status: int
) -> HttpResponse:
    context: dict[str, Any] = {
        "chosen": chosen,
        "about": present.match_words(chosen["provider"], chosen["model"], chosen["region"]),
        "gateways": present.gateways_words(chosen["gateway"], chosen["selector"]),
        "reason": request.POST.get("reason", ""),
        "lasts": int(probes.LASTS.total_seconds()),
        "faults": faults,
    }
    return dialog(request, "overrides/probe.html", context, status=status)


def _progress(request: HttpRequest, row: Probe) -> HttpResponse:
    now = timezone.now()
    far = shown(progress.of_item(row, now), now)
    over = row.ended_at is not None or row.expires_at <= now
    context = {
        "row": row,
        "about": present.match_words(row.provider, row.model, row.region),
        "gateways": present.gateways_words(row.gateway, row.selector),
        "progress": far,
        "over": over,
        "poll": not over and (not far.settled or far.since_s < 5),
    }
    return dialog(request, "overrides/probing.html", context)
