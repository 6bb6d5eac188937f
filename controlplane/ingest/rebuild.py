"""Recompute what is derived from raw events: the audit of ``fold``, and its repair.

Invariant: for a range whose raw rows are all there, the result equals what ingest folded, whatever
it was before. Each hour is one short transaction that shuts ingest out of the derived table, so
batches that commit meanwhile are counted exactly once: before it, as raw rows; after it, as sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from psycopg import Connection

from controlplane.ingest.derive import derive
from controlplane.ingest.partitions import oldest_day, raw_dropped
from controlplane.models.pool import named_sql

_SQL = Path(__file__).parent / "sql"
_HOUR = timedelta(hours=1)
_ALL = 10_000_000
# In the order of ingest: minutes, then hours.
_MARK_DERIVED = """
INSERT INTO rollup_dirty (grain, at)
SELECT 'minute' AS grain, minute AS at FROM (
    SELECT minute FROM rollup_minute WHERE minute >= %(begin)s AND minute < %(end)s
    UNION SELECT minute FROM rollup_circuit_minute WHERE minute >= %(begin)s AND minute < %(end)s
) AS minutes
WHERE minute < (SELECT upto FROM rollup_watermark WHERE grain = 'minute')
UNION ALL
SELECT 'hour', hour
FROM generate_series(%(begin)s::timestamptz, %(end)s::timestamptz - interval '1 hour', '1 hour')
    AS hour
WHERE hour < (SELECT upto FROM rollup_watermark WHERE grain = 'hour')
ORDER BY grain DESC, at
ON CONFLICT DO NOTHING
"""
# Locked in this order, which is the one that ingest writes in.
_MINUTES = {
    "rollup_minute": "rebuild_minutes.sql",
    "rollup_minute_part": "rebuild_parts.sql",
    "rollup_minute_request": "rebuild_requests.sql",
}


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What was recomputed, and what could not be because its raw rows are gone."""

    start: datetime
    end: datetime
    minutes: int
    tasks: int
    breakers: int
    cut: timedelta


class NothingLeft(Exception):
    """Of the whole range no raw rows are kept any more."""


def rebuild(
    conn: Connection, start: datetime, end: datetime, *, now: datetime, retention: timedelta
) -> Rebuilt:
    """Rebuild [start, end), widened to whole hours. Raises ``NothingLeft``.

    ``conn`` must autocommit. Minutes, tasks with an outcome in the range, and the breakers that
    have a transition in it.
    """
    wanted = _floor(start)
    until = _ceiling(min(end, now + timedelta(days=1)))
    oldest = oldest_day(conn)
    if oldest is None:
        raise NothingLeft("there are no raw events at all")
    kept_from = max(datetime(oldest.year, oldest.month, oldest.day, tzinfo=UTC), now - retention)
    kept_from = max(kept_from, raw_dropped(conn) or kept_from)
    begin = max(wanted, _ceiling(kept_from) if kept_from > wanted else wanted)
    if begin >= until:
        raise NothingLeft(f"raw events are kept from {kept_from:%Y-%m-%d %H:%M} UTC on")
    minutes = tasks = 0
    for hour in _hours(begin, until):
        minutes += _minutes(conn, hour)
        tasks += _tasks(conn, hour, kept_from)
    breakers = _breakers(conn, begin, until)
    conn.execute(_MARK_DERIVED, {"begin": begin, "end": until})
    derive(conn, now, most=_ALL)
    return Rebuilt(begin, until, minutes, tasks, breakers, begin - wanted)


def _minutes(conn: Connection, hour: datetime) -> int:
    values = {"start": hour, "end": hour + _HOUR}
    made = 0
    with conn.transaction():
        # SHARE ROW EXCLUSIVE: no batch adds to a minute between our sum and our commit.
        for table in _MINUTES:
            conn.execute(f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE".encode())
        for table, name in _MINUTES.items():
            empty = f"DELETE FROM {table} WHERE minute >= %(start)s AND minute < %(end)s"
            conn.execute(empty.encode(), values)
            count = conn.execute(named_sql(_SQL / name).encode(), values).rowcount
            made += count if table == "rollup_minute" else 0
    return made


def _tasks(conn: Connection, hour: datetime, kept_from: datetime) -> int:
    values = {"start": hour, "end": hour + _HOUR, "kept_from": kept_from}
    with conn.transaction():
        conn.execute("LOCK TABLE task IN SHARE ROW EXCLUSIVE MODE")
        return conn.execute(named_sql(_SQL / "rebuild_tasks.sql"), values).rowcount


def _breakers(conn: Connection, start: datetime, end: datetime) -> int:
    values = {"start": start, "end": end}
    with conn.transaction():
        conn.execute("LOCK TABLE circuit_state IN SHARE ROW EXCLUSIVE MODE")
        return conn.execute(named_sql(_SQL / "rebuild_breakers.sql"), values).rowcount


def _hours(start: datetime, end: datetime) -> Iterator[datetime]:
    while start < end:
        yield start
        start += _HOUR


def _floor(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _ceiling(at: datetime) -> datetime:
    floor = _floor(at)
    return floor if floor == at else floor + _HOUR
