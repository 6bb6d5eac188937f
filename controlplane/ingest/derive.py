"""Derive what is coarser from what is finished: minute x circuit, and the two hour grains.

Invariant: a job may die at any moment and run any number of times at once. A watermark moves only
together with marks for everything that it passes, and a mark is taken in the transaction that
derives its minute or hour, from what is committed then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from psycopg import Connection, Rollback

from controlplane.domain.rollup import COUNTERS, MONEY, hour_of, minute_of
from controlplane.ingest.dirty import LOCK
from controlplane.ingest.partitions import raw_dropped
from controlplane.models.pool import named_sql

# How long after its end a minute or an hour counts as finished: gateways linger half a second and
# retry for seconds; what comes later marks it again.
MINUTE_GRACE = timedelta(minutes=2)
HOUR_GRACE = timedelta(minutes=10)
# Sums of single gateways are kept so long; older minutes are derived from the raw rows.
MINUTES_KEPT = timedelta(hours=48)
TASK_IDLE = timedelta(minutes=15)
MOST_TENANTS = 200
OTHER = "(other)"

_SQL = Path(__file__).parent / "sql"
# So many recent minutes are taken together. Of what is derived from raw rows, one is work enough
# for a transaction: late events wait for its mark, and in ten seconds their gateway gives up.
_AT_ONCE = 60
# So many that fail in one run are no fault of theirs.
_MOST_FAILING = 10
_EVER = datetime.max.replace(tzinfo=UTC)
_BEGINNING = datetime.min.replace(tzinfo=UTC)
_STEP = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1)}
_FIRST = "SELECT upto FROM rollup_watermark WHERE grain = %s"
_MOVE = "UPDATE rollup_watermark SET upto = %s WHERE grain = %s AND upto < %s"
_MARK_PASSED = """
INSERT INTO rollup_dirty (grain, at)
SELECT %(grain)s,
    generate_series(%(begin)s::timestamptz, %(end)s::timestamptz - %(step)s, %(step)s)
ON CONFLICT DO NOTHING
"""
_TAKE = """
DELETE FROM rollup_dirty WHERE (grain, at) IN (
    SELECT grain, at FROM rollup_dirty
    WHERE grain = %s AND at >= %s AND at < %s AND at <> ALL(%s)
    ORDER BY at DESC LIMIT %s FOR UPDATE SKIP LOCKED)
RETURNING at
"""
_HAS_DAY = """
SELECT FROM pg_inherits
WHERE inhrelid = to_regclass('attempt_' || to_char(%s::timestamptz AT TIME ZONE 'UTC', 'YYYYMMDD'))
  AND NOT inhdetachpending
"""
_RATES = """
INSERT INTO rollup_hour_rate
SELECT DISTINCT %(start)s::timestamptz, fx_id FROM attempt
WHERE fx_id IS NOT NULL AND occurred_at >= %(start)s AND occurred_at < %(end)s
"""
_SUMS = ", ".join((*COUNTERS, *MONEY))
_CIRCUIT_MINUTES = f"""
WITH bins AS (
    SELECT p.circuit_id, p.minute,
        switchgear_compact(array_agg(b.bin) FILTER (WHERE b.what = 1)) AS latency,
        switchgear_compact(array_agg(b.bin) FILTER (WHERE b.what = 2)) AS first_byte
    FROM rollup_minute_part p
    CROSS JOIN LATERAL (SELECT 1 AS what, unnest(p.latency) AS bin
                        UNION ALL SELECT 2, unnest(p.first_byte)) AS b
    WHERE p.minute = ANY(%(minutes)s)
    GROUP BY p.circuit_id, p.minute
), sums AS (
    SELECT circuit_id, minute, {", ".join(f"sum({n}) AS {n}" for n in (*COUNTERS, *MONEY))}
    FROM rollup_minute WHERE minute = ANY(%(minutes)s) GROUP BY circuit_id, minute
)
INSERT INTO rollup_circuit_minute (circuit_id, minute, {_SUMS}, latency, first_byte)
SELECT circuit_id, minute, {_SUMS},
    COALESCE(latency, '{{}}'), COALESCE(first_byte, '{{}}')
