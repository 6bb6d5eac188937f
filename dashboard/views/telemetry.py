"""Telemetry: what is missing, dropped, unreadable, late or skewed, by instance.

Invariant: it says what the API's ``/telemetry`` says, of the last 24 hours, and that nothing is
missing only where nothing is. What an unreadable event held is for operators, as it is there.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.utils import timezone
from django.views.decorators.http import require_safe

from controlplane.api.objects import conditions_of
from controlplane.models import Gateway, Role
from controlplane.reports import background, background_conditions, telemetry
from dashboard import objects, present
from dashboard.views.page import person_of, room, show

_LATELY = timedelta(hours=24)
_MOST_LETTERS = 50
_LONGEST_BODY = 400


@require_safe
@room
def listing(request: HttpRequest) -> HttpResponse:
    """Every instance of which something is to be said; ``gateway`` shows one gateway's alone."""
    now = timezone.now()
    name = request.GET.get("gateway", "").replace("\x00", "").strip()[:200]
    if name:
        get_object_or_404(Gateway, name=name)
    lost = [one for one in telemetry.lost_telemetry(now - _LATELY) if name in ("", one.gateway)]
    operator = Role(person_of(request).role).includes(Role.OPERATOR)
    letters = telemetry.dead_letters(now - _LATELY, now, name or None, _MOST_LETTERS)
    conditions = [] if name else _conditions()
    context = {
        "gateway": name,
        "object": objects.Conditions(conditions) if conditions else None,
        "troubled": any(line.looks for line in conditions),
        "database": None if name else background.database_bytes(),
        "lost": lost,
        "words": _words(lost),
        "letters": [_letter(one, operator) for one in letters],
        "most": _MOST_LETTERS if len(letters) == _MOST_LETTERS else None,
    }
    return show(request, "telemetry/list.html", context, at="gateways")


def _conditions() -> list[objects.Line]:
    """Of the work behind all figures, as the API says it."""
    found = background_conditions.conditions(background.read())
    return objects.conditions({"status": {"conditions": conditions_of(found)}})


def _words(lost: list[telemetry.Lost]) -> list[str]:
    """The sums, of what there is; the first line of the page."""
    shared = sum(one.slot_shared for one in lost)
    counted = [
        (sum(one.batches for one in lost), "lost batch", "lost batches"),
        (sum(one.awaited for one in lost), "batch on its way", "batches on their way"),
        (sum(one.dropped for one in lost), "dropped event", ""),
        (sum(one.unread for one in lost), "dead letter", ""),
        (sum(one.late for one in lost), "late event", ""),
        (sum(one.skewed for one in lost), "event ahead of our clock", "events ahead of our clock"),
        (shared, "slot with two living processes", "slots with two living processes"),
    ]
    return [present.count(int(number), one, many) for number, one, many in counted if number]


def _letter(one: telemetry.DeadLetter, operator: bool) -> dict[str, Any]:
    body = one.body[:_LONGEST_BODY].decode("utf-8", "replace").replace("\x00", "�")
    return {"row": one, "body": body if operator else None}
