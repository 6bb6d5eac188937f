"""The force dialog, its propagation strip, releasing and extending, and the list.

Invariant: a form says what it would do before it does it, and after it did, the same dialog follows
each instance; ``Recorded`` is never shown as done. Without JavaScript the same pages work by links.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from controlplane.actions import overrides
from controlplane.domain.overrides import LIFETIMES, OverrideMode
from controlplane.domain.precedence import Selection
from controlplane.domain.selectors import parse_selector
from controlplane.errors import Conflict, Problem
from controlplane.models import Circuit, Delivery, Gateway, Override
from controlplane.reports import effect, wall
from dashboard import present
from dashboard.fleet import Fleet
from dashboard.progress import Progress, follow
from dashboard.views.page import actor_of, problem_fields, room, show

PRESETS = {
    OverrideMode.FORCE_OPEN: (5, 15, 60, 240, 1440),
    OverrideMode.FORCE_CLOSED: (5, 15, 30, 60, 120),
    OverrideMode.OBSERVE_ONLY: (60, 240, 1440, 4320, 10080),
}
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
            expires_in=_minutes(fields.get("minutes", "")),
            allow_last_healthy=fields.get("allow_last_healthy") == "on",
            replace=fields.get("replace", ""),
            now=timezone.now(),
            **{part: fields.get(part, "") for part in _PARTS},
        )
    except Problem as problem:
        return _form(request, fields, problem_fields(problem), problem)
    if request.htmx:  # type: ignore[attr-defined]
        return _progress_answer(request, row)
    return HttpResponseRedirect(reverse("override", args=[row.name]))


@require_POST
@room
def preview(request: HttpRequest) -> HttpResponse:
    """The dialog again, with the effect of what is now chosen. Nothing is written."""
    return _form(request, request.POST, {})


def _minutes(text: str) -> timedelta | None:
    return (
        timedelta(minutes=int(text))
        if text.isascii() and text.isdigit() and len(text) < 7
        else None
    )


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
    wanted = _minutes(fields.get("minutes", ""))
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
        "held": problem.data.get("current") if isinstance(problem, Conflict) else None,
        "asked_at": now,
    }
    status = problem.status if problem is not None and not _is_htmx(request) else 200
    return _dialog(request, "overrides/force.html", context, status=status)


def _is_htmx(request: HttpRequest) -> bool:
    return bool(request.htmx)  # type: ignore[attr-defined]


def _dialog(
    request: HttpRequest, fragment: str, context: dict[str, Any], status: int = 200
) -> HttpResponse:
    """A fragment into the open dialog, or the same on a page of its own."""
    if _is_htmx(request):
        return show(request, fragment, context, at="overrides", status=status)
    whole = context | {"fragment": fragment}
    return show(request, "overrides/alone.html", whole, at="overrides", status=status)


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


def _progress_of(row: Override, now: datetime) -> Progress:
    fleet = Fleet(wall.read_present())
    heard = Delivery.objects.filter(uid=str(row.uid), generation=row.generation)
    return follow(row, fleet, heard, now)


def _progress_answer(request: HttpRequest, row: Override) -> HttpResponse:
    now = timezone.now()
    progress = _progress_of(row, now)
    poll = not progress.settled or progress.since_s < 5
    about = present.match_words(row.provider, row.model, row.region)
    context = {
        "row": row,
        "about": about,
        "gateways": present.gateways_words(row.gateway, row.selector),
        "progress": progress,
        "poll": poll and progress.since_s < 3600,
        "over": row.ended_at is not None or row.expires_at <= now,
        "presets": [(m, present.lasting(m * 60)) for m in PRESETS[OverrideMode(row.mode)]],
    }
    return _dialog(request, "overrides/progress.html", context)


def _row(name: str) -> Override:
    row = Override.objects.filter(name=name).first()
    if row is None:
        raise Http404(f"No override is named {name}")
    return row


@require_GET
@room
def one(request: HttpRequest, name: str) -> HttpResponse:
    """One override with its progress at each instance."""
    return _progress_answer(request, _row(name))


@require_POST
@room
def release(request: HttpRequest, name: str) -> HttpResponse:
    """End it now."""
    return _act(request, name, "release")


@require_POST
@room
def extend(request: HttpRequest, name: str) -> HttpResponse:
    """Move its end, counted from now."""
    return _act(request, name, "extend")


def _act(request: HttpRequest, name: str, what: str) -> HttpResponse:
    row = _row(name)
    now, actor = timezone.now(), actor_of(request)
    try:
        if what == "release":
            row = overrides.release(
                actor=actor, name=name, now=now, reason=request.POST.get("reason", "")
            )
        else:
            row = overrides.extend(
                actor=actor,
                name=name,
                now=now,
                expires_in=_minutes(request.POST.get("minutes", "")),
                reason=request.POST.get("reason", ""),
                expected_version=_version(request),
            )
    except Problem as problem:
        context = {"problem": problem, "row": row}
        status = 200 if _is_htmx(request) else problem.status
        return _dialog(request, "overrides/problem.html", context, status=status)
    if _is_htmx(request):
        return _progress_answer(request, row)
    return HttpResponseRedirect(reverse("override", args=[row.name]))


def _version(request: HttpRequest) -> int | None:
    text = request.POST.get("version", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


@require_GET
@room
def listing(request: HttpRequest) -> HttpResponse:
    """What is in force with its progress, and what has ended lately."""
    now = timezone.now()
    fleet = Fleet(wall.read_present())
    rows = Override.objects.filter(ended_at=None).order_by("expires_at", "name")
    active = [row for row in rows if row.expires_at > now]
    heard: dict[str, list[Delivery]] = {}
    for delivery in Delivery.objects.filter(uid__in=[str(row.uid) for row in active]):
        heard.setdefault(f"{delivery.uid}/{delivery.generation}", []).append(delivery)
    ended = Override.objects.exclude(pk__in=[row.pk for row in active]).order_by("-created_at")
    context = {
        "active": [
            {
                "row": row,
                "about": present.match_words(row.provider, row.model, row.region),
                "gateways": present.gateways_words(row.gateway, row.selector),
                "progress": follow(row, fleet, heard.get(f"{row.uid}/{row.generation}", []), now),
            }
            for row in active
        ],
        "ended": [
            {
                "row": row,
                "about": present.match_words(row.provider, row.model, row.region),
                "gateways": present.gateways_words(row.gateway, row.selector),
                "cause": row.end_cause or "Expired",
                "at": row.ended_at or row.expires_at,
            }
            for row in ended[:50]
        ],
        "mine": sum(row.created_by == actor_of(request).name for row in active),
    }
    return show(request, "overrides/list.html", context, at="overrides")


@require_POST
@room
def release_mine(request: HttpRequest) -> HttpResponse:
    """End everything that this person forced."""
    try:
        overrides.release_mine(
            actor=actor_of(request), now=timezone.now(), reason=request.POST.get("reason", "")
        )
    except Problem as problem:
        return _dialog(
            request, "overrides/problem.html", {"problem": problem, "row": None}, problem.status
        )
    return HttpResponseRedirect(reverse("overrides"))
