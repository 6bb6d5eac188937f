"""The force dialog: what is chosen, what it would stop now, and the write.

Invariant: the form says what it would do before it does it; a fault brings it back with everything
that was typed, and nothing was written.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.actions import overrides
from controlplane.domain.overrides import LIFETIMES, OverrideMode
from controlplane.domain.precedence import Selection
from controlplane.domain.selectors import parse_selector
from controlplane.errors import Conflict, Problem
from controlplane.models import Circuit, Gateway
from controlplane.reports import effect, wall
from dashboard import present
from dashboard.fleet import Fleet
from dashboard.views.overrides import PRESETS, dialog, is_htmx, minutes_of, progress_answer
from dashboard.views.page import actor_of, problem_fields, room
from dashboard.views.providers import status_page

_PARTS = ("gateway", "selector", "provider", "model", "region")


@require_http_methods(["GET", "HEAD", "POST"])
@room
def new(request: HttpRequest) -> HttpResponse:
    """GET: the dialog. POST: force, then the propagation strip; faults come back in the form."""
    if request.method != "POST":
        return _form(request, request.GET, {})
    fields = request.POST
    mode = fields.get("mode", "")
    try:
        row = overrides.force(
            actor=actor_of(request),
            mode=mode,
            reason=fields.get("reason", ""),
            expires_in=minutes_of(fields.get("minutes", "")),
            allow_last_healthy=fields.get("allow_last_healthy") == "on",
            replace=fields.get("replace", ""),
            now=timezone.now(),
            **{part: fields.get(part, "") for part in _PARTS},
        )
    except Problem as problem:
        return _form(request, fields, problem_fields(problem), problem)
    if request.htmx:  # type: ignore[attr-defined]
        return progress_answer(request, row)
    return HttpResponseRedirect(reverse("override", args=[row.name]))


@require_POST
@room
def preview(request: HttpRequest) -> HttpResponse:
    """The dialog again, with the effect of what is now chosen. Nothing is written."""
    return _form(request, request.POST, {})


def _form(
    request: HttpRequest,
    fields: QueryDict,
    faults: dict[str, str],
    problem: Problem | None = None,
) -> HttpResponse:
    mode = _mode(fields.get("mode", ""))
    chosen = {part: fields.get(part, "").replace("\x00", "") for part in _PARTS}
    selection = Selection(**chosen)
    default = int(LIFETIMES[mode].default.total_seconds() // 60)
    wanted = minutes_of(fields.get("minutes", ""))
    minutes = int(wanted.total_seconds() // 60) if wanted else default
    if minutes not in PRESETS[mode]:
        minutes = default
    now = timezone.now()
    fleet = Fleet(wall.read_present())
    if selection.selector and not _readable(selection.selector):
        faults = faults | {"selector": "write key=value pairs, separated by commas"}
        selection = Selection(**(chosen | {"selector": ""}))
    members = [
        m
        for m in fleet.members.values()
        if selection.covers_gateway(m.gateway.name, m.gateway.labels)
    ]
    context = {
        "mode": mode,
        "modes": list(OverrideMode),
        "chosen": chosen,
        "title": present.match_words(selection.provider, selection.model, selection.region),
        "options": _options(selection),
        "effect": _effect_words(selection, now),
        "in_contact": sum(m.reachable for m in members),
        "silent": sum(not m.reachable for m in members),
        "reason": fields.get("reason", ""),
        "presets": [(m, present.lasting(m * 60)) for m in PRESETS[mode]],
        "longest": present.lasting(LIFETIMES[mode].longest.total_seconds()),
        "minutes": minutes,
        "ends_at": now + timedelta(minutes=minutes),
        "allow_last_healthy": fields.get("allow_last_healthy") == "on",
        "faults": faults,
        "status_url": status_page(selection.provider) if selection.provider else "",
        "held": problem.data.get("current") if isinstance(problem, Conflict) else None,
        "asked_at": now,
    }
    status = problem.status if problem is not None and not is_htmx(request) else 200
    return dialog(request, "overrides/force.html", context, status=status)


def _readable(selector: str) -> bool:
    try:
        parse_selector(selector)
    except ValueError:
        return False
    return True


def _mode(text: str) -> OverrideMode:
    try:
        return OverrideMode(text)
    except ValueError:
        return OverrideMode.FORCE_OPEN


def _options(selection: Selection) -> dict[str, list[str]]:
    """What each list offers: what exists under the choice before it."""
    rows = Circuit.objects.all()
    options = {"provider": rows}
    if selection.provider:
        rows = rows.filter(provider=selection.provider)
    options["model"] = rows
    if selection.model:
        rows = rows.filter(model=selection.model)
    options["region"] = rows
    found = {
        part: sorted(set(some.order_by().values_list(part, flat=True)) - {""})
        for part, some in options.items()
    }
    found["gateway"] = list(Gateway.objects.order_by("name").values_list("name", flat=True))
    for part in ("provider", "model", "region", "gateway"):
        # A name that is no longer known stays chosen, and the write says what is wrong with it.
        value = getattr(selection, part)
        if value and value not in found[part] and value != "-":
            found[part].insert(0, value)
    return found


def _effect_words(selection: Selection, now: datetime) -> dict[str, Any]:
    found = effect.read(selection, now)
    rates = found.rates
    refused = (rates.refused_breaker + rates.refused_override) / 60
    return {
        "circuits": len(found.circuits),
        "calls": present.rate(rates.attempts / 60),
        "refused": present.rate(refused),
        "spend": f"{present.money(rates.cost_gbp)}/min",
        "wasted": f"{present.money(rates.wasted_gbp)}/min",
        "unpriced": round(rates.unpriced),
        "routes": found.routes,
    }
