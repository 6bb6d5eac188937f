"""Following, releasing and extending overrides, and their list.

Invariant: after a write the dialog follows each instance; ``Recorded`` is never shown as done.
Without JavaScript the same pages work by links.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from controlplane.actions import approvals, overrides
from controlplane.api import override_objects
from controlplane.domain.overrides import OverrideMode
from controlplane.errors import Problem
from controlplane.models import Instance, Override, PendingOverride, Probe
from controlplane.reports import fleet, landing, progress
from controlplane.reports.progress import Progress
from dashboard import events, objects, present, spelled
from dashboard.progress import shown
from dashboard.views.page import actor_of, room, show

PRESETS = {
    OverrideMode.FORCE_OPEN: (5, 15, 30, 60, 240, 1440),
    OverrideMode.FORCE_CLOSED: (5, 15, 30, 60, 120),
    OverrideMode.OBSERVE_ONLY: (60, 240, 1440, 4320, 10080),
}
_SOONEST = ("expires_at", "name")
_PROBES = 10


def minutes_of(text: str) -> timedelta | None:
    """A length of whole minutes; None when it is not one."""
    return (
        timedelta(minutes=int(text))
        if text.isascii() and text.isdigit() and len(text) < 7
        else None
    )


# What asks for itself again, by its id; and the status at which htmx asks no more.
_POLLED = ("spread", "probing")
_POLL_NO_MORE = 286


def is_htmx(request: HttpRequest) -> bool:
    """True for a fragment that htmx asks for."""
    return bool(request.htmx)  # type: ignore[attr-defined]


def dialog(
    request: HttpRequest, fragment: str, context: dict[str, Any], status: int = 200
) -> HttpResponse:
    """A fragment into the open dialog, or the same on a page of its own."""
    if is_htmx(request):
        polled = request.headers.get("HX-Trigger") in _POLLED
        if polled and not context.get("poll"):
            status = _POLL_NO_MORE
        whole = context | {"polled": polled}
        return show(request, fragment, whole, at="overrides", status=status)
    whole = context | {"fragment": fragment}
    return show(request, "overrides/alone.html", whole, at="overrides", status=status)


def progress_answer(request: HttpRequest, row: Override) -> HttpResponse:
    """The propagation strip: one dot for each instance, asked for again until all are settled."""
    now = timezone.now()
    read = progress.of_item(row, now)
    where = landing.read(row, now) if row.ended_at is None else {}
    context = _progress(request, row, read, dict(where), now)
    return dialog(request, "overrides/progress.html", context)


def pending_answer(request: HttpRequest, row: PendingOverride) -> HttpResponse:
    """The request: in the dialog, or on a page of its own."""
    context = about_pending(row, timezone.now(), actor_of(request).name)
    return dialog(request, "overrides/pending.html", context)


def about_pending(row: PendingOverride, now: datetime, reader: str) -> dict[str, Any]:
    """One request as its templates take it."""
    return {
        "row": row,
        "about": present.match_words(row.provider, row.model, row.region),
        "gateways": present.gateways_words(row.gateway, row.selector),
        "phase": approvals.phase_of(row, now),
        "lasts": present.lasting(row.lasts_seconds) if row.lasts_seconds else "",
        "own": row.requested_by == reader,
    }


def _progress(
    request: HttpRequest, row: Override, read: Progress, where: dict[str, int], now: datetime
) -> dict[str, Any]:
    far = shown(read, now)
    poll = not far.settled or far.since_s < 5
    return {
        "row": row,
        "about": present.match_words(row.provider, row.model, row.region),
        "gateways": present.gateways_words(row.gateway, row.selector),
        "progress": far,
        "poll": poll and far.since_s < 3600 and is_htmx(request),
        "yaml": spelled.as_yaml(row),
        "curl": spelled.as_curl(row, _site(request)),
        "cli": spelled.as_cli(row),
        "landing": where,
        "over": row.ended_at is not None or row.expires_at <= now,
        "presets": [(m, present.lasting(m * 60)) for m in PRESETS[OverrideMode(row.mode)]],
    }


def _site(request: HttpRequest) -> str:
    return request.build_absolute_uri("/").rstrip("/")


def _row(name: str) -> Override:
    row = Override.objects.filter(name=name).first()
    if row is None:
        raise Http404(f"No override is named {name}")
    return row


@require_GET
@room
def one(request: HttpRequest, name: str) -> HttpResponse:
    """One override with its progress at each instance: in the dialog, or as its own page."""
    asked = PendingOverride.objects.filter(name=name).exclude(decision="Approved").first()
    if asked is not None:
        return pending_answer(request, asked)
    row = _row(name)
    return progress_answer(request, row) if is_htmx(request) else _page(request, row)


def _page(request: HttpRequest, row: Override) -> HttpResponse:
    now = timezone.now()
    far = progress.of_item(row, now)
    happened = events.newest(
        events.written("Override", row.name),
        events.delivered(str(row.uid), row.updated_at, row.generation),
    )
    body = override_objects.alone(row, far, now)
    context = _progress(request, row, far, body["status"].get("landing", {}), now)
    context["object"] = objects.page(body, "overrides", happened, _site(request))
    return show(request, "overrides/one.html", context, at="overrides")


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
                expires_in=minutes_of(request.POST.get("minutes", "")),
                reason=request.POST.get("reason", ""),
                expected_version=_version(request),
            )
    except Problem as problem:
        context = {"problem": problem, "row": row}
        status = 200 if is_htmx(request) else problem.status
        return dialog(request, "overrides/problem.html", context, status=status)
    if is_htmx(request):
        return progress_answer(request, row)
    return HttpResponseRedirect(reverse("override", args=[row.name]))


def _version(request: HttpRequest) -> int | None:
    text = request.POST.get("version", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


@require_GET
@room
def listing(request: HttpRequest) -> HttpResponse:
    """What is in force with its progress, and what has ended lately."""
    now = timezone.now()
    among = fleet.instances(now)
    active = list(Override.objects.filter(ended_at=None, expires_at__gt=now).order_by(*_SOONEST))
    ended = Override.objects.exclude(pk__in=[row.pk for row in active]).order_by("-created_at")
    context = {
        "active": _followed(active, now, among),
        "pending": [
            about_pending(row, now, actor_of(request).name)
            for row in approvals.waiting(now).order_by("approve_before")
        ],
        "local": fleet.local_overrides(now),
        "probes": _followed(list(Probe.objects.order_by("-id")[:_PROBES]), now, among),
        "ended": [
            _about(row)
            | {"cause": row.end_cause or "Expired", "at": row.ended_at or row.expires_at}
            for row in ended[:50]
        ],
        "mine": sum(row.created_by == actor_of(request).name for row in active),
    }
    return show(request, "overrides/list.html", context, at="overrides")


def _followed(
    rows: Sequence[Override | Probe], now: datetime, among: Sequence[Instance]
) -> list[dict[str, Any]]:
    found = zip(rows, progress.of_items(rows, now, among), strict=True)
    return [_about(row) | {"progress": shown(report, now)} for row, report in found]


def _about(row: Override | Probe) -> dict[str, Any]:
    return {
        "row": row,
        "about": present.match_words(row.provider, row.model, row.region),
        "gateways": present.gateways_words(row.gateway, row.selector),
    }


@require_POST
@room
def release_mine(request: HttpRequest) -> HttpResponse:
    """End everything that this person forced."""
    try:
        overrides.release_mine(
            actor=actor_of(request), now=timezone.now(), reason=request.POST.get("reason", "")
        )
    except Problem as problem:
        return dialog(
            request, "overrides/problem.html", {"problem": problem, "row": None}, problem.status
        )
    return HttpResponseRedirect(reverse("overrides"))
