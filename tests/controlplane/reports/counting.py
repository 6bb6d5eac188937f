"""What a report must say, counted one event at a time from what was sent (design 4.7).

A second, naive reading of the rules, against which the SQL is held: no joins, no grouping, plain
loops over the events' dictionaries. Costs are asked of the price book that ingest used.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

IDLE = timedelta(minutes=15)
Event = dict[str, Any]
Sent = tuple[str, Event]  # gateway's name, event


@dataclass
class Counted:
    """One line, as plain sums."""

    counts: Counter[str] = field(default_factory=Counter)
    cost: Decimal = Decimal(0)
    wasted: Decimal = Decimal(0)
    wasted_finally: Decimal = Decimal(0)


def at(event: Event, name: str = "occurred_at") -> datetime:
    """A time of an event."""
    return datetime.fromisoformat(event[name])


def circuit(event: Event) -> str:
    """The written circuit of an attempt or refusal."""
    region = event.get("region", "")
    return f"{event['provider']}/{event['model']}" + (f"@{region}" if region else "")


@dataclass
class Ended:
    """A task that closed: when, how, and whose it is."""

    at: datetime
    success: bool
    keys: dict[str, str]


def _split(gateway: str, event: Event, by: str) -> str:
    return {
        "circuit": circuit(event) if "provider" in event else "",
        "route": event["route"],
        "tenant": event["tenant"],
        "gateway": gateway,
    }[by]


def _task_of(gateway: str, event: Event) -> tuple[str, ...]:
    if event.get("task"):
        return ("task", gateway, event["tenant"], event["task"])
    return ("request", gateway, event["request"])


def closed_tasks(sent: list[Sent], end: datetime) -> dict[tuple[str, ...], Ended]:
    """Every task with a result. Its last attempt is looked for before ``end``."""
    outcomes: dict[tuple[str, ...], list[Sent]] = defaultdict(list)
    attempts: dict[tuple[str, ...], list[Event]] = defaultdict(list)
    for gateway, event in sent:
        if event["kind"] == "outcome":
            outcomes[_task_of(gateway, event)].append((gateway, event))
        if event["kind"] == "attempt" and at(event) < end:
            attempts[_task_of(gateway, event)].append(event)
    found = {}
    for task, events in outcomes.items():
        said = [e for _, e in events if e.get("explicit")]
        ended = [e for _, e in events if not e.get("explicit")]
        if said:
            word = max(said, key=lambda e: (at(e), e["id"]))
            when, success = at(word), word["success"]
        else:
            word = max(ended, key=lambda e: (at(e, "ended_at"), e["id"]))
            when, success = at(word, "ended_at"), word["success"]
            when = when + IDLE if task[0] == "task" else at(word)
        first = min(ended, key=lambda e: at(e, "started_at"), default=None)
        mine = attempts[task]
        last = max(mine, key=lambda e: (at(e), e["ordinal"], e["id"])) if mine else None
        keys = {
            "circuit": circuit(last) if last else "",
            "route": first["route"] if first else "",
            "tenant": events[0][1]["tenant"],
            "gateway": events[0][0],
        }
        found[task] = Ended(when, success, keys)
    return found


def counted(
    sent: list[Sent], costs: dict[str, Decimal | None], by: str, start: datetime, end: datetime
) -> dict[str, Counted]:
    """Lines by key; "*" is the total."""
    lines: dict[str, Counted] = defaultdict(Counted)
    tasks = closed_tasks(sent, end)
    for gateway, event in sent:
        if not start <= at(event) < end or event["kind"] not in ("attempt", "refusal"):
            continue
        key = _split(gateway, event, by)
        for line in (lines[key], lines["*"]):
            if event["kind"] == "refusal":
                line.counts["would" if event.get("would_have") else f"gate {event['gate']}"] += 1
            else:
                _add_attempt(line, event, costs[event["id"]], tasks.get(_task_of(gateway, event)))
    for ended in tasks.values():
        if start <= ended.at < end:
            for line in (lines[ended.keys[by]], lines["*"]):
                line.counts["tasks ok" if ended.success else "tasks failed"] += 1
    return lines


def _add_attempt(line: Counted, event: Event, cost: Decimal | None, ended: Ended | None) -> None:
    line.counts["attempts"] += 1
    line.counts[event["role"]] += 1
    line.counts["failed"] += event.get("counts_against_breaker", False)
    line.counts["succeeded"] += event["verdict"] == "success"
    lost = not event["served"]
    if cost is None:
        line.counts["unpriced"] += 1
        return
    line.cost += cost
    line.wasted += cost if lost else 0
    line.wasted_finally += cost if lost or (ended and not ended.success) else 0
