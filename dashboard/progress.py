"""How far an override has come: recorded, delivered, enforced, instance by instance.

Invariant: enforced means that an instance said so of this very generation; a silent instance is
never counted as enforced, and what was recorded is never called done. Times are the control
plane's own, counted from the moment the generation was recorded. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from controlplane.domain.precedence import Selection
from dashboard import present
from dashboard.fleet import Fleet, Member


class Delivered(Protocol):
    """What is read of ``models.Delivery``."""

    instance_id: int
    verdict: str
    reason: str
    message: str
    delivered_at: datetime
    acknowledged_at: datetime | None
    first_effect_at: datetime | None
    lifted_at: datetime | None


class Recorded(Protocol):
    """What is read of ``models.Override``."""

    gateway: str
    selector: str
    provider: str
    model: str
    region: str
    mode: str
    updated_at: datetime
    expires_at: datetime
    ended_at: datetime | None


WORDS = {
    "waiting": ("arrow", "info", "on its way"),
    "delivered": ("arrow", "info", "delivered"),
    "enforced": ("tick", "closed", ""),
    "superseded": ("hand", "hand", "superseded"),
    "rejected": ("rejected", "open", "Rejected"),
    "unsupported": ("unreachable", "unk", "Unsupported"),
    "unreachable": ("unreachable", "unk", "no contact"),
    "lifted": ("tick", "closed", ""),
}
_ORDER = list(WORDS)


@dataclass(frozen=True, slots=True)
class Dot:
    """One instance's place on the way."""

    name: str
    state: str
    note: str
    reason: str
    message: str
    seconds: float | None
    first_effect_at: datetime | None
    last_seen_at: datetime

    @property
    def glyph(self) -> str:
        """The glyph's name."""
        return WORDS[self.state][0]

    @property
    def tone(self) -> str:
        """The tone's name."""
        return WORDS[self.state][1]


@dataclass(frozen=True, slots=True)
class Progress:
    """All dots of an override, worst first."""

    dots: tuple[Dot, ...]
    recorded_at: datetime
    since_s: float
    ended: bool

    def count(self, *states: str) -> int:
        """How many dots are in one of these states."""
        return sum(dot.state in states for dot in self.dots)

    @property
    def done(self) -> int:
        """Enforced; of an ended override: lifted."""
        return self.count("lifted" if self.ended else "enforced")

    @property
    def delivered(self) -> int:
        """Instances that have at least received it."""
        return self.count(
            "delivered", "enforced", "superseded", "rejected", "unsupported", "lifted"
        )

    @property
    def settled(self) -> bool:
        """Nothing more is awaited from an instance in contact."""
        return not self.count("waiting", "delivered")

    @property
    def unreachable(self) -> tuple[Dot, ...]:
        """Instances without contact."""
        return tuple(dot for dot in self.dots if dot.state == "unreachable")

    @property
    def refused(self) -> tuple[Dot, ...]:
        """Instances that said no."""
        return tuple(dot for dot in self.dots if dot.state in ("rejected", "unsupported"))

    @property
    def summary(self) -> list[tuple[str, str]]:
        """(tone, words) of each part: ``17 enforced``, ``1 rejected``, ``2 unreachable``."""
        names = {"waiting": "on their way", "delivered": "delivered, not yet enforced"}
        parts = []
        for state in ("enforced", "lifted", "delivered", "waiting", *_ORDER[3:7]):
            if n := self.count(state):
                parts.append((WORDS[state][1], f"{n} {names.get(state, state)}"))
        return parts or [("unk", "no instance is in contact")]

    @property
    def timing(self) -> str:
        """Median and slowest time, in words."""
        times = sorted(dot.seconds for dot in self.dots if dot.seconds is not None)
        if not times:
            return f"of {len(self.dots)} targeted"
        return (
            f"of {len(self.dots)} targeted; after {present.age(times[len(times) // 2])}"
            f" (median), {present.age(times[-1])} (slowest)"
        )

    @property
    def title(self) -> str:
        """What can be said of the whole."""
        if self.ended:
            return "is released" if self.done and self.settled else "is being released"
        if self.dots and self.done == len(self.dots):
            return "is in force"
        return "is partly in force" if self.done else "is recorded, not yet in force"


def follow(
    override: Recorded, fleet: Fleet, deliveries: Iterable[Delivered], now: datetime
) -> Progress:
    """The progress of an override's present generation at ``now``."""
    heard = {row.instance_id: row for row in deliveries}
    selection = Selection(override.gateway, override.selector)
    members = [
        member
        for member in fleet.members.values()
        if selection.covers_gateway(member.gateway.name, member.gateway.labels)
    ]
    ended_at = override.ended_at
    recorded = ended_at or override.updated_at
    dots = [_dot(member, heard.get(member.row.id), recorded, ended_at) for member in members]
    worst = {"rejected": 0, "unsupported": 1, "unreachable": 2, "waiting": 3, "delivered": 4}
    dots.sort(key=lambda dot: (worst.get(dot.state, 5), dot.name))
    return Progress(tuple(dots), recorded, (now - recorded).total_seconds(), ended_at is not None)


def _dot(
    member: Member, row: Delivered | None, recorded: datetime, ended_at: datetime | None
) -> Dot:
    state, at = _state(member, row, ended_at)
    seconds = (at - recorded).total_seconds() if at is not None else None
    return Dot(
        name=member.name,
        state=state,
        note=present.age(seconds) if seconds is not None else WORDS[state][2],
        reason=row.reason if row else "",
        message=row.message if row else "",
        seconds=seconds,
        first_effect_at=row.first_effect_at if row else None,
        last_seen_at=member.row.last_seen_at,
    )


def _state(
    member: Member, row: Delivered | None, ended_at: datetime | None
) -> tuple[str, datetime | None]:
    if ended_at is not None:
        if row is not None and row.lifted_at is not None:
            return "lifted", max(row.lifted_at, ended_at)
        if row is None or row.verdict != "Applied":
            return "lifted", None  # it never was in force there
        return ("waiting" if member.reachable else "unreachable"), None
    if not member.reachable:
        return "unreachable", None
    if row is None:
        return "waiting", None
    if row.verdict == "Applied":
        return "enforced", row.acknowledged_at
    known = {"Rejected": "rejected", "Unsupported": "unsupported", "Superseded": "superseded"}
    return known.get(row.verdict, "delivered"), None
