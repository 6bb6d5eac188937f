"""Fifteen minutes of a circuit: attempts and failures by minute, and what its breakers were.

Invariant: a silent instance counts until its last word and not after, so a lane is never extended
over a gap; a slot in which nothing was known is a gap. Pure.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from controlplane.domain.overrides import OverrideMode
from controlplane.reports import wall_rows
from dashboard import drawing
from dashboard.circuits import Breaker, CircuitFacts

SLOT_SECONDS = 5
SLOTS = 181  # of a quarter-hour, and the one that runs
MINUTES = 15
_KINDS = {"Open": "open", "HalfOpen": "half", "Ramping": "half", "Closed": "closed"}


def traffic(facts: CircuitFacts, since: datetime) -> tuple[list[float], list[float]]:
    """Attempts and failures by minute, oldest first; the newest is the sliding minute."""
    attempts, failed = [0.0] * MINUTES, [0.0] * MINUTES
    for row in facts.minutes:
        place = int((row.minute - since).total_seconds() // 60)
        if 0 <= place < MINUTES:
            attempts[place] += row.attempts
            failed[place] += row.failed
    attempts[-1], failed[-1] = facts.rates.attempts, facts.rates.failed
    return attempts, failed


def areas(facts: CircuitFacts, since: datetime) -> dict[str, str]:
    """Paths ``calls`` (attempts) and ``fails`` (failures over the same scale)."""
    attempts, failed = traffic(facts, since)
    top = max(attempts)
    return {
        "calls": drawing.area(attempts, top),
        "fails": drawing.area(failed, top) if any(failed) else "",
    }


def line(facts: CircuitFacts, since: datetime) -> str:
    """Attempts of the whole minutes alone: it changes once a minute, so 200 tiles stay quiet."""
    attempts = traffic(facts, since)[0][:-1]
    return drawing.line(attempts, max(attempts) * 1.6, 12) if any(attempts) else ""


def beginning(at: datetime) -> datetime:
    """The left edge of every drawing of a moment: it moves once a slot."""
    return (at - timedelta(minutes=MINUTES)).replace(
        second=at.second // SLOT_SECONDS * SLOT_SECONDS, microsecond=0
    )


def lane(facts: CircuitFacts, since: datetime, at: datetime) -> dict[str, str]:
    """The state lane's paths: the state of most instances, pale where only some were Open."""
    return drawing.lane(slots(facts, since, at))


def slots(facts: CircuitFacts, since: datetime, at: datetime) -> list[str]:
    """The kind of each slot: closed, half, part, open or gap; ``hand-`` under an override."""
    changes = {kind: [0] * (SLOTS + 1) for kind in ("open", "half", "closed")}
    history = _by_instance(facts.transitions)
    for breaker in [*facts.breakers, *facts.silent]:
        for begin, end, state in _segments(breaker, history, since, at):
            first = _slot(begin, since)
            # What lasts until now fills the running slot; what ended gives its slot to the next.
            last = SLOTS if end >= at else _slot(end, since)
            if first < last:
                changes[_KINDS[state]][first] += 1
                changes[_KINDS[state]][last] -= 1
    over = facts.override or facts.local
    hand = SLOTS + 1
    if over is not None:
        hand = _slot(over.created_at, since)
    kinds, standing = [], dict.fromkeys(changes, 0)
    for slot in range(SLOTS):
        for kind, change in changes.items():
            standing[kind] += change[slot]
        kind = _majority(standing)
        kinds.append(f"hand-{kind}" if slot >= hand and kind != "gap" else kind)
    return kinds


def _slot(moment: datetime, since: datetime) -> int:
    return min(SLOTS, max(0, int((moment - since).total_seconds() // SLOT_SECONDS)))


def _majority(standing: dict[str, int]) -> str:
    total = sum(standing.values())
    if total == 0:
        return "gap"
    if standing["open"] * 2 > total:
        return "open"
    if standing["open"]:
        return "part"
    return "half" if standing["half"] * 2 >= total else "closed"


def _by_instance(
    rows: list[wall_rows.TransitionRow],
) -> dict[int, list[wall_rows.TransitionRow]]:
    grouped: dict[int, list[wall_rows.TransitionRow]] = {}
    for row in rows:
        grouped.setdefault(row.instance_id, []).append(row)
    return grouped


def _segments(
    breaker: Breaker,
    history: dict[int, list[wall_rows.TransitionRow]],
    since: datetime,
    at: datetime,
) -> list[tuple[datetime, datetime, str]]:
    """(begin, end, state) of one instance, as far as it was heard."""
    end = at if breaker.member.reachable else min(at, breaker.member.row.last_seen_at)
    rows = history.get(breaker.state.instance_id, [])
    below = _felt(breaker.state.would_be or breaker.state.state, breaker.state.mode)
    state = _felt(rows[0].from_state, rows[0].mode) if rows else below
    # Before its process began there was no breaker of this instance.
    began = breaker.member.row.started_at
    begin = max(since, min(began, end)) if began else since
    if not rows and breaker.state.cause == "Boot":
        begin = max(begin, min(breaker.state.since, end))
    found = []
    for row in rows:
        found.append((begin, row.at, state))
        begin, state = row.at, _felt(row.to_state, row.mode)
    found.append((begin, end, "Ramping" if breaker.observed == "Ramping" else state))
    over = breaker.local or breaker.override
    if over is not None and breaker.state.mode == over.mode:
        found = _under(found, over.created_at, end, breaker.observed)
    return [(a, b, s) for a, b, s in found if b > a]


def _felt(state: str, mode: str) -> str:
    """What calls met: under ObserveOnly they pass, whatever the breaker below would do."""
    return "Closed" if mode == OverrideMode.OBSERVE_ONLY else state


def _under(
    segments: list[tuple[datetime, datetime, str]], hand: datetime, end: datetime, state: str
) -> list[tuple[datetime, datetime, str]]:
    """The same with everything after the hand replaced by what it makes of the circuit."""
    before = [(a, min(b, hand), s) for a, b, s in segments if a < hand]
    return [*before, (max(hand, segments[0][0]), end, state)]
