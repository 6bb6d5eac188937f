"""The tables that Django does not know: events and what is derived of them."""

from collections.abc import Iterable

from django.db import connection

from controlplane.ingest.rows import TABLES

DERIVED = (
    "task",
    "receipt",
    "batch_gap",
    "dead_letter",
    "circuit_gone",
    "raw_dropped",
    "background_job",
    "rollup_dirty",
    "rollup_minute",
    "rollup_minute_part",
    "rollup_minute_request",
    "rollup_circuit_minute",
    "rollup_circuit_five_minutes",
    "rollup_hour",
    "rollup_quarter",
    "rollup_hour_tenant",
    "rollup_hour_split",
    "rollup_hour_rate",
)
TELEMETRY = (*TABLES, *DERIVED)


# A day's partition that never held a row has no size and no statistics. To ask a parent whether it
# is empty, every connection would plan over all the days that earlier tests made.
_EVER_FILLED = """
SELECT relname FROM pg_class
WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace
  AND (pg_relation_size(oid) > 0 OR reltuples >= 0)
  AND (relname = ANY(%(tables)s)
       OR oid IN (SELECT inhrelid FROM pg_inherits JOIN pg_class parent ON parent.oid = inhparent
                  WHERE parent.relname = ANY(%(tables)s)))
"""


def _ever_filled(tables: Iterable[str]) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(_EVER_FILLED, {"tables": list(tables)})
        return [name for (name,) in cursor.fetchall()]


def filled(tables: Iterable[str]) -> list[str]:
    """Which of these tables, or of their days, hold rows."""
    asked = [
        f"SELECT '{name}' WHERE EXISTS (SELECT FROM \"{name}\")" for name in _ever_filled(tables)
    ]
    if not asked:
        return []
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(asked))
        return [name for (name,) in cursor.fetchall()]


def forget_telemetry() -> None:
    """Make every table of events, and of all that is derived, as one that never held a row.

    Plans are looked at in tests: what is only deleted leaves its pages and statistics behind.
    """
    used = _ever_filled(TELEMETRY)
    if used:
        with connection.cursor() as cursor:
            cursor.execute("TRUNCATE " + ", ".join(f'"{name}"' for name in used))
