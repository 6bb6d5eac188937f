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


# A day's partition that never held a row has no size. To ask a parent whether it is empty, every
# connection would plan over all the days that earlier tests made, and a TRUNCATE of all took 0.3 s.
_EVER_FILLED = """
SELECT relname FROM pg_class
WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace AND pg_relation_size(oid) > 0
  AND (relname = ANY(%(tables)s)
       OR oid IN (SELECT inhrelid FROM pg_inherits JOIN pg_class parent ON parent.oid = inhparent
                  WHERE parent.relname = ANY(%(tables)s)))
"""


def filled(tables: Iterable[str]) -> list[str]:
    """Which of these tables, or of their days, hold rows."""
    with connection.cursor() as cursor:
        cursor.execute(_EVER_FILLED, {"tables": list(tables)})
        names = [name for (name,) in cursor.fetchall()]
        asked = [f"SELECT '{name}' WHERE EXISTS (SELECT FROM \"{name}\")" for name in names]
        if not asked:
            return []
        cursor.execute(" UNION ALL ".join(asked))
        return [name for (name,) in cursor.fetchall()]


def forget_telemetry() -> None:
    """Empty every table of events and all that is derived."""
    with connection.cursor() as cursor:
        for table in filled(TELEMETRY):
            cursor.execute(f'DELETE FROM "{table}"')
