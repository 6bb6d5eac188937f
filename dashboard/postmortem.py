"""An incident as figures and as Markdown for the postmortem: the same numbers, once.

Invariant: every sum is of what is known, and what is missing is said; text from outside cannot
break out of its cell or its line. Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

from controlplane.reports.incident import Hand, Incident
from dashboard import present
from dashboard.timeline import Lane

MOST_ROWS = 60
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~])")


@dataclass(frozen=True, slots=True)
class Figures:
    """What the head of the page says. Money in £, None: no minute is known."""

    opened_at: datetime | None
    closed_at: datetime | None
    circuits: int
    overrides: int
    spend: Decimal | None
    wasted: Decimal | None
    unpriced: int
    peak_wasted: Decimal | None
    peak_at: datetime | None
    most_refused: float | None
    most_refused_at: datetime | None
    retry_ratio: float | None
    providers: tuple[str, ...]

    @property
    def seconds(self) -> float | None:
        """From the first opening to the last close; None while something is open."""
        if self.opened_at is None or self.closed_at is None:
            return None
        return (self.closed_at - self.opened_at).total_seconds()


@dataclass(frozen=True, slots=True)
class Event:
    """One line of what happened."""

    at: datetime
    what: str
    where: str
    tone: str = ""


def figures(incident: Incident, lanes: list[Lane]) -> Figures:
    """The head's figures, over the stretch."""
    opened = min((lane.opened_at for lane in lanes if lane.opened_at), default=None)
    minutes = incident.minutes
    peak = max(minutes, key=lambda m: m.wasted_gbp, default=None)
    refused = max(minutes, key=lambda m: m.refused_budget, default=None)
    firsts = sum(m.firsts for m in minutes)
    return Figures(
        opened_at=opened,
        closed_at=_closed(lanes),
        circuits=sum(lane.opened_at is not None for lane in lanes),
        overrides=len(incident.overrides),
        spend=sum((m.cost_gbp for m in minutes), Decimal(0)) if minutes else None,
        wasted=sum((m.wasted_gbp for m in minutes), Decimal(0)) if minutes else None,
        unpriced=sum(m.unpriced for m in minutes),
        peak_wasted=peak.wasted_gbp if peak and peak.wasted_gbp else None,
        peak_at=peak.minute if peak and peak.wasted_gbp else None,
        most_refused=refused.refused_budget / 60 if refused else None,
        most_refused_at=refused.minute if refused and refused.refused_budget else None,
        retry_ratio=sum(m.retries for m in minutes) / firsts if firsts else None,
        providers=tuple(sorted({c.provider for c in incident.circuits})),
    )


def _closed(lanes: list[Lane]) -> datetime | None:
    """When the last of them was no longer open; None while one is."""
    ends = []
    for lane in lanes:
        spans = [s for s in lane.spans if s.kind in ("open", "part")]
        if spans and lane.spans[-1].kind in ("open", "part"):
            return None
        ends += [spans[-1].end] if spans else []
    return max(ends, default=None)


def title(found: Figures) -> str:
    """``openai brownout``, or that nothing was open, or known."""
    if not found.circuits:
        # Of a time in which no gateway spoke nothing can be said, least of all that all was well.
        return "Nothing was open" if found.spend is not None else "Nothing is known of this time"
    names = ", ".join(found.providers[:3])
    return f"{names}: {present.count(found.circuits, 'circuit')} opened"


def events(incident: Incident, lanes: list[Lane], silent: list[Lane]) -> list[Event]:
    """What happened, in order: first openings, last closes, hands, silences, marks."""
    names = {c.id: present.place(c.provider, c.region) for c in incident.circuits}
    slots = Counter(c.circuit_id for c in _first_openings(incident))
    found = []
    for lane in lanes:
        where = names.get(lane.circuit_id, "")
        if lane.opened_at is not None:
            on = present.count(slots[lane.circuit_id], "instance") if slots else ""
            words = f"{where}, {on}" if on and slots[lane.circuit_id] else where
            found.append(Event(lane.opened_at, f"{lane.name} opened", words, "open"))
        last = lane.spans[-1] if lane.spans else None
        if lane.opened_at and last and last.kind in ("closed", "half") and not last.hand:
            open_for = present.age(lane.open_seconds)
            word = "closed for good" if last.kind == "closed" else "no longer open"
            found.append(
                Event(last.begin, f"{lane.name} {word}", f"{where}, open {open_for} in all")
            )
    for hand in incident.overrides:
        found += _of_hand(incident, hand)
    for lane in silent:
        gap = lane.spans[0]
        length = present.age((gap.end - gap.begin).total_seconds())
        found.append(Event(gap.begin, f"{lane.name} was silent", f"no data for {length}", "unk"))
    found += [Event(m.at, m.text, f"mark by {m.created_by}", "info") for m in incident.marks]
    return sorted(found, key=lambda event: (event.at, event.what))


