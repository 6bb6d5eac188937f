"""The wall's first page; every later change comes over the socket. And the wall of the past.

Invariant: a page of the past says so in a banner, never updates, and offers no act: there is
nothing to do about it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from controlplane.errors import InvalidInput
from controlplane.reports import incident, wall
from dashboard import present
from dashboard.board import PROVIDERS, Board, compose
from dashboard.views.incident import fitted, href, moment
from dashboard.views.page import person_of, room, show, zone_of


@require_safe
@room
def page(request: HttpRequest) -> HttpResponse:
    """The whole wall as it is now, or as it was at ``at``."""
    now = timezone.now()
    try:
        at = moment(request.GET.get("at", ""), "at", zone_of(person_of(request)))
    except InvalidInput:
        return HttpResponseRedirect(reverse("wall"))
    if at is not None and at < now - timedelta(minutes=1):
        return _past(request, at, now)
    board = compose(wall.read())
    last = _last(now) if not board.attention else None
    q = request.GET.get("q", "").replace("\x00", "")[:200]
    return show(request, "wall/wall.html", _context(board) | {"last": last, "q": q}, at="wall")


def _past(request: HttpRequest, at: datetime, now: datetime) -> HttpResponse:
    at = at.replace(second=0, microsecond=0)
    context = _context(compose(wall.read_past(at), past=True)) | {
        "past": at,
        "now": at,  # ages and rests count from then
        "can_operate": False,
        "earlier": f"?at={_spelled(at - timedelta(minutes=1))}",
        "later": f"?at={_spelled(at + timedelta(minutes=1))}",
        "around": href(at - timedelta(minutes=30), min(now, at + timedelta(minutes=30))),
    }
    return show(request, "wall/wall.html", context, at="wall")


def _spelled(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M}Z"


def _context(board: Board) -> dict[str, Any]:
    healthy = [
        {
            "provider": group.provider,
            "note": group.note,
            "tiles": [board.cards[key] for key in group.ids],
        }
        for group in board.healthy
    ]
    return {
        "board": board,
        "attention": [board.cards[key] for key in board.attention],
        "healthy": healthy,
        "blank": {},
        "provider_links": [(f"provider{n}", f"href=provider{n}_href") for n in range(PROVIDERS)],
    }


def _last(now: datetime) -> dict[str, Any] | None:
    """The last incident of the day, for a wall on which nothing is wrong."""
    happened = incident.episodes(now)
    if not happened:
        return None
    episode = happened[-1]
    return {
        "since": episode.since,
        "until": episode.until,
        "providers": ", ".join(episode.providers),
        "circuits": present.count(episode.circuits, "circuit"),
        "href": href(*fitted(episode, now)),
    }
