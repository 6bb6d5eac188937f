"""``/telemetry``: what is missing, late or skewed of each instance, and the dead letters.

Invariant: reading only; a loss is told by instance and kind, and nothing is smoothed over. What
could not be read came from outside and may hold anything, so its bytes are for operators.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router

from controlplane.api.bodies import Moment
from controlplane.api.door import answer
from controlplane.api.objects import conditions_of
from controlplane.api.overrides import actor_of
from controlplane.api.telemetry import example
from controlplane.models import Role
from controlplane.reports import background, background_conditions, telemetry

router = Router(tags=["telemetry"])
_LATELY = timedelta(hours=24)
_LONGEST_BODY = 2000
_FROM = Query(None, alias="from", description="default: 24 hours ago")
_TO = Query(None, alias="to", description="not included; default: now")
_LIMIT = Query(100, ge=1, le=1000)
_GATEWAY = Query(None, max_length=200)
_EXAMPLE = {
    "kind": "TelemetryReport",
    "spec": {"from": "2026-11-29T03:10:00Z"},
    "status": {
        "conditions": [
            {
                "type": "WorkersAlive",
                "status": "True",
                "reason": "Heard",
                "message": "beat and worker show themselves",
                "lastTransitionTime": None,
                "observedGeneration": None,
            }
        ],
        "databaseBytes": 48234496,
    },
    "items": [
        {
            "gateway": "demo",
            "slot": "host-a/0",
            "bootId": "01a2b3c4-0000-4000-8000-000000000000",
            "lastSeenAt": "2026-11-30T03:10:00Z",
            "missingBatches": 3,
            "awaitedBatches": 1,
            "deadLetters": 4,
            "dropped": 41,
            "droppedByKind": {"attempt": 40, "refusal": 1},
            "late": 120,
            "skewed": 0,
            "slotShared": False,
        }
    ],
}
_EXAMPLE_LETTERS = {
    "kind": "DeadLetterList",
    "items": [
        {
            "gateway": "demo",
            "slot": "host-a/0",
            "bootId": "01a2b3c4-0000-4000-8000-000000000000",
            "seq": 7,
            "index": 3,
            "receivedAt": "2026-11-30T03:10:00Z",
            "reason": "ordinal: expected int >= 1",
            "body": '{"kind": "attempt", "ordinal": 0}',
        }
    ],
}


@router.get(
    "", summary="What is missing, late or skewed, by instance", openapi_extra=example(_EXAMPLE)
)
def get_telemetry(request: HttpRequest, since: Moment | None = _FROM) -> HttpResponse:
    """Only instances of which there is something to say.

    ``missingBatches``: numbers that did not come although later ones did, for two minutes or more;
    ``awaitedBatches``: for less, as when a batch overtakes another. ``dropped``: events that the
    gateway says it had to give up, and of which kinds. ``late``: events more than an hour old when
    they came, ``skewed``: more than five minutes ahead of our clock; both are stored as sent.
    ``slotShared``: it speaks on although another process has taken its slot.

    ``status.conditions``: whether beat and worker live, figures are derived in time, raw events are
    dropped in time and days made ahead, and each job that fails: since when, and of what.
    """
    begin = since or datetime.now(UTC) - _LATELY
    items = [_lost(one) for one in telemetry.lost_telemetry(begin)]
    status = {
        "conditions": conditions_of(background_conditions.conditions(background.read())),
        "databaseBytes": background.database_bytes(),
    }
    report = {"kind": "TelemetryReport", "spec": {"from": begin}, "status": status}
    return answer(report | {"items": items})


@router.get(
    "/dead-letters",
    summary="Events that could not be read",
    openapi_extra=example(_EXAMPLE_LETTERS),
)
def get_dead_letters(
    request: HttpRequest,
    gateway: str | None = _GATEWAY,
    since: Moment | None = _FROM,
    until: Moment | None = _TO,
    limit: int = _LIMIT,
) -> HttpResponse:
    """Newest first, with the reason and the first bytes. Operators only."""
    actor_of(request).must_be(Role.OPERATOR, "read what gateways sent")
    now = datetime.now(UTC)
    found = telemetry.dead_letters(since or now - _LATELY, until or now, gateway, limit)
    return answer({"kind": "DeadLetterList", "items": [_letter(one) for one in found]})


def _lost(one: telemetry.Lost) -> dict[str, Any]:
    return {
        "gateway": one.gateway,
        "slot": one.slot,
        "bootId": str(one.boot_id),
        "lastSeenAt": one.last_seen_at,
        "missingBatches": one.batches,
        "awaitedBatches": one.awaited,
        "deadLetters": one.unread,
        "dropped": one.dropped,
        "droppedByKind": one.dropped_by_kind,
        "late": int(one.late),
        "skewed": int(one.skewed),
        "slotShared": one.slot_shared,
    }


def _letter(one: telemetry.DeadLetter) -> dict[str, Any]:
    return {
        "gateway": one.gateway,
        "slot": one.slot,
        "bootId": str(one.boot_id) if one.boot_id else None,
        "seq": one.seq,
        "index": one.index,
        "receivedAt": one.received_at,
        "reason": one.reason,
        "body": one.body[:_LONGEST_BODY].decode("utf-8", "replace"),
    }
