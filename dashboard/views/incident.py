"""The incident's timeline, its marks, and who has it.

Invariant: a stretch that cannot be read is answered in words with 422; a link names its stretch in
UTC, so everybody who opens it sees the same.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from csp.decorators import csp_update
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST, require_safe

from controlplane.actions import annotations, claims
from controlplane.errors import InvalidInput, Problem
from controlplane.reports import incident
from dashboard import drawing, postmortem, present, timeline, timeline_figure
from dashboard.views.page import (
    PLOTLY_STYLES,
    actor_of,
    person_of,
    problem_fields,
    room,
    show,
    zone_of,
)

_PAD = timedelta(minutes=10)
_DEFAULT = timedelta(hours=1)
_MINUTE = timedelta(minutes=1)


@require_safe
@room
@csp_update(PLOTLY_STYLES)  # type: ignore[untyped-decorator]
def page(request: HttpRequest) -> HttpResponse:
    """One stretch of time; by default the last incident of the day, else the last hour."""
    now, zone = timezone.now(), zone_of(person_of(request))
    happened = incident.episodes(now)
    try:
        since, until = _stretch(request, happened, now, zone)
        read = incident.read(since, until, now)
    except InvalidInput as problem:
        context = {"faults": list(problem_fields(problem).items()), "default": reverse("incident")}
        return show(request, "incident/fault.html", context, at="incident", status=422)
    # A stretch without a named end goes on; a link names both, and stands still.
    goes_on = read.until >= now and not request.GET.get("to")
    context = _context(request, read, happened, zone) | {"follows": goes_on}
    return show(request, "incident/one.html", context, at="incident")


@require_POST
@room
def annotate(request: HttpRequest) -> HttpResponse:
    """Write a mark and return to the timeline."""
    zone, now = zone_of(person_of(request)), timezone.now()
    try:
        at = moment(request.POST.get("at", ""), "at", zone) or now
        annotations.annotate(
            actor=actor_of(request), text=request.POST.get("text", ""), at=at, now=now
        )
    except Problem as problem:
        messages.error(request, problem.detail)
    return _back(request)


@require_POST
@room
def claim(request: HttpRequest) -> HttpResponse:
    """Say "I have it", take it over, or give it up."""
    now, actor = timezone.now(), actor_of(request)
    try:
        if request.POST.get("act") == "give-up":
            claims.give_up(actor=actor, now=now)
        else:
            claims.claim(
                actor=actor,
                now=now,
                note=request.POST.get("note", ""),
                take_over=request.POST.get("act") == "take-over",
            )
    except Problem as problem:
        messages.error(request, problem.detail)
    return _back(request)


def _back(request: HttpRequest) -> HttpResponse:
    to = request.POST.get("next", "")
    if not url_has_allowed_host_and_scheme(to, allowed_hosts={request.get_host()}):
        to = reverse("wall")
    return HttpResponseRedirect(to)


def _stretch(
    request: HttpRequest, happened: list[incident.Episode], now: datetime, zone: ZoneInfo
) -> tuple[datetime, datetime]:
    since = moment(request.GET.get("from", ""), "from", zone)
    until = moment(request.GET.get("to", ""), "to", zone)
    if last := request.GET.get("last", ""):
        return now - _length(last), now
    if since is None and until is None and happened:
        return fitted(happened[-1], now)
    until = until or (min(now, since + _DEFAULT) if since else now)
    return since or until - _DEFAULT, until


def _length(text: str) -> timedelta:
    """The stretch of ``last=60``, whole minutes up to now."""
    if not (text.isascii() and text.isdigit() and 1 <= len(text) <= 4 and int(text)):
        fault = {"field": "last", "message": "write whole minutes, at most 1440"}
        raise InvalidInput("last: not a number of minutes", errors=[fault])
    return timedelta(minutes=int(text))


def fitted(episode: incident.Episode, now: datetime) -> tuple[datetime, datetime]:
    """An episode with room on both sides, at most a day of it."""
    until = min(now, (episode.until or now) + _PAD)
    return max(episode.since - _PAD, until - incident.LONGEST), until


def moment(text: str, field: str, zone: ZoneInfo) -> datetime | None:
    """The moment of an ISO 8601 text, in UTC; without an offset it is of the person's zone."""
    if not text:
        return None
    try:
        # A plus in a query is a blank; and fromisoformat overlooks a NUL at the end.
        found = datetime.fromisoformat(text.replace(" ", "+")) if text.isprintable() else None
    except ValueError:
        found = None
    if found is None or not 2000 <= found.year <= 2100:
        fault = {"field": field, "message": "write a time such as 2026-11-30T03:10"}
        raise InvalidInput(f"{field}: not a time", errors=[fault])
    return found.replace(tzinfo=found.tzinfo or zone).astimezone(UTC)


