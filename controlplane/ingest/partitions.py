"""Day partitions of the event tables: made ahead, made for a late day when it comes, dropped.

Invariant: no writer ever waits for one, and a day is dropped only when it is wholly past retention
and every event of it is in the figures that outlive it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta

from psycopg import AsyncConnection, Connection, sql

from controlplane.ingest.dirty import LOCK
from controlplane.ingest.rows import TABLES

DAYS_AHEAD = 3
log = logging.getLogger(__name__)
_ENSURE = "SELECT switchgear_ensure_days(%s, %s)"
_PARTITIONS = """
SELECT parent.relname, part.relname, inherits.inhdetachpending
FROM pg_inherits inherits
JOIN pg_class parent ON parent.oid = inherits.inhparent
JOIN pg_class part ON part.oid = inherits.inhrelid
WHERE parent.relname = ANY(%s) AND parent.relkind = 'p' AND part.relkind = 'r'
  AND parent.relnamespace = current_schema()::regnamespace
ORDER BY part.relname
"""
# One row a drop, of which the last counts: what a raised retention must not take as all there was.
_DROPPING = "INSERT INTO raw_dropped (upto) VALUES (%s) ON CONFLICT DO NOTHING"
_DROPPED = "SELECT max(upto) FROM raw_dropped"
# What is not derived yet: marked, by a run that is not committed too, or ahead of a watermark.
_NOT_DERIVED = """
SELECT LEAST(
    (SELECT min(upto) FROM rollup_watermark),
    (SELECT min(at) FROM rollup_dirty
     WHERE at >= coalesce((SELECT max(upto) FROM raw_dropped), '-infinity')))
"""
_DETACHED = """
SELECT relname FROM pg_class
WHERE relname ~ %s AND relkind = 'r' AND NOT relispartition
  AND relnamespace = current_schema()::regnamespace
ORDER BY relname
"""


async def ensure_ahead(conn: AsyncConnection, now: datetime) -> int:
    """Make yesterday's to the day after tomorrow's partitions; returns how many were missing."""
    today = now.astimezone(UTC).date()
    cursor = await conn.execute(
        _ENSURE, (today - timedelta(days=1), today + timedelta(days=DAYS_AHEAD))
    )
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def ensure_days(conn: AsyncConnection, days: Iterable[date]) -> None:
    """Make the partitions of just these days (late events)."""
    for day in sorted(set(days)):
        await conn.execute(_ENSURE, (day, day))


def ensure_ahead_now(conn: Connection, now: datetime) -> int:
    """The same as ``ensure_ahead`` for a worker's plain connection."""
    today = now.astimezone(UTC).date()
    row = conn.execute(
        _ENSURE, (today - timedelta(days=1), today + timedelta(days=DAYS_AHEAD))
    ).fetchone()
    assert row is not None
    return int(row[0])


def ensure_range_now(conn: Connection, first: date, last: date) -> int:
    """Make the days from ``first`` to ``last`` for whoever is about to send old events.

    A statement a day (``conn`` must autocommit), so that no lock is held for longer than one takes.
    """
    made = 0
    day = first
    while day <= last:
        row = conn.execute(_ENSURE, (day, day)).fetchone()
        assert row is not None
        made += int(row[0])
        day += timedelta(days=1)
    return made


def first_kept(now: datetime, retention: timedelta) -> datetime:
    """The midnight before which days are wholly older than ``retention``."""
    return _midnight((now - retention).astimezone(UTC).date())


def drop_expired(conn: Connection, now: datetime, retention: timedelta) -> list[str]:
    """Drop whole days older than ``retention``; returns their names. ``conn`` must autocommit.

    Detached CONCURRENTLY first: a plain DROP would wait for, and shut out, every writer of the
    parent. A detach that was cut short is finished, and a table that it left is dropped.
    Days of which something is not derived yet wait, with those after them; the log tells.
    """
    oldest = first_kept(now, retention).date()
    dropped: list[str] = []
    parts = conn.execute(_PARTITIONS, (list(TABLES),)).fetchall()
    if any(_day_of(part) < oldest for _, part, _ in parts):
        oldest = _write_down(conn, oldest)
    for parent, part, pending in parts:
        if _day_of(part) < oldest:
            how = sql.SQL("FINALIZE" if pending else "CONCURRENTLY")
            conn.execute(
                sql.SQL("ALTER TABLE {} DETACH PARTITION {} {}").format(
                    sql.Identifier(parent), sql.Identifier(part), how
                )
            )
    pattern = f"^({'|'.join(TABLES)})_[0-9]{{8}}$"
    for (part,) in conn.execute(_DETACHED, (pattern,)).fetchall():
        if _day_of(part) < oldest:
            conn.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(part)))
            dropped.append(part)
    return dropped


def _write_down(conn: Connection, oldest: date) -> date:
    """Write down up to which day raw rows are gone, before they are; returns that day.

    No later event may then bring one of those days back to be derived from it alone. It is
    ``oldest``, or the first day before it of which something is not derived yet.
    """
    with conn.transaction():
        # Alone: every event that has not seen this is committed, with its marks, when we go on.
        conn.execute(f"SELECT pg_advisory_xact_lock({LOCK})".encode())
        row = conn.execute(_NOT_DERIVED).fetchone()
        assert row is not None
        upto: date = min(oldest, row[0].astimezone(UTC).date())
        conn.execute(_DROPPING, (_midnight(upto),))
    if upto < oldest:
        log.warning(
            "raw events from %s on are past their retention and kept: figures of that day are not"
            " derived yet (rollup_dirty, rollup_watermark); tried again in an hour",
            upto,
        )
    return upto


def oldest_day(conn: Connection) -> date | None:
    """The first day that raw rows are kept of; None when there is no partition at all."""
    days = [_day_of(part) for _, part, _ in conn.execute(_PARTITIONS, (list(TABLES),)).fetchall()]
    return min(days, default=None)


def raw_dropped(conn: Connection) -> datetime | None:
    """Raw rows before this are dropped, or about to be; None when none ever were."""
    row = conn.execute(_DROPPED).fetchone()
    assert row is not None
    found: datetime | None = row[0]
    return found


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _day_of(part: str) -> date:
    return datetime.strptime(part[-8:], "%Y%m%d").replace(tzinfo=UTC).date()
