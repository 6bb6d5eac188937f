"""``/annotations``: marks on the time axis. ``/claim``: who has the incident.

Invariant: HTTP shape only; the rules are in ``actions.annotations`` and ``actions.claims``.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router
from pydantic import Field

from controlplane.actions import annotations, claims
from controlplane.api.bodies import Envelope, Moment, Strict
from controlplane.api.door import answer
from controlplane.api.idempotency import once
from controlplane.api.overrides import actor_of
from controlplane.models import Annotation, Claim

router = Router(tags=["annotations"])
claim_router = Router(tags=["claim"])
_MOST = 1000
_FROM, _TO = Query(None, alias="from"), Query(None, alias="to")


class AnnotationSpec(Strict):
    """A mark: ``text`` at a moment, default now."""

    text: str = ""
    at: Moment | None = None


class AnnotationIn(Envelope):
    """The body of a new mark."""

    spec: AnnotationSpec = Field(default_factory=AnnotationSpec)


class ClaimIn(Strict):
    """The body of a claim; ``takeOver`` takes it from whoever has it."""

    minutes: int | None = Field(None, ge=1, le=12 * 60)
    note: str = ""
    take_over: bool = False


@router.get("", summary="Marks of a stretch of time")
def list_annotations(
    request: HttpRequest,
    since: Moment | None = _FROM,
    until: Moment | None = _TO,
) -> HttpResponse:
    """Oldest first, at most 1,000; without bounds, those of the last seven days."""
    end = until or datetime.now(UTC) + timedelta(hours=1)
    begin = since or end - timedelta(days=7)
    rows = Annotation.objects.filter(at__gte=begin, at__lte=end).order_by("at", "id")[:_MOST]
    return answer({"kind": "AnnotationList", "items": [_annotation(row) for row in rows]})


@router.post("", summary="Write a mark")
def create_annotation(request: HttpRequest, payload: AnnotationIn) -> HttpResponse:
    """Needs operator."""
    actor, now = actor_of(request), datetime.now(UTC)

    def act() -> tuple[int, Any]:
        row = annotations.annotate(actor=actor, text=payload.spec.text, at=payload.spec.at, now=now)
        return 201, _annotation(row)

    return once(request, actor, now, act)


@router.delete("/{uid}", summary="Take a mark away")
def delete_annotation(request: HttpRequest, uid: str, reason: str = "") -> HttpResponse:
    """The audit keeps what it said."""
    actor, now = actor_of(request), datetime.now(UTC)

    def act() -> tuple[int, Any]:
        annotations.remove(actor=actor, uid=uid, now=now, reason=reason)
        return 200, {"kind": "Annotation", "metadata": {"name": uid}, "status": "Removed"}

    return once(request, actor, now, act)


@claim_router.get("", summary="Who has the incident")
def get_claim(request: HttpRequest) -> HttpResponse:
    """``holder`` is null when nobody has it."""
    now = datetime.now(UTC)
    row = Claim.objects.filter(ended_at=None, expires_at__gt=now).first()
    return answer(_claim(row))


@claim_router.post("", summary="Say that I have it")
def post_claim(request: HttpRequest, payload: ClaimIn) -> HttpResponse:
    """409 with ``current`` when somebody else has it and ``takeOver`` is not said."""
    actor, now = actor_of(request), datetime.now(UTC)

    def act() -> tuple[int, Any]:
        lasting = None if payload.minutes is None else timedelta(minutes=payload.minutes)
        row = claims.claim(
            actor=actor, now=now, lasting=lasting, note=payload.note, take_over=payload.take_over
        )
        return 200, _claim(row)

    return once(request, actor, now, act)


@claim_router.delete("", summary="Give it up")
def delete_claim(request: HttpRequest) -> HttpResponse:
    """Only its holder."""
    actor, now = actor_of(request), datetime.now(UTC)

    def act() -> tuple[int, Any]:
        claims.give_up(actor=actor, now=now)
        return 200, _claim(None)

    return once(request, actor, now, act)


def _annotation(row: Annotation) -> dict[str, Any]:
    return {
        "kind": "Annotation",
        "metadata": {
            "name": str(row.uid),
            "createdAt": row.created_at,
            "createdBy": row.created_by,
        },
        "spec": {"at": row.at, "text": row.text},
    }


def _claim(row: Claim | None) -> dict[str, Any]:
    return {
        "kind": "Claim",
        "holder": row.holder if row else None,
        "note": row.note if row else "",
        "claimedAt": row.claimed_at if row else None,
        "expiresAt": row.expires_at if row else None,
    }
