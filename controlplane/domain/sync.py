"""Does an instance enforce what it was told? One word for each instance, never a false green.

Invariant: ``InSync`` is said only of an instance that was heard within ``SILENT_AMBER`` and runs
exactly the desired generation and hash of this database's epoch, with no item rejected. Whatever
is not known is ``Unknown``, and an old report is never read as the present. Times are aware.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

SILENT_AMBER: Final = timedelta(seconds=15)
SILENT_RED: Final = timedelta(seconds=30)
LATE_AMBER: Final = timedelta(seconds=2)
LATE_RED: Final = timedelta(seconds=10)
# A silent instance leaves every "n of m" after this.
FORGOTTEN: Final = timedelta(hours=1)
# The one reason for which InSync is not all green.
NOT_ON_DISK: Final = "NotOnDisk"


class Sync(StrEnum):
    """How desired and applied stand to each other."""

    IN_SYNC = "InSync"
    APPLYING = "Applying"
    STALE = "Stale"
    REJECTED = "Rejected"
    UNSUPPORTED = "Unsupported"
    UNREACHABLE = "Unreachable"
    UNKNOWN = "Unknown"


class SyncVerdict(NamedTuple):
    """The word, a CamelCase reason, and whether it is late enough to be shown in amber."""

    sync: Sync
    reason: str
    late: bool = False


@dataclass(frozen=True, slots=True)
class Desired:
    """What the gateway is to run. ``since``: when the oldest generation not applied was made."""

    epoch: str
    generation: int
    hash: str
    since: datetime


@dataclass(frozen=True, slots=True)
class Reported:
    """An instance's newest report. ``heard_at``: its arrival at the control plane."""

    heard_at: datetime
    epoch: str
    received_generation: int
    applied_generation: int
    applied_hash: str
    has_reported: bool = True
    rejected: int = 0
    unsupported: int = 0
    refused_generation: int = 0
    checkpointed_generation: int | None = None


def judge(desired: Desired, reported: Reported, now: datetime) -> SyncVerdict:
    """One instance's verdict at ``now``."""
    silent = now - reported.heard_at
    if silent > SILENT_RED:
        return SyncVerdict(Sync.UNREACHABLE, "NoContact", late=True)
    if not reported.has_reported:
        return SyncVerdict(Sync.UNKNOWN, "NeverReported")
    if silent > SILENT_AMBER:
        return SyncVerdict(Sync.UNKNOWN, "NoRecentContact", late=True)
    if reported.epoch == desired.epoch and reported.applied_generation > desired.generation:
        # It was told more than this database remembers: a restored backup.
        return SyncVerdict(Sync.STALE, "AheadOfControlPlane", late=True)
    if _runs(desired, reported):
        if reported.rejected:
            return SyncVerdict(Sync.REJECTED, "ItemRejected", late=True)
        if reported.unsupported:
            return SyncVerdict(Sync.UNSUPPORTED, "ItemUnsupported", late=True)
        saved = reported.checkpointed_generation
        if saved is not None and saved < reported.applied_generation:
            # Enforced all the same: only a restart while we are away would forget it.
            return SyncVerdict(Sync.IN_SYNC, NOT_ON_DISK, late=True)
        return SyncVerdict(Sync.IN_SYNC, "Enforced")
    if reported.refused_generation and reported.refused_generation == desired.generation:
        return SyncVerdict(Sync.REJECTED, "SnapshotRefused", late=True)
    pending = now - desired.since
    if pending > LATE_RED:
        return SyncVerdict(Sync.STALE, _why_behind(desired, reported), late=True)
    return SyncVerdict(Sync.APPLYING, _why_behind(desired, reported), late=pending > LATE_AMBER)


def _runs(desired: Desired, reported: Reported) -> bool:
    return (reported.epoch, reported.applied_generation, reported.applied_hash) == (
        desired.epoch,
        desired.generation,
        desired.hash,
    )


def _why_behind(desired: Desired, reported: Reported) -> str:
    if reported.epoch != desired.epoch:
        return "OtherEpoch"
    if reported.applied_generation == desired.generation:
        return "OtherContent"
    if reported.received_generation >= desired.generation:
        return "Received"
    return "NotDelivered"


def is_counted(heard_at: datetime, now: datetime) -> bool:
    """False once an instance has been silent so long that it leaves every ``n of m``."""
    return now - heard_at <= FORGOTTEN


def is_live(heard_at: datetime, now: datetime) -> bool:
    """True while an instance takes its share of limits that are written per gateway."""
    return now - heard_at <= SILENT_RED
