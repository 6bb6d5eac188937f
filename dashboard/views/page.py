"""What every page has: who looks, in which zone, what they may do, where they are.

Invariant: a page is only for somebody who is logged in (``room`` sees to it), and every problem
that an action raises reaches the person as words beside the form, never as a 500.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.functional import SimpleLazyObject
from django.views.decorators.cache import never_cache

from controlplane.actions.actor import Actor, actor_of_person
from controlplane.actions.signin import client_address
from controlplane.errors import Problem
from controlplane.models import Person, Role
from controlplane.reports import wall
from dashboard import feed, glass, rail
from dashboard.board import Board
from dashboard.cards import Fields
from dashboard.fleet import Fleet

# Plotly sizes its parts with style attributes; only pages with a chart allow them.
PLOTLY_STYLES = {"style-src": ["'unsafe-inline'"]}

View = Callable[..., HttpResponse]
# A feed with a viewer reads every second; an older board is nobody's present.
_FRESH = timedelta(seconds=3)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the navigation."""

    name: str
    href: str
    glyph: str
    here: bool
    heading: str = ""
    key: str = ""
    count: str = ""
    word: str = ""
    tone: str = ""


_PAGES = [
    ("Now", "wall", "Wall", "wall"),
    ("", "incident", "Incident", "pulse"),
    ("Objects", "circuits", "Circuits", "switch"),
    ("", "gateways", "Gateways", "gateways"),
    ("", "overrides", "Overrides", "hand"),
    ("", "budgets", "Budgets & policies", "gauge"),
    ("", "providers", "Providers", "provider"),
    ("Money", "report", "Report", "report"),
    ("Records", "audit", "Audit", "audit"),
]

# Pages of what is now. The wall has its own way; records and reports stand as they were read.
_FOLLOWING = {"circuits", "gateways", "overrides", "budgets", "policies", "routes", "providers"}


def room(view: View) -> View:
    """A page for who is logged in, never cached."""
    return never_cache(login_required(view))


def person_of(request: HttpRequest) -> Person:
    """Who looks."""
    assert isinstance(request.user, Person)
    return request.user


def actor_of(request: HttpRequest) -> Actor:
    """Who acts, as the audit names them."""
    return actor_of_person(person_of(request), address=address_of(request))


def address_of(request: HttpRequest) -> str:
    """Where a request came from, past the proxies that are ours."""
    return client_address(
        request.META.get("REMOTE_ADDR", "") or "",
        request.headers.get("X-Forwarded-For", ""),
        settings.TRUSTED_PROXIES,
    )


def zone_of(person: Person) -> ZoneInfo:
    """The person's time zone; one that this machine does not know reads as UTC."""
    try:
        return ZoneInfo(person.zone)
    except (ZoneInfoNotFoundError, ValueError):
        return ZoneInfo("UTC")


def show(
    request: HttpRequest,
    template: str,
    context: Mapping[str, Any],
    *,
    at: str = "",
    status: int = 200,
) -> HttpResponse:
    """Render a page, or a fragment of one, with what every page needs.

    A page of ``_FOLLOWING`` that was read keeps itself current; ``follows`` in ``context`` rules.
    """
    person = person_of(request)
    zone, now = zone_of(person), timezone.now()
    common = {
        "now": now,
        "zone": zone,
        "zone_name": zone.key,
        "today": f"{now.astimezone(zone):%a %-d %b %Y %H:%M:%S %Z}",
        "can_operate": Role(person.role).includes(Role.OPERATOR),
        "can_administer": Role(person.role).includes(Role.ADMIN),
        # Fragments have no navigation, and count nothing.
        "nav": SimpleLazyObject(lambda: _nav(at, context.get("board"))),
        "glass": SimpleLazyObject(glass.broken),
        "follows": at in _FOLLOWING and status == 200 and request.method == "GET",
    }
    return render(request, template, common | dict(context), status=status)


def problem_fields(problem: Problem) -> dict[str, str]:
    """The faults of a problem by field; what is about no field stands under ``""``."""
    by_field = {error["field"]: error["message"] for error in problem.errors}
    return by_field or {"": problem.detail}


def _nav(at: str, board: Board | None) -> list[Entry]:
    counts = _counts(board)
    entries = []
    heading = ""
    for group, url, name, glyph in _PAGES:
        heading = group or heading
        try:
            href = reverse(url)
        except NoReverseMatch:
            continue  # a page that this release does not have
        shown, heading = heading, ""
        key = f"nav_{url}" if url in rail.COUNTED else ""
        said = [counts.get(f"{key}{part}") or "" for part in ("", "_word", "_tone")]
        entries.append(Entry(name, href, glyph, url == at, shown, key, *said))
    return entries


def _counts(board: Board | None) -> Fields:
    """Of the page's own board; else as the feed has them; else by one read of the present."""
    board = board or feed.newest(_FRESH)
    if board is not None:
        return board.titles
    now = wall.read_present()
    return rail.fields(now, Fleet(now))
