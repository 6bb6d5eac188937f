"""Who has the incident: a claim that expires by itself.

Invariant: at most one claim stands. Taking one that stands from somebody else is said aloud
(``take_over``) and audited with whom it was taken from; nothing else depends on a claim.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction

from controlplane.actions._commit import recorded_change
from controlplane.actions._fields import Faults
from controlplane.actions.actor import Actor
from controlplane.errors import Conflict
from controlplane.models import Claim, Role

DEFAULT = timedelta(hours=1)
LONGEST = timedelta(hours=12)


def claim(
    *,
    actor: Actor,
    now: datetime,
    lasting: timedelta | None = None,
    note: str = "",
    take_over: bool = False,
) -> Claim:
    """Say that the actor has it, from now for ``lasting``. Claiming again moves the end.

    ``Conflict`` with ``current`` when somebody else has it and ``take_over`` is not said.
    """
    actor.must_be(Role.OPERATOR, "claim the incident")
    faults = Faults()
    written = faults.text("note", note)
    length = DEFAULT if lasting is None else lasting
    if not timedelta(0) < length <= LONGEST:
        faults.add("minutes", "claim it for up to 12 h")
    faults.raise_any("Nothing was claimed")
    with recorded_change(actor, now) as change:
        standing = _end_passed(now)
        if standing is not None and standing.holder != actor.name and not take_over:
            until = standing.expires_at.isoformat(timespec="minutes")
            raise Conflict(f"{standing.holder} has it until {until}.", current=described(standing))
        if standing is not None:
            standing.ended_at = now
            standing.save(update_fields=["ended_at"])
        try:
            with transaction.atomic():
                row = Claim.objects.create(
                    holder=actor.name, note=written, claimed_at=now, expires_at=now + length
                )
        except IntegrityError as error:
            raise Conflict("Somebody else claimed it at the same moment.") from error
        before = described(standing) if standing else None
        change.audit("claim", "Claim", "incident", before=before, after=described(row))
    return row


def give_up(*, actor: Actor, now: datetime) -> None:
    """End the standing claim. Only its holder; another takes it over instead."""
    actor.must_be(Role.OPERATOR, "give up the incident")
    with recorded_change(actor, now) as change:
        standing = _end_passed(now)
        if standing is None:
            return
        if standing.holder != actor.name:
            raise Conflict(
                f"{standing.holder} has it; take it over instead.", current=described(standing)
            )
        standing.ended_at = now
        standing.save(update_fields=["ended_at"])
        change.audit("give-up", "Claim", "incident", before=described(standing))


def described(row: Claim) -> dict[str, Any]:
    """A claim as the audit keeps it."""
    return {
        "holder": row.holder,
        "note": row.note,
        "claimedAt": row.claimed_at.isoformat(),
        "expiresAt": row.expires_at.isoformat(),
    }


def _end_passed(now: datetime) -> Claim | None:
    """The claim that stands, locked; one whose time has passed is ended first."""
    row = Claim.objects.select_for_update().filter(ended_at=None).first()
    if row is not None and row.expires_at <= now:
        row.ended_at = row.expires_at
        row.save(update_fields=["ended_at"])
        return None
    return row
