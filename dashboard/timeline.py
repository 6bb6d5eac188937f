"""Lanes of a stretch of time: what each breaker was, from when to when.

Invariant: a lane is drawn only while its instance spoke; outside that it is a gap. An aggregated
lane is the state of most instances that spoke, ``part`` when some but not most are Open. What a
hand did is taken from the instance's own acknowledgement, never from the wish. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from controlplane.domain.sync import FORGOTTEN
from controlplane.reports.incident import Change, Hand, Incident, Presence

CONTACT = timedelta(seconds=30)
_KINDS = {"Open": "open", "HalfOpen": "half", "Closed": "closed"}
_FORCED = {"ForceOpen": "open", "ForceClosed": "closed", "ObserveOnly": "closed"}


@dataclass(frozen=True, slots=True)
class Span:
    """One stretch of a lane. ``kind``: closed, half, part, open or gap."""

    begin: datetime
    end: datetime
    kind: str
    hand: bool = False


@dataclass(frozen=True, slots=True)
class Lane:
    """One circuit, or one instance of it."""

    name: str
    spans: tuple[Span, ...]
    circuit_id: int = 0

    @property
    def opened_at(self) -> datetime | None:
        """When it was first Open, on some instance at least."""
        return next((s.begin for s in self.spans if s.kind in ("open", "part")), None)

    @property
    def open_seconds(self) -> float:
        """For how long some instance was Open."""
        spans = (s for s in self.spans if s.kind in ("open", "part"))
        return sum((s.end - s.begin).total_seconds() for s in spans)


@dataclass(frozen=True, slots=True)
class _Breaker:
    presence: Presence
    spans: list[Span]


def lanes(incident: Incident) -> list[Lane]:
    """One lane for each circuit that was open, the first to open first."""
    by_circuit = _breakers(incident)
    found = [
        Lane(_title(c.model, c.region), _aggregated(by_circuit.get(c.id, []), incident), c.id)
        for c in incident.circuits
    ]
    return sorted(found, key=lambda lane: (lane.opened_at or incident.until, lane.name))


def instances(incident: Incident, circuit_id: int) -> list[Lane]:
    """One lane for each instance that has the circuit."""
    found = []
    for breaker in _breakers(incident).get(circuit_id, []):
        spans = _with_gaps(breaker.spans, incident.since, min(incident.until, incident.at))
        found.append(Lane(breaker.presence.name, tuple(spans), circuit_id))
    return found


def silences(incident: Incident) -> list[Lane]:
    """Instances that were silent for some of the stretch without having said goodbye.

    One that had been forgotten before the stretch began is not of it, as it is not on the wall.
    """
    end = min(incident.until, incident.at)
    found = []
    followed = {(p.gateway, p.slot): p.began_at for p in incident.instances}
    for presence in incident.instances:
        if incident.since - presence.last_seen_at > FORGOTTEN:
            continue
        silent = max(presence.last_seen_at + CONTACT, incident.since)
        after = followed[presence.gateway, presence.slot]
        until = after if after > presence.began_at else end
        until = min(until, presence.over_at or until, end)
        if silent < until:
            gap = Span(max(presence.last_seen_at, incident.since), until, "gap")
            found.append(Lane(presence.name, (gap,)))
    return found


def _title(model: str, region: str) -> str:
    return f"{model} {region}".strip()


def _breakers(incident: Incident) -> dict[int, list[_Breaker]]:
    """Each instance's spans, by circuit."""
    changes: dict[tuple[int, int], list[Change]] = defaultdict(list)
    for change in incident.changes:
        changes[change.instance_id, change.circuit_id].append(change)
    before = {(s.instance_id, s.circuit_id): s for s in incident.before}
    watchers = {(w.instance_id, w.circuit_id): w for w in incident.watchers}
    presences = {p.id: p for p in incident.instances}
    applied = _applied(incident)
    names = {c.id: c.circuit for c in incident.circuits}
    found: dict[int, list[_Breaker]] = defaultdict(list)
    for key in sorted({*changes, *before, *watchers}):
        presence, circuit = presences.get(key[0]), names.get(key[1])
        if presence is None or circuit is None:
            continue
        begin, end = _spoken(presence, incident)
        rows = changes.get(key, [])
        if rows:
            first, mode = rows[0].from_state, rows[0].mode
        elif key in before:
            first, mode = before[key].state, before[key].mode
        else:
            watcher = watchers[key]
            known = watcher.since <= begin and watcher.mode == "Auto"
            first, mode = (watcher.state if known else "Closed"), "Auto"
        spans = _spans(first, mode, rows, begin, end)
        for hand, at, over in applied.get(key[0], []):
            if hand.selection.covers_circuit(circuit):
                spans = _under(spans, hand, at, min(over, end))
        if spans:
            found[key[1]].append(_Breaker(presence, spans))
    return found


