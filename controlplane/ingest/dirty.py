"""Which derived minutes and hours an event has made wrong: marked in the event's own transaction.

Invariant: an event of a minute or hour before its watermark leaves a mark that is committed with
it, and the job that derives takes the mark before it reads; so whatever the two do at once, a
derived row is right or is marked. Ingest shares one lock until commit; the job takes it alone for
the moment in which it moves a watermark, so no event is ever between the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from psycopg import AsyncConnection

from controlplane.domain.rollup import hour_of, minute_of
from controlplane.ingest.rows import Item, Tables
from controlplane.wire.events import Attempt, Outcome, Refusal

LOCK = "hashtext('switchgear_watermarks')"
# Words and attempts of a task lie so far before a new one of its: frozen 7 days after its last
# request (design 4.7). What goes on for longer is sought from its own beginning, below.
_TASK_REACH = timedelta(days=8)
_LONGEST_REQUEST = timedelta(days=1)
_SHARE = f"SELECT pg_advisory_xact_lock_shared({LOCK})"
# An update and no "do nothing": it holds the mark until commit, so that the job waits for us.
_MARK = """
INSERT INTO rollup_dirty AS d (grain, at)
SELECT %s, at FROM unnest(%s::timestamptz[]) AS m(at) ORDER BY at
ON CONFLICT (grain, at) DO UPDATE SET at = EXCLUDED.at
"""
# By the reach of derive_hour.sql: a request's attempts lie up to a day before its end, a task's up
# to eight before, or to where it began. A word about a task may change how each of its attempts is
# judged, and in which hour it closes: any hour in which one of its words would have closed it.
_BEGUN = """
SELECT min(first_started_at)
FROM task JOIN unnest(%(gateways)s::int[], %(tenants)s::text[], %(tasks)s::text[])
    AS w(gateway_id, tenant, task) USING (gateway_id, tenant, task)
"""
_OF_TASKS = """
WITH w AS MATERIALIZED (
    SELECT * FROM unnest(%(gateways)s::int[], %(tenants)s::text[], %(tasks)s::text[])
        AS w(gateway_id, tenant, task)
)
SELECT a.occurred_at FROM w JOIN attempt a USING (gateway_id, tenant, task)
WHERE a.occurred_at >= %(oldest)s AND a.occurred_at < %(before)s
UNION ALL
SELECT CASE WHEN o.explicit THEN o.occurred_at
       ELSE COALESCE(o.ended_at, o.occurred_at) + interval '15 minutes' END
FROM w JOIN outcome o USING (gateway_id, tenant, task)
WHERE o.occurred_at >= %(oldest)s
"""
_OF_REQUESTS = """
SELECT occurred_at FROM attempt
WHERE request = ANY(%(failed)s) AND occurred_at >= %(oldest)s AND occurred_at < %(before)s
UNION ALL
SELECT occurred_at FROM outcome
WHERE request = ANY(%(late)s) AND occurred_at >= %(oldest)s
"""


@dataclass(frozen=True, slots=True)
class Watermarks:
    """Minutes and hours before these are derived."""

    minute: datetime
    hour: datetime


async def share(conn: AsyncConnection) -> None:
    """Keep the watermarks where they are until commit, also in a pipeline.

    Read them by a statement of its own after it (``facts``): its snapshot must be taken after this
    lock.
    """
    await conn.execute(_SHARE)


def found_in(new: Tables, marks: Watermarks) -> Found:
    """What these new events have made wrong, as far as they say it themselves."""
    found = Found(marks)
    for table in ("attempt", "refusal"):
        found.add_calls(new.get(table, ()))
    for item in new.get("outcome", ()):
        found.add(item)
    return found


async def mark_minutes(conn: AsyncConnection, found: Found) -> None:
    """Mark the minutes, also in a pipeline, before anything is added to them.

    The job that derives holds a minute's mark and then takes its sums. Who held the sums and then
    asked for the mark would wait for it in a circle.
    """
    await _mark(conn, "minute", found.minutes)


async def mark_hours(conn: AsyncConnection, found: Found) -> None:
    """Mark the hours, and those that must be asked for, once the tasks of the events are folded."""
    marks = found.marks
    if found.tasks:
        gateways, tenants, tasks = (list(column) for column in zip(*found.tasks, strict=True))
        given = {"gateways": gateways, "tenants": tenants, "tasks": tasks}
        row = await (await conn.execute(_BEGUN, given)).fetchone()
        begun = row[0] if row and row[0] else found.oldest
        # Few tasks run for days; to look into a month of partitions for all of them would cost.
        oldest = min(found.oldest - _TASK_REACH, begun - _LONGEST_REQUEST)
        reach = {"oldest": oldest, "before": marks.hour}
        for (at,) in await (await conn.execute(_OF_TASKS, given | reach)).fetchall():
            found.add_hour(at)
    if found.late or found.failed:
        given = {"failed": found.failed, "late": found.late}
        reach = {"oldest": found.oldest - _LONGEST_REQUEST, "before": marks.hour}
        for (at,) in await (await conn.execute(_OF_REQUESTS, given | reach)).fetchall():
            found.add_hour(at)
    await _mark(conn, "hour", found.hours)


async def _mark(conn: AsyncConnection, grain: str, ats: set[datetime]) -> None:
    if ats:
        await conn.execute(_MARK, (grain, sorted(ats)))


class Found:
    """What the events of one group have made wrong, and what must be asked for to know the rest."""

    def __init__(self, marks: Watermarks) -> None:
        self.marks = marks
        self.minutes: set[datetime] = set()
        self.hours: set[datetime] = set()
        self.oldest = marks.hour
        self.tasks: set[tuple[int, str, str]] = set()
        self.late: list[UUID] = []
        self.failed: list[UUID] = []

    def __bool__(self) -> bool:
        """False when there is nothing to mark, and nothing to ask for."""
        return bool(self.minutes or self.hours or self.tasks or self.late or self.failed)

    def add_calls(self, items: Sequence[Item]) -> None:
        """Add attempts or refusals. What is newer than every watermark is in nothing derived."""
        recent = max(self.marks.minute, self.marks.hour)
        for item in items:
            if item.event.occurred_at < recent:
                self.add(item)

    def add(self, item: Item) -> None:
        """Add what one new event has made wrong."""
        event, at = item.event, item.event.occurred_at
        self.oldest = min(self.oldest, at)
        self.add_hour(at)
        late = at < self.marks.hour
        if isinstance(event, Outcome):
            # Of a request alone: its attempts are judged by its failure and by nothing else.
            if event.request is not None and not event.task and not event.success:
                self.failed.append(event.request)
        elif isinstance(event, Attempt | Refusal):
            if at < self.marks.minute:
                self.minutes.add(minute_of(at))
            if late:
                self.late.append(event.request)
        else:
            return
        if event.task and (late or isinstance(event, Outcome)):
            self.tasks.add((item.origin.gateway_id, event.tenant, event.task))

    def add_hour(self, at: datetime) -> None:
        """Add the hour of ``at`` if it is derived."""
        if at < self.marks.hour:
            self.hours.add(hour_of(at))
