"""What happened to an object, newest first: writes, what instances said, what breakers did.

Invariant: each line is of a row that is kept (audit, delivery, transition, instance, generation);
nothing is inferred. What many instances said alike is one line that says how many.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from controlplane.models import (
    AuditEntry,
    ConfigGeneration,
    Delivery,
    Gateway,
    Instance,
    Override,
)
from controlplane.reports.transitions import TransitionLine
from dashboard import present
from dashboard.why import cause_words

MOST = 100
_VERDICTS = {
    "Rejected": ("rejected", "open"),
    "Unsupported": ("unreachable", "unk"),
    "Superseded": ("hand", "hand"),
    "Applied": ("tick", "closed"),
}
_STATES = {"Open": "open", "HalfOpen": "half", "Closed": "closed"}


@dataclass(frozen=True, slots=True)
class Event:
    """One line: when, what, by whom or what, and the rest in words."""

    at: datetime
    what: str
    glyph: str
    tone: str
    by: str
    message: str


def newest(*sources: Iterable[Event]) -> list[Event]:
    """The newest of several sources as one list."""
    found = [event for source in sources for event in source]
    return sorted(found, key=lambda event: event.at, reverse=True)[:MOST]


def written(kind: str, name: str) -> list[Event]:
    """What people did to the object, as the audit has it."""
    rows = AuditEntry.objects.filter(object_kind=kind, object_name=name).order_by("-id")[:MOST]
    return [
        Event(row.at, row.action, "hand", "hand", row.actor, row.reason or _generation(row))
        for row in rows
    ]


def _generation(row: AuditEntry) -> str:
    number = (row.after or {}).get("generation")
    return f"generation {number}" if number else ""


def delivered(uid: str, recorded_at: datetime, generation: int) -> list[Event]:
    """What instances said of the object, each generation folded by what they said."""
    rows = Delivery.objects.filter(uid=uid).select_related("instance").order_by("-generation")
    found = []
    said = sorted(
        (row for row in rows[: MOST * 20] if row.acknowledged_at),
        key=lambda row: (row.generation, row.verdict, row.reason, row.message),
    )
    for (number, verdict, reason, message), same in groupby(
        said, key=lambda row: (row.generation, row.verdict, row.reason, row.message)
    ):
        members = list(same)
        began = recorded_at if number == generation else None
        found.append(_said(members, number, verdict, f"{reason}: {message}".strip(": "), began))
    return found


def _said(
    rows: Sequence[Delivery], number: int, verdict: str, why: str, began: datetime | None
) -> Event:
    times = sorted(row.acknowledged_at for row in rows if row.acknowledged_at)
    glyph, tone = _VERDICTS.get(verdict, ("arrow", "info"))
    by = rows[0].instance.slot if len(rows) == 1 else present.count(len(rows), "instance")
    words = [f"generation {number}"]
    if began is not None:
        first, last = ((t - began).total_seconds() for t in (times[0], times[-1]))
        after = f"after {present.age(first)}"
        words.append(after if len(times) == 1 else f"{after} to {present.age(last)}")
    what = {"Applied": "Enforced"}.get(verdict, verdict)
    return Event(times[-1], what, glyph, tone, by, why or ", ".join(words))


def moved(lines: Sequence[TransitionLine]) -> list[Event]:
    """What breakers did, newest first; what several did alike one after another is one line."""
    found = []
    for (before, after, cause), same in groupby(
        lines, key=lambda line: (line.from_state, line.to_state, _cause(line))
    ):
        members = list(same)
        tone = _STATES.get(after, "unk")
        by, took = members[0].instance, (members[0].at - members[-1].at).total_seconds()
        words = cause
        if len(members) > 1:
            instances = {line.instance for line in members}
            by = present.count(len(instances), "instance")
            words = f"{cause}; {len(members)} times within {present.age(took)}"
        glyph = _STATES.get(after, "unknown")
        found.append(Event(members[0].at, f"{before} → {after}", glyph, tone, by, words))
    return found


def _cause(line: TransitionLine) -> str:
    words = cause_words(line.cause, line.to_state)
    if line.calls:
        words += f": {line.failures:,} of {line.calls:,} calls failed"
    return f"{words}, under {line.mode}" if line.mode != "Auto" else words


def forced(rows: Iterable[Override], now: datetime) -> list[Event]:
    """Hands that were laid on it and taken away."""
    found = []
    for row in rows:
        glyph = {"ForceOpen": "forceopen", "ForceClosed": "forceclosed"}.get(row.mode, "observe")
        found.append(Event(row.created_at, row.mode, glyph, "hand", row.created_by, row.reason))
        over = row.ended_at or (row.expires_at if row.expires_at <= now else None)
        if over:
            how = f"{row.mode} {row.name}: {(row.end_cause or 'Expired').lower()}"
            found.append(Event(over, "Ended", glyph, "hand", row.ended_by or "its time", how))
    return found


def of_gateway(gateway: Gateway) -> list[Event]:
    """Its instances came and went; its configuration was compiled."""
    found = []
    for one in Instance.objects.filter(gateway=gateway).order_by("-first_seen_at")[:MOST]:
        version = f"version {one.version}" if one.version else "version not said"
        boot = f"{version}, boot {str(one.boot_id)[:8]}"
        found.append(Event(one.first_seen_at, "Began", "arrow", "info", one.slot, boot))
        if one.goodbye_at:
            found.append(Event(one.goodbye_at, "Said goodbye", "tick", "closed", one.slot, boot))
        elif one.replaced_at and one.replaced_at > one.first_seen_at:
            found.append(Event(one.replaced_at, "Replaced", "arrow", "info", one.slot, boot))
    compiled = ConfigGeneration.objects.filter(gateway=gateway).order_by("-generation")[:30]
    found += [
        Event(
            row.compiled_at,
            "Compiled",
            "gateways",
            "info",
            "control plane",
            f"generation {row.generation} of revision {row.revision}, hash {row.hash[:12]}",
        )
        for row in compiled
    ]
    return found
