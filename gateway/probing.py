"""Does what a person asked for: open breakers try again now, each probe once.

Invariant: a probe is obeyed once by this process, however often a snapshot holds it; a circuit that
an override holds open stays so, and a probe that came too late is refused. Monotonic seconds.
"""

from __future__ import annotations

from datetime import datetime

from controlplane.domain.breaker import Mode
from controlplane.domain.matching import matches
from controlplane.wire.desired import ProbeItem
from controlplane.wire.status import ItemStatus, ItemVerdict
from gateway.circuits import Circuits
from gateway.snapshot import Read, Received

_UNREADABLE = "SchemaInvalid"


class Probes:
    """The probes of the snapshot in force, with what became of each."""

    def __init__(self) -> None:
        self._verdicts: dict[str, ItemStatus] = {}

    def obey(self, received: Received, circuits: Circuits, now: float, wall: datetime) -> None:
        """Carry out the ones that are new, in order."""
        self._verdicts = {
            read.uid: self._verdicts.get(read.uid) or _done(read, received, circuits, now, wall)
            for read in received.probes
        }

    def statuses(self) -> list[ItemStatus]:
        """The verdict on each."""
        return list(self._verdicts.values())


def _done(
    read: Read[ProbeItem], received: Received, circuits: Circuits, now: float, wall: datetime
) -> ItemStatus:
    item = read.value
    if item is None:
        return _status(read, "Rejected", _UNREADABLE, read.message, read.field_path)
    left = received.remaining_s.get(item.uid, (item.expires_at - wall).total_seconds())
    if left <= 0 or item.expires_at <= wall:
        ended = f"it ended at {item.expires_at.isoformat()}"
        return _status(read, "Rejected", "ExpiredOnArrival", ended, "expires_at")
    match = item.match
    tried = 0
    for entry in circuits:
        if not matches(match.provider, match.model, match.region, entry.circuit):
            continue
        if entry.breaker.snapshot(now).mode is Mode.FORCE_OPEN:
            continue
        tried += entry.breaker.probe_now(now)
        circuits.drain(entry)
    said = f"{tried} open breakers went to HalfOpen" if tried else "no breaker here was open"
    return _status(read, "Applied", "", said, "", wall)


def _status(
    read: Read[ProbeItem],
    verdict: ItemVerdict,
    reason: str,
    message: str,
    field_path: str,
    at: datetime | None = None,
) -> ItemStatus:
    return ItemStatus(
        kind="Probe",
        name=read.name,
        uid=read.uid,
        generation=read.generation,
        verdict=verdict,
        reason=reason,
        message=message[:1000],
        field_path=field_path,
        applied_at=at,
    )
