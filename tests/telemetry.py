"""The tables that Django does not know: events and what is derived of them."""

from django.db import connection

from controlplane.ingest.rows import TABLES

DERIVED = (
    "task",
    "receipt",
    "batch_gap",
    "dead_letter",
    "circuit_gone",
    "raw_dropped",
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


def forget_telemetry() -> None:
    """Empty every table of events and all that is derived."""
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {', '.join(TELEMETRY)}")
