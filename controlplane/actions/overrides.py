"""Throwing breakers by hand: force, extend, release, and the end that comes by itself.

Invariant: an override always ends. One active override for each match (a unique index holds it);
one whose ``expires_at`` has passed never stands in the way of a new one, whether or not a worker
has ended its row. Every write is audited with its reason. ``now`` is aware and taken at the edge.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings

from controlplane.actions._commit import Change, desired_change
from controlplane.actions._fields import Faults
from controlplane.actions._override_rows import columns, described, insert
from controlplane.actions._override_wish import Wish, read_expiry, read_wish
from controlplane.actions.actor import SYSTEM, Actor
from controlplane.domain.overrides import OverrideMode, in_words, is_fleet_wide
from controlplane.domain.precedence import Selection
from controlplane.errors import Conflict, Forbidden, NotFound
from controlplane.models import Override, Role

KIND = "Override"
# A status report holds 2,000 verdicts: with this bound every instance can answer for every item.
MOST_ACTIVE = 500


def force(
    *,
    actor: Actor,
    mode: str,
    reason: str,
    now: datetime,
    name: str = "",
    expires_in: timedelta | None = None,
    expires_at: datetime | None = None,
    gateway: str = "",
    selector: str = "",
    provider: str = "",
    model: str = "",
    region: str = "",
    allow_last_healthy: bool = False,
    ticket: str = "",
    replace: str = "",
    break_glass: bool = False,
    dry_run: bool = False,
) -> Override:
    """Force the circuits that match, until the expiry. Needs operator.

    Exactly one of ``expires_in`` and ``expires_at``. ``replace`` names the active override of the
    same match that this one takes the place of, in one step; that it has ended meanwhile is no
    fault, that it is of another match is one. Without a ``name`` one is made. Under the two-person
    rule what is fleet-wide needs ``break_glass``, or goes by ``approvals.ask``. A dry run writes
    nothing. Raises ``InvalidInput`` with a fault for each field, ``Conflict`` (``current``: who
    holds the match, why, for how long; or the name is taken), ``Forbidden``, ``Busy``.
    """
    actor.must_be(Role.OPERATOR, "force a circuit")
    parts = {"gateway": gateway, "selector": selector, "provider": provider}
    wish = read_wish(
        mode=mode,
        reason=reason,
        now=now,
        name=name,
        expires_in=expires_in,
        expires_at=expires_at,
        parts=parts | {"model": model, "region": region},
        allow_last_healthy=allow_last_healthy is True,
        ticket=ticket,
        replace=replace,
    )
    wide = needs_second(wish.selection)
    if wide and break_glass is not True and not dry_run:
        raise Forbidden(
            f"{wish.selection} is fleet-wide, so a second operator has to approve it: ask for it, "
            "or break the glass.",
            code="needs_approval",
        )
    with desired_change(actor, now, dry_run=dry_run) as change:
        glass = wide and break_glass is True
        return record(change, wish, by=actor.name, action="break-glass" if glass else "force")


def needs_second(selection: Selection) -> bool:
    """Does the two-person rule hold for this match?"""
    return bool(settings.TWO_PERSON) and is_fleet_wide(selection)


def record(
    change: Change, wish: Wish, *, by: str, action: str, told: dict[str, Any] | None = None
) -> Override:
    """The row, its place and its audit entry, within a change. ``by``: whose override it is."""
    replaced = _make_room(change, wish.selection, wish.replace, wish.reason)
    _check_room()
    row = insert(
        change,
        wish.mode,
        wish.selection,
        name=wish.name,
        reason=wish.reason,
        ticket=wish.ticket,
        expires_at=wish.ends,
        allow_last_healthy=wish.allow_last_healthy,
        by=by,
        break_glass=action == "break-glass",
    )
    after = described(row) | replaced | (told or {})
    change.audit(action, KIND, row.name, reason=row.reason, after=after)
    return row


def extend(
    *,
    actor: Actor,
    name: str,
    now: datetime,
    expires_in: timedelta | None = None,
    expires_at: datetime | None = None,
    reason: str = "",
    expected_version: int | None = None,
) -> Override:
    """Move the end of an active override: a new generation, audited. Needs operator.

    The new end is counted from ``now`` and bound as a new override's. ``reason`` goes into the
    audit, where without one the override's own stands; the override keeps its own. Raises
    ``Conflict`` when it has ended, or is no longer at ``expected_version``.
    """
    actor.must_be(Role.OPERATOR, "extend an override")
    faults = Faults()
    why = faults.text("reason", reason)
    faults.raise_any("The override was not extended")
    with desired_change(actor, now) as change:
        row = _locked(name)
        _must_be_at(row, expected_version, now)
        if row.ended_at is not None or row.expires_at <= now:
            raise Conflict(
                f"{name} has ended and cannot be extended; force again.",
                code="ended",
                current=described(row),
            )
        ends = read_expiry(OverrideMode(row.mode), expires_in, expires_at, now, faults)
        faults.raise_any("The override was not extended")
        before = described(row)
        row.expires_at = ends or row.expires_at
        row.generation += 1
        row.resource_version = change.revision
        row.updated_at, row.updated_by = now, actor.name
        row.save()
        change.audit(
            "extend", KIND, name, reason=why or row.reason, before=before, after=described(row)
        )
    return row


def release(
    *,
    actor: Actor,
    name: str,
    now: datetime,
    reason: str = "",
    expected_version: int | None = None,
) -> Override:
    """End an override now; one that has ended already is returned as it is. Needs operator."""
    actor.must_be(Role.OPERATOR, "release an override")
    faults = Faults()
    why = faults.text("reason", reason)
    faults.raise_any("The override was not released")
    with desired_change(actor, now) as change:
        row = _locked(name)
        if row.ended_at is None:
            _must_be_at(row, expected_version, now)
            _end_by(change, row, why)
    return row


def release_mine(*, actor: Actor, now: datetime, reason: str = "") -> list[Override]:
    """End every active override that the actor recorded. Needs operator."""
    actor.must_be(Role.OPERATOR, "release overrides")
    faults = Faults()
    why = faults.text("reason", reason)
    faults.raise_any("Nothing was released")
    with desired_change(actor, now) as change:
        mine = Override.objects.select_for_update().filter(ended_at=None, created_by=actor.name)
        rows = list(mine.order_by("id"))
        for row in rows:
            _end_by(change, row, why)
    return rows


def end_expired(now: datetime) -> list[str]:
    """End the rows whose expiry has passed; returns their names. For the workers' schedule.

    The gateways have ended them on time by themselves; this takes them out of the snapshot and
    leaves the audit entry.
    """
    passed = {"ended_at": None, "expires_at__lte": now}
    if not Override.objects.filter(**passed).exists():
        return []
    with desired_change(SYSTEM, now) as change:
        rows = list(Override.objects.select_for_update().filter(**passed).order_by("id"))
        for row in rows:
            _end(change, row, "Expired")
    return [row.name for row in rows]


def _make_room(
    change: Change, selection: Selection, replace: str, reason: str
) -> dict[str, dict[str, Any]]:
    """End what has expired on this match, and what is to be taken over; ``Conflict`` otherwise.

    Returns what the audit of the new one says of the old: both entries name both hands.
    """
    replaced = {}
    same = Override.objects.select_for_update().filter(ended_at=None, **columns(selection))
    for row in same:
        if row.expires_at <= change.now:
            _end(change, row, "Expired")
        elif row.name == replace:
            _end(change, row, "Replaced", reason)
            replaced = {"replaces": described(row)}
        else:
            raise already_forced(row, selection, change.now)
    if replace and not replaced:
        _must_have_ended(replace, change.now)
    return replaced


def already_forced(row: Override, selection: Selection, now: datetime) -> Conflict:
    """Who holds the match, why and for how long."""
    remaining = row.expires_at - now
    return Conflict(
        f"{selection} is {row.mode} by {row.created_by} for another {in_words(remaining)}:"
        f" {row.reason}. Extend, release or replace {row.name}.",
        code="already_forced",
        current=described(row) | {"remaining_s": remaining.total_seconds()},
    )


def _must_have_ended(replace: str, now: datetime) -> None:
    """What was to be replaced is of this match and was not found there, or the name is wrong."""
    faults = Faults()
    row = Override.objects.filter(name=replace).first()
    if row is None:
        faults.add("replace", f"no override is named {replace!r}")
    elif row.ended_at is None and row.expires_at > now:
        faults.add("replace", f"{replace} is of another match and would go on; release it instead")
    faults.raise_any("The override was not recorded")


def _check_room() -> None:
    if Override.objects.filter(ended_at=None).count() >= MOST_ACTIVE:
        raise Conflict(
            f"{MOST_ACTIVE} overrides are active; release some, or force a wider match.",
            code="too_many_overrides",
        )


def _end_by(change: Change, row: Override, reason: str) -> None:
    if row.expires_at <= change.now:
        _end(change, row, "Expired")
    else:
        _end(change, row, "Released", reason)


def _end(change: Change, row: Override, cause: str, reason: str = "") -> None:
    """End a row. What expired was ended by time, so by the system, whoever came by."""
    actor = SYSTEM if cause == "Expired" else change.actor
    before = described(row)
    row.ended_at, row.ended_by, row.end_cause = change.now, actor.name, cause
    row.resource_version = change.revision
    row.save(update_fields=["ended_at", "ended_by", "end_cause", "resource_version"])
    action = {"Expired": "override_expired", "Released": "release", "Replaced": "replace"}[cause]
    change.audit(
        action, KIND, row.name, reason=reason, before=before, after=described(row), actor=actor
    )


def _locked(name: str) -> Override:
    row = Override.objects.select_for_update().filter(name=name).first()
    if row is None:
        raise NotFound(f"No override is named {name!r}.")
    return row


def _must_be_at(row: Override, expected: int | None, now: datetime) -> None:
    if expected is not None and row.resource_version != expected:
        raise Conflict(
            f"{row.name} was changed by {row.updated_by} at {row.updated_at:%H:%M:%S} UTC;"
            " read it again.",
            current=described(row),
        )
