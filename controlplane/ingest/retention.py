"""Delete what is past its time, a few rows at a time, so that nothing waits for it.

Invariant: a receipt outlives every event that its batch may hold, so a very late repeat is still
answered from it or finds its events; ``rollup_minute`` is kept as long as raw rows are, because
nothing coarser is derived from it yet.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from psycopg import Connection, sql

_CHUNK = 10_000
# Table, column, and what is kept beyond the retention of raw rows.
_AGES = (
    ("receipt", "received_at", timedelta(days=2)),
    ("dead_letter", "received_at", timedelta(0)),
    ("rollup_minute", "minute", timedelta(0)),
)


def delete_expired(conn: Connection, now: datetime, retention: timedelta) -> dict[str, int]:
    """Delete expired rows; returns how many of each table. ``conn`` must autocommit."""
    return {
        table: _delete(conn, table, column, now - retention - beyond)
        for table, column, beyond in _AGES
    }


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
