"""What somebody wants forced, read and checked, before it becomes an override or a request for one.

Invariant: a ``Wish`` is whole: its end is within the mode's bounds, its targets can be matched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from controlplane.actions._fields import Faults
from controlplane.actions.targets import check_targets
from controlplane.domain.overrides import OverrideMode, lifetime_fault
from controlplane.domain.precedence import Selection

_MODES = ", ".join(OverrideMode)


@dataclass(frozen=True, slots=True)
class Wish:
    """``ends`` is counted from the time at which it was read."""

    mode: OverrideMode
    selection: Selection
    name: str
    reason: str
    ticket: str
    ends: datetime
    allow_last_healthy: bool
    replace: str


def read_wish(
    *,
    mode: str,
    reason: str,
    now: datetime,
    name: str,
    expires_in: timedelta | None,
    expires_at: datetime | None,
    parts: Mapping[str, object],
    allow_last_healthy: bool,
    ticket: str,
    replace: str,
) -> Wish:
    """Raises ``InvalidInput`` with a fault for each field."""
    faults = Faults()
    selection = faults.selection(parts)
    known_mode = read_mode(mode, faults)
    written_name = faults.object_name("name", name) if name else ""
    written_reason = faults.text("reason", reason, required=True)
    written_ticket = faults.text("ticket", ticket)
    written_replace = faults.text("replace", replace)
    ends = read_expiry(known_mode, expires_in, expires_at, now, faults)
    check_targets(selection, faults)
    faults.raise_any("The override was not recorded")
    assert known_mode is not None
    assert ends is not None
    return Wish(
        known_mode,
        selection,
        written_name,
        written_reason,
        written_ticket,
        ends,
        allow_last_healthy,
        written_replace,
    )


def read_mode(mode: str, faults: Faults) -> OverrideMode | None:
    try:
        return OverrideMode(mode)
    except ValueError:
        faults.add("mode", f"write one of {_MODES}")
        return None


def read_expiry(
    mode: OverrideMode | None,
    expires_in: timedelta | None,
    expires_at: datetime | None,
    now: datetime,
    faults: Faults,
) -> datetime | None:
    if (expires_in is None) == (expires_at is None):
        faults.add("expires_in", "required: write how long it lasts or when it ends, not both")
        return None
    field = "expires_in" if expires_at is None else "expires_at"
    if expires_at is not None and expires_at.tzinfo is None:
        faults.add(field, "write a time with its offset, such as 2026-11-30T04:00:00Z")
        return None
    lasts = expires_in if expires_at is None else expires_at - now
    assert lasts is not None
    if mode is None:
        return None
    if fault := lifetime_fault(mode, lasts):
        faults.add(field, fault)
        return None
    return now + lasts
