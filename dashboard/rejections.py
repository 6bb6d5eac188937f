"""Who refuses what it is told, and why: the loudest line of the wall.

Invariant: an instance stands here if and only if its own report says Rejected, of an item or of a
whole snapshot, and it is in contact; what it said and of which field is shown as it said it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from controlplane.domain.sync import Sync
from dashboard import present
from dashboard.fleet import Fleet, Member

_SHOWN = 3


class Rejection(NamedTuple):
    """One thing that at least one instance refuses in the same words."""

    gateway: str
    instance: str
    more: int
    what: str
    why: str

    def __str__(self) -> str:
        verb = f"and {self.more} more refuse" if self.more else "refuses"
        return f"{self.gateway}/{self.instance} {verb} {self.what}: {self.why}"


def rejections(fleet: Fleet) -> list[Rejection]:
    """By gateway, each refusal once with how many instances share it."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for member in fleet.reachable:
        for what, why in words(member):
            found.setdefault((member.gateway.name, what, why), []).append(member.name)
    return [
        Rejection(gateway, names[0], len(names) - 1, what, why)
        for (gateway, what, why), names in sorted(found.items())
    ]


def words(member: Member) -> Iterable[tuple[str, str]]:
    """(what, why) of each thing that an instance refuses; nothing when it refuses nothing."""
    row = member.row
    if member.verdict.sync is Sync.REJECTED and row.refused_generation > row.applied_generation:
        yield f"generation {row.refused_generation}", row.refused_reason or "no reason given"
    for item in row.items:
        if item.verdict != "Rejected":
            continue
        where = f" at {item.field_path}" if item.field_path else ""
        said = f": {item.message}" if item.message else ""
        yield f"{item.kind} {item.name}", f"{item.reason or 'no reason given'}{where}{said}"


def fields(fleet: Fleet) -> dict[str, str | None]:
    """The line above the wall; None when nobody refuses anything."""
    found = rejections(fleet)
    if not found:
        return {"rejected": None, "rejected_note": None}
    instances = sum(1 for member in fleet.reachable if any(True for _ in words(member)))
    more = len(found) - _SHOWN
    said = [str(one) for one in found[:_SHOWN]] + ([f"{more} more refusals"] if more > 0 else [])
    told = "refuses what it is told." if instances == 1 else "refuse what they are told."
    return {
        "rejected": f"Rejected: {present.count(instances, 'instance')} {told}",
        "rejected_note": " · ".join(said),
    }
