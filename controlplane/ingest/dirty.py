"""Which derived minutes and hours an event has made wrong: marked in the event's own transaction.

Invariant: an event of a minute or hour before its watermark leaves a mark that is committed with
it, and the job that derives takes the mark before it reads; so whatever the two do at once, a
derived row is right or is marked. Ingest shares one lock until commit; the job takes it alone for
the moment in which it moves a watermark, so no event is ever between the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from psycopg import AsyncConnection

from controlplane.domain.rollup import hour_of, minute_of
from controlplane.ingest.rows import Item
from controlplane.wire.events import Attempt, Outcome, Refusal

LOCK = "hashtext('switchgear_watermarks')"
# A task may reach so far back (design 4.7: frozen 7 days after its last request).
_LONGEST_TASK = timedelta(days=8)
_HOUR = timedelta(hours=1)
_SHARE = f"SELECT pg_advisory_xact_lock_shared({LOCK})"
_WATERMARKS = "SELECT grain, upto FROM rollup_watermark"
# An update and no "do nothing": it holds the mark until commit, so that the job waits for us.
_MARK = """
INSERT INTO rollup_dirty AS d (grain, at)
SELECT grain, at FROM unnest(%s::text[], %s::timestamptz[]) AS m(grain, at) ORDER BY grain, at
ON CONFLICT (grain, at) DO UPDATE SET at = EXCLUDED.at
"""
_TASK_SPANS = """
SELECT first_started_at, GREATEST(last_ended_at, explicit_at)
FROM task JOIN unnest(%s::int[], %s::text[], %s::text[]) AS w(gateway_id, tenant, task)
  USING (gateway_id, tenant, task)
"""
# The ends of requests whose attempts came late, and the attempts of ends that do not say when their
# request began.
_OTHER_HALVES = """
SELECT occurred_at FROM outcome WHERE request = ANY(%s)
UNION ALL SELECT occurred_at FROM attempt WHERE request = ANY(%s)
"""


@dataclass(frozen=True, slots=True)
class Watermarks:
    """Minutes and hours before these are derived."""

    minute: datetime
    hour: datetime


async def share(conn: AsyncConnection) -> Watermarks:
    """Keep the watermarks where they are until commit."""
    async with conn.pipeline():
        await conn.execute(_SHARE)
        # A statement of its own: its snapshot must be taken after the lock.
        cursor = await conn.execute(_WATERMARKS)
    found = dict(await cursor.fetchall())
    return Watermarks(found["minute"], found["hour"])


async def mark(conn: AsyncConnection, new: Iterable[Item], marks: Watermarks) -> None:
    """Mark what these new events, whose tasks are folded, have made wrong."""
    found = _Found(marks)
    for item in new:
        found.add(item)
    if found.tasks:
        columns = [list(column) for column in zip(*found.tasks, strict=True)]
        spans = await conn.execute(_TASK_SPANS, columns)
        for begun, ended in await spans.fetchall():
            if ended is not None:
                # A task's end by idleness lies up to a quarter of an hour behind its last word.
                found.add_hours(begun or ended, ended + _HOUR / 4)
    if found.late or found.begun_unknown:
        halves = await conn.execute(_OTHER_HALVES, (found.late, found.begun_unknown))
        for (at,) in await halves.fetchall():
            found.add_hours(at, at)
    rows = [("hour", at) for at in sorted(found.hours)]
    rows += [("minute", at) for at in sorted(found.minutes)]
    if rows:
        await conn.execute(_MARK, [list(column) for column in zip(*rows, strict=True)])


class _Found:
    """What the events of one group have made wrong, and what must be asked for to know the rest."""

    def __init__(self, marks: Watermarks) -> None:
        self._marks = marks
        self.minutes: set[datetime] = set()
        self.hours: set[datetime] = set()
        self.tasks: set[tuple[int, str, str]] = set()
        self.late: list[UUID] = []
        self.begun_unknown: list[UUID] = []

    def add(self, item: Item) -> None:
        """Add what one new event has made wrong."""
        event, at = item.event, item.event.occurred_at
        if isinstance(event, Attempt | Refusal):
            if at < self._marks.minute:
                self.minutes.add(minute_of(at))
            if at < self._marks.hour:
                self.hours.add(hour_of(at))
                self.late.append(event.request)
                self._add_task(item, event.tenant, event.task)
        elif isinstance(event, Outcome):
            self.add_hours(event.started_at or at, at)
            self._add_task(item, event.tenant, event.task)
            if event.started_at is None and event.request is not None:
                self.begun_unknown.append(event.request)

    def add_hours(self, begun: datetime, ended: datetime) -> None:
        """Add the hours from ``begun`` to ``ended`` that are derived."""
        at = hour_of(max(begun, ended - _LONGEST_TASK))
        while at <= ended and at < self._marks.hour:
            self.hours.add(at)
            at += _HOUR

    def _add_task(self, item: Item, tenant: str, task: str | None) -> None:
        if task:
            self.tasks.add((item.origin.gateway_id, tenant, task))
