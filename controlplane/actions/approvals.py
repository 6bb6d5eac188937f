"""Two-person rule: what is fleet-wide waits until another operator approves it.

Invariant: a request is in force nowhere; nobody approves their own, neither with a token that they
made, be it by another token of theirs, nor as the maker of the token that asked. After ``WITHIN``
it lapses by itself. Approving checks everything anew, in the one change that records the override.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from controlplane.actions._commit import desired_change, recorded_change
from controlplane.actions._fields import Faults
from controlplane.actions._override_rows import columns, new_name
from controlplane.actions._override_wish import read_wish
from controlplane.actions.actor import Actor
from controlplane.actions.overrides import KIND, already_forced, needs_second, record
from controlplane.domain.precedence import Selection
from controlplane.errors import Conflict, Forbidden, NotFound
from controlplane.models import Override, PendingOverride, Role, ServiceToken

WITHIN = timedelta(minutes=15)
MOST_PENDING = 100
_PARTS = ("gateway", "selector", "provider", "model", "region")


def ask(
    *,
    actor: Actor,
    mode: str,
    reason: str,
    now: datetime,
    name: str = "",
    expires_in: timedelta | None = None,
    expires_at: datetime | None = None,
    allow_last_healthy: bool = False,
    ticket: str = "",
    replace: str = "",
    **parts: str,
) -> PendingOverride:
    """Record what is to be approved; the arguments are those of ``overrides.force``.

    A length of time counts from the approval. Raises as ``overrides.force`` does.
    """
    actor.must_be(Role.OPERATOR, "force a circuit")
    wish = read_wish(
        mode=mode,
        reason=reason,
        now=now,
        name=name,
        expires_in=expires_in,
        expires_at=expires_at,
        parts=parts,
        allow_last_healthy=allow_last_healthy is True,
        ticket=ticket,
        replace=replace,
    )
    if wish.name and any(
        kind.objects.filter(name=wish.name).exists() for kind in (Override, PendingOverride)
    ):
        raise Conflict(
            f"An override was named {wish.name} before; write another name.", code="name_taken"
        )
    same = columns(wish.selection)
    held = Override.objects.filter(ended_at=None, expires_at__gt=now, **same)
    if (holder := held.exclude(name=wish.replace).first()) is not None:
        # No approval would help, and who asks is the one to say that it takes the other's place.
        raise already_forced(holder, wish.selection, now)
    with recorded_change(actor, now) as change:
        if waiting(now).count() >= MOST_PENDING:
            raise Conflict(f"{MOST_PENDING} wait for approval already.", code="too_many_pending")
        row = PendingOverride.objects.create(
            name=wish.name or new_name(wish.mode, wish.selection),
            mode=wish.mode.value,
            reason=wish.reason,
            ticket=wish.ticket,
            lasts_seconds=expires_in.total_seconds() if expires_in is not None else None,
            expires_at=expires_at,
            allow_last_healthy=wish.allow_last_healthy,
            replace=wish.replace,
            requested_at=now,
            requested_by=actor.name,
            # A length counts from the approval: only a time of day can pass while it waits.
            approve_before=min(now + WITHIN, expires_at or now + WITHIN),
            **same,
        )
        change.audit("ask", KIND, row.name, reason=row.reason, after=described(row))
    return row


def approve(*, actor: Actor, name: str, now: datetime) -> Override:
    """Put a request in force; by another operator than who asked. ``Conflict`` when it is over."""
    actor.must_be(Role.OPERATOR, "approve an override")
    with desired_change(actor, now) as change:
        row = _waiting(name, now)
        if _same_hand(actor.name, row.requested_by):
            raise Forbidden(
                f"{row.requested_by} asked for {name}: another person has to approve it.",
                code="own_request",
            )
        lasts = row.lasts_seconds
        wish = read_wish(
            mode=row.mode,
            reason=row.reason,
            now=now,
            name=row.name,
            expires_in=timedelta(seconds=lasts) if lasts is not None else None,
            expires_at=row.expires_at,
            parts={part: getattr(row, part) for part in _PARTS},
            allow_last_healthy=row.allow_last_healthy,
            ticket=row.ticket,
            replace=row.replace,
        )
        told = {"requested_by": row.requested_by, "approved_by": actor.name}
        made = record(change, wish, by=row.requested_by, action="approve", told=told)
        _decide(row, "Approved", actor, now)
    return made


def withdraw(*, actor: Actor, name: str, now: datetime, reason: str = "") -> PendingOverride:
    """Take a request back, one's own or another's. Needs operator."""
    actor.must_be(Role.OPERATOR, "withdraw a request")
    faults = Faults()
    why = faults.text("reason", reason)
    faults.raise_any("Nothing was withdrawn")
    with recorded_change(actor, now) as change:
        row = _waiting(name, now)
        before = described(row)
        _decide(row, "Withdrawn", actor, now)
        change.audit("withdraw", KIND, name, reason=why, before=before, after=described(row))
    return row


def acknowledge(*, actor: Actor, name: str, now: datetime) -> Override:
    """Say that a broken glass was seen; by another than who broke it. Needs operator."""
    actor.must_be(Role.OPERATOR, "acknowledge a broken glass")
    with recorded_change(actor, now) as change:
        row = Override.objects.select_for_update().filter(name=name).first()
        if row is None:
            raise NotFound(f"No override is named {name!r}.")
        if not row.break_glass:
            raise Conflict(f"{name} broke no glass.", code="no_break_glass")
        if _same_hand(actor.name, row.created_by):
            raise Forbidden("Another person has to acknowledge it.", code="own_request")
        if row.acknowledged_at is None:
            row.acknowledged_at, row.acknowledged_by = now, actor.name
            row.save(update_fields=["acknowledged_at", "acknowledged_by"])
            change.audit("acknowledge", KIND, name, after={"acknowledged_by": actor.name})
    return row


def unacknowledged() -> Any:
    """Overrides that broke the glass and that no other person has seen; also when they ended."""
    return Override.objects.filter(break_glass=True, acknowledged_at=None)


def needed(parts: dict[str, str], *, break_glass: bool) -> bool:
    """Is this to be asked for, rather than forced?"""
    return not break_glass and needs_second(Selection(**{p: parts.get(p, "") for p in _PARTS}))


def waiting(now: datetime) -> Any:
    """The requests that may still be approved."""
    return PendingOverride.objects.filter(decision="", approve_before__gt=now)


def phase_of(row: PendingOverride, now: datetime) -> str:
    """Pending, Approved, Withdrawn or Lapsed."""
    return row.decision or ("Pending" if now < row.approve_before else "Lapsed")


def described(row: PendingOverride) -> dict[str, Any]:
    """The request as the audit keeps it."""
    return {
        "name": row.name,
        "mode": row.mode,
        **{part: getattr(row, part) for part in _PARTS},
        "reason": row.reason,
        "ticket": row.ticket,
        "lasts_seconds": row.lasts_seconds,
        "expires_at": row.expires_at.isoformat() if row.expires_at else None,
        "allow_last_healthy": row.allow_last_healthy,
        "replace": row.replace,
        "requested_by": row.requested_by,
        "approve_before": row.approve_before.isoformat(),
        "decision": row.decision,
        "decided_by": row.decided_by,
    }


def _waiting(name: str, now: datetime) -> PendingOverride:
    row = PendingOverride.objects.select_for_update().filter(name=name).first()
    if row is None:
        raise NotFound(f"No override named {name!r} waits for approval.")
    if (phase := phase_of(row, now)) != "Pending":
        by = f" by {row.decided_by}" if row.decided_by else ""
        raise Conflict(
            f"{name} waits no more: {phase}{by}.", code=phase.lower(), current=described(row)
        )
    return row


def _decide(row: PendingOverride, decision: str, actor: Actor, now: datetime) -> None:
    row.decision, row.decided_by, row.decided_at = decision, actor.name, now
    row.save(update_fields=["decision", "decided_by", "decided_at"])


def _same_hand(one: str, other: str) -> bool:
    return one in _hands_of(other) or other in _hands_of(one)


def _hands_of(name: str) -> set[str]:
    """An actor, who made the token that it is, who made that one's token, and so on."""
    hands: set[str] = set()
    while name and name not in hands:
        hands.add(name)
        if not name.startswith("token:"):
            break
        made_by = ServiceToken.objects.filter(name=name.removeprefix("token:"))
        name = made_by.values_list("created_by", flat=True).first() or ""
    return hands
