"""Delete what is past its time, a few rows at a time, so that nothing waits for it.

Invariant: a receipt outlives every event that its batch may hold, so a very late repeat is still
answered from it or finds its events; a minute of single gateways goes only once it is derived.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from psycopg import Connection, sql

from controlplane.ingest.derive import MINUTES_KEPT

_CHUNK = 10_000
# Minutes before this one are derived: neither ahead of the watermark nor marked.
_DERIVED = """
SELECT LEAST((SELECT upto FROM rollup_watermark WHERE grain = 'minute'),
             (SELECT min(at) FROM rollup_dirty WHERE grain = 'minute'))
"""
# Longer than any run of the job that derives, which takes the time when it begins: a minute that it
# sums up must not have lost its rows meanwhile to a retention that began later.
_MINUTES_KEPT = MINUTES_KEPT + timedelta(hours=1)
HOURS_KEPT = timedelta(days=400)


def _ages(retention: timedelta) -> tuple[tuple[str, str, timedelta], ...]:
    """Table, column and how long its rows are kept."""
    return (
        ("receipt", "received_at", retention + timedelta(days=2)),
        ("batch_gap", "since", retention + timedelta(days=2)),
        ("dead_letter", "received_at", retention),
        ("rollup_minute", "minute", _MINUTES_KEPT),
        ("rollup_minute_part", "minute", _MINUTES_KEPT),
        ("rollup_minute_request", "minute", retention),
        ("rollup_circuit_minute", "minute", retention),
        ("rollup_hour", "hour", HOURS_KEPT),
        ("rollup_hour_tenant", "hour", HOURS_KEPT),
        ("rollup_hour_split", "hour", HOURS_KEPT),
        ("rollup_hour_rate", "hour", HOURS_KEPT),
    )


def delete_expired(conn: Connection, now: datetime, retention: timedelta) -> dict[str, int]:
    """Delete expired rows; returns how many of each table. ``conn`` must autocommit."""
    return {
        table: _delete(conn, table, column, _before(conn, table, now - kept))
        for table, column, kept in _ages(retention)
    }


def _before(conn: Connection, table: str, at: datetime) -> datetime:
    if table not in ("rollup_minute", "rollup_minute_part"):
        return at
    row = conn.execute(_DERIVED).fetchone()
    assert row is not None
    return min(at, row[0])


def _delete(conn: Connection, table: str, column: str, before: datetime) -> int:
    statement = sql.SQL(
        "DELETE FROM {0} WHERE ctid = ANY(ARRAY("
        "SELECT ctid FROM {0} WHERE {1} < %s LIMIT %s FOR UPDATE SKIP LOCKED))"
    ).format(sql.Identifier(table), sql.Identifier(column))
    deleted = 0
    while True:
        chunk = conn.execute(statement, (before, _CHUNK)).rowcount
        deleted += chunk
        if chunk < _CHUNK:
            return deleted
