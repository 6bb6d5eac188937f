"""Marks on the time axis: a deploy, a provider's word, whatever the telemetry does not say.

Invariant: a mark is of one moment, at most an hour ahead of now; each is audited, and taken away
only as an audited write.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from controlplane.actions._commit import recorded_change
from controlplane.actions._fields import Faults
from controlplane.actions.actor import Actor
from controlplane.errors import NotFound
from controlplane.models import Annotation, Role

_AHEAD = timedelta(hours=1)
_OLDEST = timedelta(days=400)  # as long as the longest rollup is kept


def annotate(*, actor: Actor, text: str, now: datetime, at: datetime | None = None) -> Annotation:
    """Write a mark at a moment (default: now). Operators only."""
    actor.must_be(Role.OPERATOR, "write an annotation")
    moment = at or now
    faults = Faults()
    written = faults.text("text", text, required=True)
    if not now - _OLDEST <= moment <= now + _AHEAD:
        faults.add("at", "name a moment of the last 400 days, at most 1 h ahead")
    faults.raise_any("The annotation was not written")
    with recorded_change(actor, now) as change:
        row = Annotation.objects.create(
            at=moment, text=written, created_at=now, created_by=actor.name
        )
        change.audit("create", "Annotation", str(row.uid), after=described(row))
    return row


def remove(*, actor: Actor, uid: str, now: datetime, reason: str = "") -> None:
    """Take a mark away; the audit keeps what it said."""
    actor.must_be(Role.OPERATOR, "remove an annotation")
    faults = Faults()
    why = faults.text("reason", reason)
    faults.raise_any("The annotation was not removed")
    with recorded_change(actor, now) as change:
        row = Annotation.objects.select_for_update().filter(uid=_uid(uid)).first()
        if row is None:
            raise NotFound(f"No annotation is named {uid!r}.")
        before = described(row)
        row.delete()
        change.audit("delete", "Annotation", uid, reason=why, before=before)


def described(row: Annotation) -> dict[str, Any]:
    """A mark as the audit keeps it."""
    return {"at": row.at.isoformat(), "text": row.text, "by": row.created_by}


def _uid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