FROM sums LEFT JOIN bins USING (circuit_id, minute)
"""


@dataclass(frozen=True, slots=True)
class Derived:
    """How many minutes and hours were derived."""

    minutes: int
    hours: int


def derive(conn: Connection, now: datetime, *, most: int = 600) -> Derived:
    """Derive what is finished or dirty, newest first, about ``most`` of each grain.

    One that cannot be derived stays marked, and the others are; its error is raised at the end.

    ``conn`` must autocommit.
    """
    _pass_all_finished(conn, now)
    faults: list[Exception] = []
    minutes = _derive_all(conn, "minute", now, faults, most=most)
    hours = _derive_all(conn, "hour", now, faults, most=most)
    _raise_first(faults)
    return Derived(minutes, hours)


def derive_before(conn: Connection, now: datetime, before: datetime) -> int:
    """Derive every minute and hour before ``before`` that is not yet; returns how many.

    For whoever is about to drop raw rows: ``derive`` takes the newest first and may be days behind.
    What another run has in hand is left to it. ``conn`` must autocommit.
    """
    _pass_all_finished(conn, now)
    faults: list[Exception] = []
    count = sum(_derive_all(conn, grain, now, faults, before=before) for grain in _STEP)
    _raise_first(faults)
    return count


def _pass_all_finished(conn: Connection, now: datetime) -> None:
    pass_finished(conn, "minute", minute_of(now - MINUTE_GRACE))
    pass_finished(conn, "hour", hour_of(now - HOUR_GRACE))


def pass_finished(conn: Connection, grain: str, upto: datetime) -> None:
    """Move a watermark to ``upto``, with marks for all that lies before it."""
    row = conn.execute(_FIRST, (grain,)).fetchone()
    assert row is not None
    if row[0] >= upto:
        return
    with conn.transaction():
        # Alone: every event that has not seen the new watermark is committed when we go on.
        conn.execute(f"SELECT pg_advisory_xact_lock({LOCK})".encode())
        row = conn.execute(_FIRST, (grain,)).fetchone()
        assert row is not None
        begin: datetime = row[0]
        if conn.execute(_MOVE, (upto, grain, upto)).rowcount:
            step = _STEP[grain]
            conn.execute(_MARK_PASSED, {"grain": grain, "begin": begin, "end": upto, "step": step})


def _derive_all(
    conn: Connection,
    grain: str,
    now: datetime,
    faults: list[Exception],
    *,
    before: datetime = _EVER,
    most: int | None = None,
) -> int:
    """Derive until nothing is left, or about ``most`` are done. Adds to ``faults``."""
    count = 0
    since, at_once = (now - MINUTES_KEPT, _AT_ONCE) if grain == "minute" else (_BEGINNING, 1)
    failing: list[datetime] = []
    while (most is None or count < most) and len(failing) < _MOST_FAILING:
        taken: list[datetime] = []
        try:
            with conn.transaction():
                rows = conn.execute(_TAKE, (grain, since, before, failing, at_once)).fetchall()
                taken += [row[0] for row in rows]
                _derive_taken(conn, grain, taken, now)
        except Exception as error:
            if conn.closed or not taken:
                raise
            if len(taken) > 1:
                at_once = 1  # whose fault it is shows each alone
                continue
            error.add_note(f"deriving the {grain} of {taken[0]:%Y-%m-%d %H:%M} UTC")
            faults.append(error)
            failing += taken
            continue
        if not taken and since == _BEGINNING:
            break
        if not taken:
            since, at_once = _BEGINNING, 1
        count += len(taken)
    return count


def _derive_taken(conn: Connection, grain: str, taken: list[datetime], now: datetime) -> None:
    if grain == "minute" and taken:
        _derive_minutes(conn, taken, now)
    elif taken:
        _derive_kept(conn, taken[0], _derive_one_hour)


def _raise_first(faults: list[Exception]) -> None:
    if not faults:
        return
    if len(faults) > 1:
        faults[0].add_note(f"and {len(faults) - 1} more that failed")
    raise faults[0]


def _derive_kept(
    conn: Connection, at: datetime, derive_one: Callable[[Connection, datetime], None]
) -> None:
    """Derive one from raw rows, unless those are gone: its figures are all that is left.

    Asked afterwards: a day that is there now, and not about to be dropped, was there while its rows
    were read, and never a day that retention takes away in between. A day that came back after its
    rows were dropped holds only what came since.
    """
    with conn.transaction() as derived:
        derive_one(conn, at)
        gone = raw_dropped(conn)
        if (gone is not None and at < gone) or conn.execute(_HAS_DAY, (at,)).fetchone() is None:
            raise Rollback(derived)


def _derive_one_hour(conn: Connection, hour: datetime) -> None:
    derive_hour(conn, {"start": hour, "end": hour + _STEP["hour"]})


def _derive_minutes(conn: Connection, minutes: list[datetime], now: datetime) -> None:
    recent = [minute for minute in minutes if minute >= now - MINUTES_KEPT]
    # Ascending: each holds its hour of sums until commit, and two runs must not wait in a circle.
    for minute in sorted(minutes):
        if minute < now - MINUTES_KEPT:
            _derive_kept(conn, minute, _derive_old_minute)
    if recent:
        _derive_circuit_minutes(conn, recent)


def _derive_old_minute(conn: Connection, minute: datetime) -> None:
    """Of it only what came late is there; the raw rows have all."""
    values = {"start": minute, "end": minute + _STEP["minute"]}
    for table, name in (
        ("rollup_minute", "rebuild_minutes.sql"),
        ("rollup_minute_part", "rebuild_parts.sql"),
    ):
        conn.execute(f"DELETE FROM {table} WHERE minute = %(start)s".encode(), values)
        conn.execute(named_sql(_SQL / name).encode(), values)
    _derive_circuit_minutes(conn, [minute])


def _derive_circuit_minutes(conn: Connection, minutes: list[datetime]) -> None:
    given = {"minutes": minutes}
    conn.execute("DELETE FROM rollup_circuit_minute WHERE minute = ANY(%(minutes)s)", given)
    conn.execute(_CIRCUIT_MINUTES.encode(), given)


def derive_hour(conn: Connection, values: dict[str, Any]) -> None:
    """Both hour grains of [start, end), their quarters, splits and rates.

    In the caller's transaction. The old quarters go with their hours, by a trigger.
    """
    conn.execute("DELETE FROM rollup_hour WHERE hour = %(start)s", values)
    conn.execute("DELETE FROM rollup_hour_tenant WHERE hour = %(start)s", values)
    given = values | {"idle": TASK_IDLE, "tenants": MOST_TENANTS}
    conn.execute(named_sql(_SQL / "derive_hour.sql").encode(), given)
    conn.execute("SELECT switchgear_split_hours(%(start)s, %(end)s)", values)
    conn.execute("DELETE FROM rollup_hour_rate WHERE hour = %(start)s", values)
    conn.execute(_RATES, values)
