"""Overrides as this instance holds them: armed on its own clock, in order, above a local floor.

Invariants: for a circuit the first override of the list that is in force and matches decides, the
others that match are superseded; an override ends at its deadline whatever else happens; a
ForceOpen that would take the last healthy target of a route away is refused as a whole until that
is no longer so, unless it says ``allow_last_healthy``. Once applied it stays applied.

Units: deadlines are monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import TypeAlias

from controlplane.domain.circuit import Circuit
from controlplane.domain.matching import matches
from controlplane.wire.desired import OverrideItem
from controlplane.wire.status import ItemStatus, ItemVerdict
from gateway.snapshot import Received

JITTER_S = 0.1
"""Below this a deadline is not worth moving: each answer says something a little different."""

Routes: TypeAlias = Iterable[tuple[str, Sequence[Circuit]]]
"""Each route's name and the targets that it may use now."""


@dataclass(slots=True)
class Armed:
    """One override that this instance knows. ``applied_at`` is None while the floor refuses it."""

    item: OverrideItem
    until: float
    exact: bool
    """False while the deadline is only what the wall clock said of it after a restart."""
    applied_at: datetime | None = None
    first_effect_at: datetime | None = None
    floor: str = ""
    """Why the floor refuses it now."""
    decides: int = 0
    """Circuits that it decides now."""
    matched: int = 0

    def covers(self, circuit: Circuit) -> bool:
        """True when the circuit is one that it names."""
        match = self.item.match
        return matches(match.provider, match.model, match.region, circuit)


class Overrides:
    """The list in force. Used from the loop's thread."""

    def __init__(self) -> None:
        self._told: list[Armed] = []
        self._local: list[Armed] = []
        self.kept: list[OverrideItem] = []
        """In force although the snapshot has them in a form that cannot be read."""
        self.due = inf
        """The next deadline; nothing changes by itself before it."""
        self.floor_refuses = False
        """True while a change of some circuit's health may let a refused override apply."""

    def arm(self, received: Received, now: float, wall: datetime, exact: bool) -> list[ItemStatus]:
        """Take the overrides of a snapshot; returns the verdicts on those that are not armed.

        ``wall`` is the control plane's time of day as far as it is known; ``exact`` says that
        ``remaining_s`` counts from now (a snapshot off the disk has only ``expires_at``).
        An override that is known in the same generation keeps its deadline, also one in the past,
        so that a second copy never revives what has ended.
        """
        known = {held.item.uid: held for held in self._told}
        armed, refused, kept = [], [], []
        for read in received.overrides:
            item, held = read.value, known.get(read.uid)
            if item is None:
                if held is not None and held.until > now:
                    # Its newer form cannot be read here: what was understood stays, to its own end.
                    armed.append(held)
                    kept.append(held.item)
                continue
            if held is not None and held.item.generation == item.generation and held.exact:
                held.item = item
                armed.append(held)
                continue
            left = _left(received, item, wall, exact)
            if left <= 0 and exact:
                refused.append(_expired(item))
                continue
            # By a host's clock that may be wrong: kept, for ``retime`` to end or to revive.
            fresh = Armed(item, now + left, exact)
            if held is not None and held.item.mode == item.mode:
                fresh.applied_at = held.applied_at
                fresh.first_effect_at = held.first_effect_at
            armed.append(fresh)
        self._told, self.kept = armed, kept
        return refused

    def retime(self, server: datetime, now: float, error_s: float) -> bool:
        """Move the deadlines that differ from what ``server``, the control plane's time now, says
        by more than is not known of it. What has ended stays ended, but for what only the time of
        day of this host has ended, which may have been wrong. True when one moved."""
        moved = False
        for held in self._told:
            until = now + (held.item.expires_at - server).total_seconds()
            may_move = held.until > now or not held.exact
            held.exact = True
            if may_move and abs(until - held.until) > error_s + JITTER_S:
                held.until, moved = until, True
        return moved

    def hold_local(self, armed: Sequence[Armed]) -> None:
        """Those made on this host, in order; they stand before the control plane's."""
        self._local = list(armed)

    @property
    def _armed(self) -> list[Armed]:
        return [*self._local, *self._told]

    def first(self, circuit: Circuit, now: float) -> Armed | None:
        """The override that decides a circuit seen for the first time."""
        for held in self._armed:
            if held.until > now and not held.floor and held.covers(circuit):
                return held
        return None

    def decide(
        self,
        circuits: Sequence[Circuit],
        routes: Routes,
        healthy: Callable[[Circuit], bool],
        now: float,
        wall: datetime,
    ) -> dict[Circuit, Armed]:
        """Work out which override decides which circuit, the floor included."""
        routes = list(routes)
        taken: dict[Circuit, Armed] = {}
        for held in self._armed:
            if held.until <= now:
                held.decides = held.matched = 0
                continue
            matched = [circuit for circuit in circuits if held.covers(circuit)]
            free = [circuit for circuit in matched if circuit not in taken]
            held.floor = "" if held.applied_at else _floor(held, free, routes, taken, healthy)
            if held.floor:
                held.decides, held.matched = 0, len(matched)
                continue
            if held.applied_at is None:
                held.applied_at = wall
            taken.update(dict.fromkeys(free, held))
            held.decides, held.matched = len(free), len(matched)
        living = [held for held in self._armed if held.until > now]
        self.due = min((held.until for held in living), default=inf)
        self.floor_refuses = any(held.floor for held in living)
        return taken

    def statuses(self) -> list[ItemStatus]:
        """The verdict on every armed override of a snapshot as of the last ``decide``."""
        return [_status(held) for held in self._told]


def _left(received: Received, item: OverrideItem, wall: datetime, exact: bool) -> float:
    remaining = received.remaining_s.get(item.uid)
    if exact and remaining is not None:
        return remaining
    return (item.expires_at - wall).total_seconds()


def _floor(
    held: Armed,
    free: list[Circuit],
    routes: Routes,
    taken: dict[Circuit, Armed],
    healthy: Callable[[Circuit], bool],
) -> str:
    if held.item.mode != "ForceOpen" or held.item.allow_last_healthy:
        return ""
    opening = set(free)

    def serves(circuit: Circuit) -> bool:
        by = taken.get(circuit)
        if by is None or by.item.mode == "Auto":
            return healthy(circuit)
        return by.item.mode != "ForceOpen"

    for name, targets in routes:
        serving = [circuit for circuit in targets if serves(circuit)]
        if serving and opening.issuperset(serving):
            return f"{serving[0]} is the last healthy target of route {name}"
    return ""


def _expired(item: OverrideItem) -> ItemStatus:
    return ItemStatus(
        kind="Override",
        name=item.name,
        uid=item.uid,
        generation=item.generation,
        verdict="Rejected",
        reason="ExpiredOnArrival",
        message=f"it ended at {item.expires_at.isoformat()}",
        field_path="expires_at",
    )


def _status(held: Armed) -> ItemStatus:
    if held.applied_at is None and not held.floor:
        return _expired(held.item)
    verdict: ItemVerdict = "Applied"
    reason = message = ""
    if held.floor:
        verdict, reason, message = "Rejected", "LocalFloorViolated", held.floor
    elif held.matched and not held.decides:
        verdict, reason = "Superseded", "Superseded"
        message = "an override that stands before it decides every circuit that it names"
    return ItemStatus(
        kind="Override",
        name=held.item.name,
        uid=held.item.uid,
        generation=held.item.generation,
        verdict=verdict,
        reason=reason,
        message=message[:1000],
        applied_at=None if held.floor else held.applied_at,
        first_effect_at=held.first_effect_at,
    )