def href(since: datetime, until: datetime, **more: Any) -> str:
    """The link of a stretch, in UTC."""
    spelled = {"from": _spelled(since), "to": _spelled(until)} | more
    return f"{reverse('incident')}?{urlencode(spelled)}"


def _spelled(at: datetime) -> str:
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


def _context(
    request: HttpRequest, read: incident.Incident, happened: list[incident.Episode], zone: ZoneInfo
) -> dict[str, Any]:
    circuits, silent = timeline.lanes(read), timeline.silences(read)
    expanded = _expanded(request, circuits)
    rows = timeline_figure.Rows(
        circuits, timeline.instances(read, expanded) if expanded else [], silent
    )
    found = postmortem.figures(read, circuits)
    events = postmortem.events(read, circuits, silent)
    link = request.build_absolute_uri(href(read.since, read.until))
    figure = timeline_figure.figure(read, rows, zone)
    return {
        "read": read,
        "title": postmortem.title(found),
        "found": found,
        "figures": _figures(found),
        "events": events,
        "markdown": postmortem.markdown(read, found, events, zone, link),
        "link": link,
        "figure": figure,
        "height": figure["layout"]["height"],
        "drawn_first": _drawn_first(read, rows),
        "axis": {"since": read.since.timestamp() * 1000, "local": _naive(read.since, zone)},
        "lanes": circuits,
        "expanded": expanded,
        "episodes": [_episode(e, timezone.now(), read) for e in reversed(happened[-6:])],
        "hour": f"{reverse('incident')}?last={_DEFAULT // _MINUTE}",
        "day": f"{reverse('incident')}?last={incident.LONGEST // _MINUTE}",
        "rewound": f"{reverse('wall')}?{urlencode({'at': _spelled(_middle(read, found))})}",
        "mark_at": f"{_middle(read, found).astimezone(zone):%Y-%m-%dT%H:%M}",
        "day_words": f"{read.since.astimezone(zone):%a %-d %b %Y}",
        "summary": _summary(found, zone),
    }


def _drawn_first(read: incident.Incident, rows: timeline_figure.Rows) -> list[dict[str, Any]]:
    """The lanes as the page draws them itself, until the charts' script is there."""
    whole = read.until - read.since
    return [
        {
            "name": present.cut(lane.name, 24),
            "paths": drawing.stretches(
                (
                    (span.begin - read.since) / whole,
                    (span.end - read.since) / whole,
                    f"hand-{span.kind}" if span.hand else span.kind,
                )
                for span in lane.spans
            ),
        }
        for lane in rows.all
    ]


def _naive(at: datetime, zone: ZoneInfo) -> str:
    return at.astimezone(zone).replace(tzinfo=None).isoformat(timespec="milliseconds")


def _middle(read: incident.Incident, found: postmortem.Figures) -> datetime:
    """The worst moment: the end of the minute that wasted most, else the stretch's end."""
    if found.peak_at is not None:
        return min(found.peak_at + timedelta(minutes=1), read.at, read.until)
    return min(read.until, read.at)


def _expanded(request: HttpRequest, circuits: list[timeline.Lane]) -> int:
    text = request.GET.get("circuit", "")
    asked = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
    return asked if any(lane.circuit_id == asked for lane in circuits) else 0


def _episode(episode: incident.Episode, now: datetime, read: incident.Incident) -> dict[str, Any]:
    since, until = fitted(episode, now)
    return {
        "episode": episode,
        "href": href(since, until),
        "words": f"{', '.join(episode.providers)}, {present.count(episode.circuits, 'circuit')}",
        "here": read.since <= episode.since < read.until,
    }


def _figures(found: postmortem.Figures) -> list[tuple[str, str, str]]:
    """(name, value, tone)."""
    unpriced = f" + {found.unpriced:,} unpriced" if found.unpriced else ""
    peak = f"{present.money(found.peak_wasted)}/min" if found.peak_wasted else present.NOT_KNOWN
    return [
        ("Spend", present.money(found.spend) + unpriced, ""),
        ("Wasted", present.money(found.wasted), "open" if found.wasted else ""),
        ("Peak wasted", peak, ""),
        ("Retries refused, peak", present.rate(found.most_refused), ""),
        ("Retry ratio", present.retry_percent(found.retry_ratio), ""),
    ]


def _summary(found: postmortem.Figures, zone: ZoneInfo) -> str:
    if found.opened_at is None:
        return (
            "no circuit was open" if found.spend is not None else "no gateway sent an attempt of it"
        )
    begin = f"{found.opened_at.astimezone(zone):%H:%M:%S}"
    if found.closed_at is None:
        words = f"{begin} and still open"
    else:
        length = present.age(found.seconds or 0)
        words = f"{begin} to {found.closed_at.astimezone(zone):%H:%M:%S} · {length}"
    return (
        f"{words} · {present.count(found.circuits, 'circuit')} opened · "
        f"{present.count(found.overrides, 'override')}"
    )