def _spoken(presence: Presence, incident: Incident) -> tuple[datetime, datetime]:
    begin = max(presence.began_at, incident.since)
    now = min(incident.until, incident.at)
    alive = presence.over_at is None and presence.last_seen_at + CONTACT >= now
    return begin, now if alive else min(now, presence.last_seen_at)


def _spans(first: str, mode: str, rows: list[Change], begin: datetime, end: datetime) -> list[Span]:
    found = []
    at, kind = begin, _felt(first, mode)
    for row in rows:
        found.append(Span(at, min(row.at, end), kind))
        at, kind = max(row.at, begin), _felt(row.to_state, row.mode)
    found.append(Span(at, end, kind))
    return [span for span in found if span.begin < span.end]


def _felt(state: str, mode: str) -> str:
    """What calls met: under ObserveOnly they pass, whatever the breaker below would do."""
    return "closed" if mode == "ObserveOnly" else _KINDS.get(state, "half")


def _applied(incident: Incident) -> dict[int, list[tuple[Hand, datetime, datetime]]]:
    hands = {hand.uid: hand for hand in incident.overrides}
    found: dict[int, list[tuple[Hand, datetime, datetime]]] = defaultdict(list)
    for row in incident.deliveries:
        hand = hands.get(row.uid)
        if hand is not None and row.verdict == "Applied" and row.at is not None:
            found[row.instance_id].append((hand, row.at, row.lifted_at or hand.over_at))
    return found


def _under(spans: list[Span], hand: Hand, at: datetime, over: datetime) -> list[Span]:
    """The spans with [at, over) replaced by what the hand made of the circuit."""
    found = []
    for span in spans:
        if span.end <= at or span.begin >= over:
            found.append(span)
            continue
        if span.begin < at:
            found.append(replace(span, end=at))
        middle = Span(max(span.begin, at), min(span.end, over), _FORCED[hand.mode], hand=True)
        found.append(middle)
        if span.end > over:
            found.append(replace(span, begin=over))
    return _joined(found)


def _joined(spans: Iterable[Span]) -> list[Span]:
    found: list[Span] = []
    for span in spans:
        last = found[-1] if found else None
        if last and (last.kind, last.hand, last.end) == (span.kind, span.hand, span.begin):
            found[-1] = replace(last, end=span.end)
        elif span.begin < span.end:
            found.append(span)
    return found


def _aggregated(breakers: list[_Breaker], incident: Incident) -> tuple[Span, ...]:
    """The state of most instances, changing only where one of them does."""
    end = min(incident.until, incident.at)
    steps: list[tuple[datetime, int, str, bool]] = []
    for breaker in breakers:
        for span in breaker.spans:
            steps.append((span.begin, 1, span.kind, span.hand))
            steps.append((span.end, -1, span.kind, span.hand))
    steps.sort(key=lambda step: step[0])
    standing = dict.fromkeys(("open", "half", "closed"), 0)
    hands, at = 0, incident.since
    found: list[Span] = []
    for moment, count, kind, hand in steps:
        if moment > at:
            found.append(Span(at, moment, _most(standing), hands * 2 > sum(standing.values())))
            at = moment
        standing[kind] += count
        hands += count if hand else 0
    if at < end:
        found.append(Span(at, end, "gap"))
    return tuple(_joined(found))


def _most(standing: dict[str, int]) -> str:
    total = sum(standing.values())
    if total == 0:
        return "gap"
    if standing["open"] * 2 > total:
        return "open"
    if standing["open"]:
        return "part"
    return "half" if standing["half"] * 2 >= total else "closed"


def _with_gaps(spans: list[Span], since: datetime, until: datetime) -> list[Span]:
    found, at = [], since
    for span in spans:
        if at < span.begin:
            found.append(Span(at, span.begin, "gap"))
        found.append(span)
        at = span.end
    if at < until:
        found.append(Span(at, until, "gap"))
    return found
