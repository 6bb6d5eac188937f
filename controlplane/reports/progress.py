"""How far one item of desired state has come, instance by instance.

Invariant: enforced is said only of an instance whose own report said Applied of this generation;
delays are counted from the moment the generation was recorded, on the control plane's clock. A
silent instance is unreachable, whatever it said before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from controlplane.domain.precedence import Selection
from controlplane.domain.sync import is_live
from controlplane.models import (
    BreakerPolicy,
    Delivery,
    Instance,
    Override,
    Probe,
    RetryBudget,
    Route,
)
from controlplane.reports.fleet import counted

Followed: TypeAlias = Override | Probe | RetryBudget | BreakerPolicy | Route


class Stage(StrEnum):
    """Where an item is at one instance."""

    RECORDED = "Recorded"
    DELIVERED = "Delivered"
    ENFORCED = "Enforced"
    SUPERSEDED = "Superseded"
    REJECTED = "Rejected"
    UNSUPPORTED = "Unsupported"
    UNREACHABLE = "Unreachable"
    LIFTED = "Lifted"


_BY_VERDICT = {
    "Applied": Stage.ENFORCED,
    "Superseded": Stage.SUPERSEDED,
    "Rejected": Stage.REJECTED,
    "Unsupported": Stage.UNSUPPORTED,
    "": Stage.DELIVERED,
}
_NEVER_IN_FORCE = {Stage.REJECTED, Stage.UNSUPPORTED}


@dataclass(frozen=True, slots=True)
class Step:
    """One instance's way. Milliseconds since the generation was recorded; None: not yet."""

    gateway: str
    slot: str
    boot_id: str
    stage: Stage
    last_seen_at: datetime
    at_boot: bool = False
    """True when the item was older than this boot, which put it in force as it began: the
    milliseconds count from the boot's first report."""
    delivered_ms: int | None = None
    enforced_ms: int | None = None
    judged_ms: int | None = None
    lifted_ms: int | None = None
    reason: str = ""
    message: str = ""
    field_path: str = ""
    first_effect_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """All targeted instances and how many are at each stage."""

    recorded_at: datetime
    steps: tuple[Step, ...]
    ended_at: datetime | None = None

    def count(self, stage: Stage) -> int:
        """How many instances are at a stage."""
        return sum(step.stage is stage for step in self.steps)

    @property
    def phase(self) -> str:
        """One word for the whole, which never claims more than every instance said."""
        enforced, targeted = self.count(Stage.ENFORCED), len(self.steps)
        if not targeted:
            return "Pending"
        if enforced == targeted:
            return "Enforced"
        refused = self.count(Stage.REJECTED) + self.count(Stage.UNSUPPORTED)
        if refused == targeted:
            return "Failed"
        if self.count(Stage.RECORDED) + self.count(Stage.DELIVERED):
            return "Progressing"
        if enforced:
            return "PartiallyEnforced"
        return "Superseded" if self.count(Stage.SUPERSEDED) == targeted else "NotEnforced"


def of_item(
    item: Followed,
    now: datetime,
    among: Sequence[Instance] | None = None,
) -> Progress:
    """The progress of an item's present generation at the instances that it targets.

    ``among``: the running instances, when the caller has read them already.
    """
    return of_items([item], now, among)[0]


def of_items(
    items: Sequence[Followed], now: datetime, among: Sequence[Instance] | None = None
) -> list[Progress]:
    """The progress of each of many items, in their order, with one question to the database."""
    heard: dict[tuple[str, int], dict[int, Delivery]] = defaultdict(dict)
    for row in Delivery.objects.filter(uid__in=[str(item.uid) for item in items]):
        heard[row.uid, row.generation][row.instance_id] = row
    members = _members(now) if among is None else among
    return [_of(item, heard[str(item.uid), item.generation], members, now) for item in items]


def _members(now: datetime) -> list[Instance]:
    """Where and when, and no more: what instances report of themselves was more than half of
    the reading, and an operator's answer waits for it while the change is on its way (measured)."""
    return list(counted(now).only("gateway", "slot", "boot_id", "first_seen_at", "last_seen_at"))


def _of(
    item: Followed, heard: dict[int, Delivery], members: Sequence[Instance], now: datetime
) -> Progress:
    ended_at = item.ended_at if isinstance(item, Override) else None
    selection = Selection(gateway=item.gateway, selector=item.selector)
    if isinstance(item, Probe) and item.expires_at <= now:
        # Over: whoever has not heard of it will not hear of it any more.
        members = [member for member in members if member.pk in heard]
    steps = [
        _step(member, heard.get(member.pk), item.updated_at, ended_at, now)
        for member in members
        if selection.covers_gateway(member.gateway.name, member.gateway.labels)
    ]
    return Progress(item.updated_at, tuple(steps), ended_at)


def _step(
    member: Instance,
    row: Delivery | None,
    recorded_at: datetime,
    ended_at: datetime | None,
    now: datetime,
) -> Step:
    # A boot that began later found the item there: its own way is from its first word, not hours.
    at_boot = member.first_seen_at > recorded_at
    since = max(recorded_at, member.first_seen_at)
    judged = _ms(since, row.acknowledged_at) if row else None
    refused = row is not None and _BY_VERDICT.get(row.verdict) in _NEVER_IN_FORCE
    lifted = _ms(ended_at, row.lifted_at) if row and ended_at and not refused else None
    return Step(
        gateway=member.gateway.name,
        slot=member.slot,
        boot_id=str(member.boot_id),
        stage=_stage(member, row, ended_at, now),
        last_seen_at=member.last_seen_at,
        at_boot=at_boot,
        delivered_ms=_ms(since, row.delivered_at) if row else None,
        enforced_ms=judged if row and row.verdict == "Applied" else None,
        judged_ms=judged,
        lifted_ms=lifted,
        reason=row.reason if row else "",
        message=row.message if row else "",
        field_path=row.field_path if row else "",
        first_effect_at=row.first_effect_at if row else None,
    )


def _stage(
    member: Instance, row: Delivery | None, ended_at: datetime | None, now: datetime
) -> Stage:
    if ended_at is not None and (row is None or row.verdict != "Applied" or row.lifted_at):
        # What was refused was never in force, so its end lifts nothing: it stays on the record.
        said = _BY_VERDICT.get(row.verdict, Stage.DELIVERED) if row else Stage.RECORDED
        return said if said in _NEVER_IN_FORCE else Stage.LIFTED
    if not is_live(member.last_seen_at, now):
        return Stage.UNREACHABLE
    return _BY_VERDICT.get(row.verdict, Stage.DELIVERED) if row else Stage.RECORDED


def _ms(start: datetime | None, end: datetime | None) -> int | None:
    if start is None or end is None:
        return None
    return max(0, round((end - start).total_seconds() * 1000))