def _first_openings(incident: Incident) -> list[object]:
    seen: dict[tuple[int, int], object] = {}
    for change in incident.changes:
        if change.to_state == "Open" and change.mode != "ObserveOnly":
            seen.setdefault((change.instance_id, change.circuit_id), change)
    return list(seen.values())


def _of_hand(incident: Incident, hand: Hand) -> list[Event]:
    said = Counter(d.verdict for d in incident.deliveries if d.uid == hand.uid)
    words = {"Applied": "enforced", "Rejected": "rejected", "Unsupported": "unsupported"}
    count = " · ".join(f"{said[v]} {w}" for v, w in words.items() if said[v]) or "nobody answered"
    about = present.match_words(hand.provider, hand.model, hand.region)
    where = f"{hand.created_by}: {hand.reason} ({count})"
    found = []
    if hand.created_at >= incident.since:
        found.append(Event(hand.created_at, f"{hand.mode} {about}", where, "hand"))
    if hand.over_at < min(incident.until, incident.at):
        cause = (hand.end_cause or "Expired").lower()
        found.append(Event(hand.over_at, f"{hand.mode} {about} {cause}", hand.created_by, "hand"))
    return found


def markdown(
    incident: Incident, found: Figures, happened: list[Event], zone: ZoneInfo, link: str
) -> str:
    """For the postmortem: figures, then a table of what happened."""

    def clock(at: datetime) -> str:
        return f"{at.astimezone(zone):%H:%M:%S}"

    day = incident.since.astimezone(zone)
    lines = [f"## {_safe(title(found))}, {day:%a %-d %b %Y}", ""]
    if found.opened_at:
        begin = clock(found.opened_at)
        if found.closed_at:
            length = f" ({present.age(found.seconds)})" if found.seconds is not None else ""
            when = f"**{begin} to {clock(found.closed_at)}** {day:%Z}{length}"
        else:
            when = f"**since {begin}** {day:%Z}, still open"
        lines.append(f"- {when}: {present.count(found.circuits, 'circuit')}")
    if found.spend is None:
        lines.append("- No figures are kept of these minutes")
    else:
        unpriced = f" + {found.unpriced:,} attempts unpriced" if found.unpriced else ""
        peak = (
            f"; peak {present.money(found.peak_wasted)}/min at {clock(found.peak_at)[:5]}"
            if found.peak_at
            else ""
        )
        lines.append(
            f"- Spend {present.money(found.spend)}{unpriced}, of which "
            f"**{present.money(found.wasted)} wasted**{peak}"
        )
        lines.append(f"- Retries: {present.retry_percent(found.retry_ratio)} of first attempts")
    if found.most_refused_at:
        lines.append(
            f"- Budgets refused {present.rate(found.most_refused)} retries at the most, "
            f"at {clock(found.most_refused_at)[:5]}"
        )
    reasons = Counter[str]()
    for row in incident.errors:
        reasons[row.reason] += row.count
    if reasons:
        words = ", ".join(f"{_safe(reason)} {n:,}" for reason, n in reasons.most_common(6))
        lines.append(f"- Failed attempts: {words}")
    if found.overrides:
        lines.append(f"- {present.count(found.overrides, 'override')}")
    lines += ["", f"| time ({day:%Z}) | what | where or who |", "|---|---|---|"]
    lines += [
        f"| {clock(event.at)} | {_safe(event.what)} | {_safe(event.where)} |"
        for event in happened[:MOST_ROWS]
    ]
    if len(happened) > MOST_ROWS:
        lines.append(f"| | {len(happened) - MOST_ROWS} more | |")
    return "\n".join([*lines, "", link, ""])


def _safe(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))
