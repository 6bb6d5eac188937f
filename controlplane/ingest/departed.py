"""Delete boots that are long gone, with all that is kept of each of them alone.

Invariant: a boot's row outlives every raw event, receipt and dead letter that names it, so that
what is still shown of the past has its slot's name; what speaks again after that is a new instance.
A few boots a transaction, locked as ingest and status reports do (instances first), and past those
that somebody holds just now.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from psycopg import Connection

from controlplane.ingest.partitions import oldest_day
from controlplane.models.registry import MOST_CIRCUITS

_CHUNK = 100
# A clock ahead by a day has its events accepted, and receipts are kept two days longer.
_LONGER = timedelta(days=2)
_GONE = """
SELECT id FROM instance i
WHERE i.last_seen_at < %s
  AND NOT EXISTS (SELECT FROM receipt r WHERE r.gateway_id = i.gateway_id AND r.instance_id = i.id)
  AND NOT EXISTS (SELECT FROM dead_letter d
                  WHERE d.gateway_id = i.gateway_id AND d.instance_id = i.id)
  AND NOT EXISTS (SELECT FROM batch_gap b WHERE b.instance_id = i.id)
ORDER BY id LIMIT %s FOR UPDATE OF i SKIP LOCKED
"""
# In the order in which a report and a batch lock them.
_OF_INSTANCE = ("circuit_state", "budget_state", "delivery", "circuit_gone")
# A gateway that is near its bound of names gets back the places of those that it names no more: of
# which no hour within the raw retention has anything, and no instance a breaker.
_NAMED_NO_MORE = """
WITH near AS (
    SELECT gateway_id FROM gateway_circuit GROUP BY gateway_id HAVING count(*) >= %(near)s
)
DELETE FROM gateway_circuit g USING near
WHERE g.gateway_id = near.gateway_id
  AND NOT EXISTS (SELECT FROM circuit_state s
                  WHERE s.gateway_id = g.gateway_id AND s.circuit_id = g.circuit_id)
  AND NOT EXISTS (SELECT FROM circuit c
                  WHERE c.id = g.circuit_id AND c.first_seen_at >= %(since)s)
  AND (g.gateway_id, g.circuit_id) NOT IN (
      SELECT h.gateway_id, h.circuit_id FROM rollup_hour h
      JOIN near n ON n.gateway_id = h.gateway_id WHERE h.hour >= %(since)s)
"""


def raw_gone_before(conn: Connection, now: datetime, retention: timedelta) -> datetime:
    """What was last heard of before this has no raw event left, nor a receipt."""
    oldest = oldest_day(conn)
    kept = now - retention
    if oldest is not None:
        # Days that wait for their figures are kept past the retention.
        kept = min(kept, datetime(oldest.year, oldest.month, oldest.day, tzinfo=now.tzinfo))
    return kept - _LONGER


def delete_departed(conn: Connection, before: datetime) -> int:
    """Delete boots that were last heard of before this; returns how many. ``conn`` autocommits."""
    deleted = 0
    while True:
        with conn.transaction():
            ids = [row[0] for row in conn.execute(_GONE, (before, _CHUNK)).fetchall()]
            for table in _OF_INSTANCE:
                conn.execute(f"DELETE FROM {table} WHERE instance_id = ANY(%s)".encode(), (ids,))
            conn.execute("DELETE FROM instance WHERE id = ANY(%s)", (ids,))
        deleted += len(ids)
        if len(ids) < _CHUNK:
            return deleted


def free_names(conn: Connection, since: datetime) -> int:
    """Give gateways that are short of places for circuits' names those unused since then."""
    near = MOST_CIRCUITS * 4 // 5
    return conn.execute(_NAMED_NO_MORE, {"near": near, "since": since}).rowcount
