"""Deriving an hour costs its own rows, also on a day that the planner knows nothing of yet."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from controlplane.ingest import derive
from controlplane.models.pool import named_sql
from tests.controlplane.reports.test_telemetry import nodes_of
from tests.telemetry import forget_telemetry

HOUR = (datetime.now(UTC) - timedelta(days=2)).replace(hour=5, minute=0, second=0, microsecond=0)
ATTEMPTS = """
INSERT INTO attempt (gateway_id, instance_id, circuit_id, id, occurred_at, received_at, request,
    task, ordinal, role, rerouted, key, tenant, route, verdict, reason, counts, waited_ms,
    tokens_estimated, service_tier, billing, served, generation, cost_status)
SELECT 1, 1, 1 + g % 3, gen_random_uuid(), %(hour)s - interval '30 minutes' + g * interval '0.25 s',
    now(), ('00000000-0000-7000-8000-' || lpad(g::text, 12, '0'))::uuid, NULL, 1, 'first', false,
    'k', 'acme', 'chat', 'success', '', false, 0, false, '', 'billed', true, 1, 'priced'
FROM generate_series(0, 19999) AS g
"""
# Ends of the hour, of which the first were begun before it.
OUTCOMES = """
INSERT INTO outcome (gateway_id, instance_id, id, occurred_at, received_at, request, tenant, route,
    success, explicit, reason, waited_ms)
SELECT 1, 1, gen_random_uuid(), %(hour)s + interval '1 minute', now(),
    ('00000000-0000-7000-8000-' || lpad((7100 + g)::text, 12, '0'))::uuid, 'acme', 'chat', true,
    false, '', 0
FROM generate_series(0, 199) AS g
"""


@pytest.mark.django_db(transaction=True)
def test_the_last_attempt_of_an_end_is_found_by_its_request() -> None:
    forget_telemetry()
    values = {"start": HOUR, "end": HOUR + timedelta(hours=1)}
    given = values | {"idle": derive.TASK_IDLE, "tenants": derive.MOST_TENANTS}
    with connection.cursor() as cursor:
        # Any number of rows that the planner was told of by nobody.
        cursor.execute("SELECT switchgear_ensure_days(%s, %s)", [HOUR.date(), HOUR.date()])
        for statement in (ATTEMPTS, OUTCOMES):
            cursor.execute(statement.replace(" % 3", " %% 3"), {"hour": HOUR})
        cursor.execute(
            "EXPLAIN (ANALYZE, FORMAT JSON) " + named_sql(derive._SQL / "derive_hour.sql"), given
        )
        nodes = nodes_of(cursor.fetchone()[0][0]["Plan"])
        cursor.execute(
            "SELECT requests, attempts FROM rollup_hour WHERE hour = %s ORDER BY circuit_id", [HOUR]
        )
        rows = cursor.fetchall()
    forget_telemetry()
    assert [sum(column) for column in zip(*rows, strict=True)] == [200, 12_800]
    assert min(requests for requests, _ in rows) > 60
    walked = max(
        node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
        for node in nodes
        if node.get("Relation Name", "").startswith("attempt")
    )
    # Each of them walking its gateway's events would be millions.
    assert walked <= 2 * 20_000
