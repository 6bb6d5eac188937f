"""``python -m gateway.history``: simulated gateways report whole past weeks to a control plane.

They use the door that every gateway uses, with the same batches whenever they run, so a second run
changes nothing. Reads one JSON line on stdin: ``{"url", "zone", "weeks": ["2026-W45", …],
"tasks_per_week", "gateways": [{"name", "token"}, …]}``; a token never stands in a command line.
Prints one line a stream and, last, a line of JSON with the sums; exits 1 with the reason otherwise.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from controlplane.domain.calendar import Week, zone_named
from controlplane.wire.events import Receipt
from gateway.config import ControlPlane
from gateway.contact import Answer, Contact, NoAnswer
from gateway.history_traffic import Stream

WORKERS = 2
_STREAMS_AT_ONCE = 3
_TRIES = 60
_LONGEST_WAIT_S = 5.0


class Simulated(Struct, frozen=True):
    """A gateway to play, with a token of it."""

    name: str
    token: str


class Order(Struct, frozen=True):
    """What to report, and where."""

    url: str
    zone: str
    weeks: list[str]
    tasks_per_week: Annotated[int, Meta(ge=1, le=10_000_000)]
    gateways: Annotated[list[Simulated], Meta(min_length=1)]


class Refused(Exception):
    """The control plane does not take it; the message says why."""


@dataclass(slots=True)
class Sums:
    """What was reported."""

    tasks: int = 0
    events: int = 0


def streams(order: Order) -> Iterator[tuple[Simulated, Stream]]:
    """Every instance of every week, the weeks in order; the tasks of a week shared out evenly."""
    zone = zone_named(order.zone)
    parts = [(gateway, worker) for gateway in order.gateways for worker in range(WORKERS)]
    for week in map(Week.parse, order.weeks):
        for place, (gateway, worker) in enumerate(parts):
            tasks = order.tasks_per_week // len(parts)
            tasks += place < order.tasks_per_week % len(parts)
            yield gateway, Stream(gateway.name, worker, week, zone, tasks)


async def report(order: Order) -> Sums:
    """Send everything. ``Refused`` when the control plane will not have it."""
    sums = Sums()
    turns = asyncio.Semaphore(_STREAMS_AT_ONCE)

    async def one(gateway: Simulated, stream: Stream) -> None:
        async with turns, Contact(ControlPlane(order.url, gateway.token), gateway.name) as contact:
            await _send_stream(contact, stream, sums)

    async with asyncio.TaskGroup() as group:
        for gateway, stream in streams(order):
            group.create_task(one(gateway, stream))
    return sums


async def _send_stream(contact: Contact, stream: Stream, sums: Sums) -> None:
    events = 0
    batches = await asyncio.to_thread(lambda: list(stream.batches()))
    for batch in batches:
        body = await asyncio.to_thread(gzip.compress, msgspec.json.encode(batch), 1, mtime=0)
        receipt = await _send(contact, body)
        if receipt.unread:
            raise Refused(f"{len(receipt.unread)} events were not read: {receipt.unread[0].reason}")
        events += len(batch.events)
    sums.events += events
    sums.tasks += stream.tasks
    print(f"{stream.week} {stream.gateway}/{stream.worker}: {events:,} events", flush=True)


async def _send(contact: Contact, body: bytes) -> Receipt:
    """Send one batch until it has a receipt; the very same bytes each time."""
    said = "no answer"
    for _ in range(_TRIES):
        wait = 1.0
        try:
            answer = await contact.send_events(body, gzipped=True)
        except NoAnswer as error:
            said = str(error)
        else:
            if answer.status == 200:
                return msgspec.json.decode(answer.body, type=Receipt)
            said = _said(answer)
            if answer.status < 500 and answer.status != 429:
                raise Refused(said)
            wait = answer.retry_after_s or wait
        await asyncio.sleep(min(wait, _LONGEST_WAIT_S))
    raise Refused(f"given up after {_TRIES} tries: {said}")


def _said(answer: Answer) -> str:
    return f"{answer.status} {answer.body[:300].decode('utf-8', 'replace')}"


def main() -> int:
    """Read the order, report, say the sums."""
    try:
        order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Order)
    except msgspec.DecodeError as error:
        print(f"the order cannot be read: {error}", file=sys.stderr)
        return 1
    faults: list[str] = []
    try:
        sums = asyncio.run(report(order))
    except* (Refused, ValueError) as group:
        faults += map(str, group.exceptions)
    if faults:
        print(f"refused: {faults[0]}", file=sys.stderr)
        return 1
    print(json.dumps({name: getattr(sums, name) for name in Sums.__slots__}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
