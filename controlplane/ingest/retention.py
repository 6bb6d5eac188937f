"""Delete what is past its time, a few rows at a time, so that nothing waits for it.

Invariant: a receipt outlives every event that its batch may hold, so a very late repeat is still
answered from it or finds its events; a minute of single gateways goes only once it is derived; a
task's row outlives its events. Every table that grows by itself is here, or in ``departed``, or a
day's partition; what people write is theirs to keep.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from psycopg import Connection, sql

from controlplane.ingest.departed import delete_departed, free_names, raw_gone_before
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
# Of the present only: an instance that lives tells of each of its buckets every ten seconds.
_BUCKET_KEPT = timedelta(days=2)
# By what they hold; ``raw``: before it there are no raw events left. The parts of ``task`` each by
# its own name, because a row's ctid is one of its part.
_BY_CONDITION = (
    ("budget_state", "reported_at < %(buckets)s"),
    # What an instance holds is told of it; what it held is the record of a hand that has ended.
    (
        "delivery",
        "lifted_at < %(raw)s OR (verdict = '' AND delivered_at < %(raw)s AND EXISTS ("
        "SELECT FROM delivery n WHERE n.gateway_id = delivery.gateway_id"
        " AND n.instance_id = delivery.instance_id AND n.uid = delivery.uid"
        " AND n.generation > delivery.generation))",
    ),
    *(
        (
            f"task_p{part}",
            "COALESCE(explicit_at, implicit_at) < %(raw)s"
            " AND GREATEST(explicit_at, implicit_at, last_ended_at, first_started_at) < %(raw)s",
        )
        for part in range(4)
    ),
    (
        "config_generation",
        "compiled_at < %(raw)s AND generation < (SELECT c.generation FROM gateway_config c"
        " WHERE c.gateway_id = config_generation.gateway_id)",
    ),
    ("local_override", "COALESCE(ended_at, expires_at) < %(hours)s"),
    ("raw_dropped", "upto < (SELECT max(upto) FROM raw_dropped)"),
    (
        "epoch_claim",
        "GREATEST(refused_at, (SELECT max(at) FROM unnest(mints) AS at)) < %(day)s",
    ),
    ("sign_in_tries", "window_began_at < %(day)s"),
    ("idempotent_answer", "created_at < %(day)s"),
    ("django_session", "expire_date < %(now)s"),
)


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
    deleted = {
        table: _delete(conn, table, f"{column} < %(at)s", {"at": _before(conn, table, now - kept)})
        for table, column, kept in _ages(retention)
    }
    raw = raw_gone_before(conn, now, retention)
    times = {
        "now": now,
        "raw": raw,
        "buckets": now - _BUCKET_KEPT,
        "hours": now - HOURS_KEPT,
        "day": now - timedelta(days=2),
    }
    deleted |= {table: _delete(conn, table, which, times) for table, which in _BY_CONDITION}
    deleted["instance"] = delete_departed(conn, raw)
    deleted["gateway_circuit"] = free_names(conn, raw)
    return deleted


def _before(conn: Connection, table: str, at: datetime) -> datetime:
    if table not in ("rollup_minute", "rollup_minute_part"):
        return at
    row = conn.execute(_DERIVED).fetchone()
    assert row is not None
    derived: datetime = row[0]
    return min(at, derived)


def _delete(conn: Connection, table: str, which: str, times: dict[str, datetime]) -> int:
    statement = sql.SQL(
        "DELETE FROM {0} WHERE ctid = ANY(ARRAY("
        "SELECT ctid FROM {0} WHERE " + which + " LIMIT %(chunk)s FOR UPDATE SKIP LOCKED))"
    ).format(sql.Identifier(table))
    deleted = 0
    while True:
        chunk = conn.execute(statement, times | {"chunk": _CHUNK}).rowcount
        deleted += chunk
        if chunk < _CHUNK:
            return deleted
