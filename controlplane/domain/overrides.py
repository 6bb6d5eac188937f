"""A person's hand on circuits: how long it may lie there, and which of several is in force.

Invariant: an override always ends, and whether it is in force is computed from ``expires_at`` each
time, never from a flag that a worker would have to clear. Times are aware, durations timedeltas.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from controlplane.domain.circuit import Circuit
from controlplane.domain.precedence import Precedence, Selection, precedence
from controlplane.domain.selectors import parse_selector


class OverrideMode(StrEnum):
    """What the hand does. ``Auto`` is the absence of one."""

    FORCE_OPEN = "ForceOpen"
    FORCE_CLOSED = "ForceClosed"
    OBSERVE_ONLY = "ObserveOnly"


def observed(state: str, mode: str, ramp_percent: int = 100) -> str:
    """What the next call meets: Closed, Open, HalfOpen or Ramping.

    ``state`` is the automatic breaker's, which goes on below a hand in ``mode`` and is not the
    answer while one lies there.
    """
    if mode != "Auto":  # the common case first: a wall asks this of every breaker of a fleet
        return "Open" if mode == OverrideMode.FORCE_OPEN else "Closed"
    return "Ramping" if ramp_percent < 100 and state == "Closed" else state


class Lifetime(NamedTuple):
    """How long an override lasts when nothing is said, and at most."""

    default: timedelta
    longest: timedelta


SHORTEST: Final = timedelta(seconds=5)
LIFETIMES: Final = {
    OverrideMode.FORCE_OPEN: Lifetime(timedelta(hours=1), timedelta(hours=24)),
    OverrideMode.FORCE_CLOSED: Lifetime(timedelta(minutes=15), timedelta(hours=2)),
    OverrideMode.OBSERVE_ONLY: Lifetime(timedelta(hours=24), timedelta(days=7)),
}


@dataclass(frozen=True, slots=True)
class OverrideRow:
    """One override as stored."""

    uid: str
    name: str
    generation: int
    selection: Selection
    mode: OverrideMode
    reason: str
    expires_at: datetime
    allow_last_healthy: bool = False
    ended_at: datetime | None = None

    @property
    def precedence(self) -> Precedence:
        """Narrowest first."""
        return precedence(self.selection, self.name, self.mode)

    def in_force(self, now: datetime) -> bool:
        """Neither ended by anybody nor past its expiry."""
        return self.ended_at is None and now < self.expires_at


def is_fleet_wide(selection: Selection) -> bool:
    """It covers every gateway, or every provider: what the two-person rule is about."""
    return not (selection.gateway or _narrows(selection.selector)) or not selection.provider


def _narrows(selector: str) -> bool:
    """It asks for a label. Every gateway without ``x`` is one of ``x!=1``, and that may be all."""
    try:
        return bool(selector) and any(term.equal for term in parse_selector(selector))
    except ValueError:
        return True  # it selects nothing, and is refused where it is read


def lifetime_fault(mode: OverrideMode, lasts: timedelta) -> str:
    """What is wrong with a duration from now, as text to show; '' when nothing is."""
    longest = LIFETIMES[mode].longest
    if lasts < SHORTEST:
        return f"it would end within {SHORTEST.seconds} s; write a later time"
    if lasts > longest:
        return f"{mode} lasts at most {in_words(longest)}; extend it when it is about to end"
    return ""


def in_words(duration: timedelta) -> str:
    """``7 d``, ``1 h 30 min``, ``45 s``: at most two units, rounded down."""
    left = max(0, int(duration.total_seconds()))
    parts: list[str] = []
    for unit, seconds in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, left = divmod(left, seconds)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
        if len(parts) == 2:
            break
    return " ".join(parts)


class Standing(NamedTuple):
    """The override that rules a circuit, and those that match it and yield."""

    in_force: OverrideRow | None
    superseded: tuple[OverrideRow, ...]


def standing(overrides: Iterable[OverrideRow], circuit: Circuit, now: datetime) -> Standing:
    """What rules ``circuit`` at a gateway whose overrides these are."""
    matching = sorted(
        (o for o in overrides if o.in_force(now) and o.selection.covers_circuit(circuit)),
        key=lambda o: o.precedence,
    )
    return Standing(matching[0] if matching else None, tuple(matching[1:]))
