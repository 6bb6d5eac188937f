"""The wall names the tenant whose SDK retries beside the gateway (design 4.4)."""

from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection

from controlplane.models.pool import named_sql
from controlplane.reports import wall
from dashboard.board import compose
from tests.controlplane.ingest.batches import attempt, batch, now
from tests.controlplane.ingest.conftest import Sender

read = sync_to_async(wall.read)


def redelivered(tenant: str, seconds_ago: float) -> dict[str, Any]:
    at = now() - timedelta(seconds=seconds_ago)
    return attempt(at, role="redelivery", tenant=tenant)


async def test_redeliveries_are_counted_by_tenant_a_minute(sender: Sender) -> None:
    events = [redelivered("acme", 10 + 20 * n) for n in range(10)]
    events += [redelivered("<b>&beta", 100), attempt(tenant="calm"), attempt(role="retry")]
    events += [redelivered("long ago", 400 + n) for n in range(20)]
    await sender.send(batch(*events))
    found = await read()
    assert [(one.tenant, one.a_minute) for one in found.trail.redelivering] == [
        ("acme", 2.0),
        ("<b>&beta", pytest.approx(0.2)),
    ]
    strip = (await sync_to_async(compose)(found)).strip
    assert strip["redelivering"] == "SDK retries: tenant acme, 2.0/min"
    assert strip["redelivering_more"] == "and 1 tenant more"
    assert strip["redelivering_href"] == "/find?q=acme"


async def test_without_redeliveries_nothing_is_said(sender: Sender) -> None:
    await sender.send(batch(attempt(), attempt(role="retry")))
    strip = (await sync_to_async(compose)(await read())).strip
    assert (strip["redelivering"], strip["redelivering_href"]) == (None, None)


async def test_of_very_many_the_rate_is_that_of_the_newest(sender: Sender) -> None:
    await sender.send(batch(redelivered("acme", 5)))
    await sender.query(
        "INSERT INTO attempt SELECT more.* FROM attempt a, generate_series(1, 22500) n,"
        " LATERAL jsonb_populate_record(a, jsonb_build_object('id', gen_random_uuid(),"
        "     'occurred_at', a.occurred_at - n * interval '2 ms')) AS more"
    )
    (one,) = (await read()).trail.redelivering
    # 22,500 in 45 seconds; a mean over five minutes would say 4,500.
    assert 20_000 < one.a_minute < 35_000


def _nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(n for child in plan.get("Plans", []) for n in _nodes(child))]


@pytest.mark.django_db(transaction=True)
def test_only_redeliveries_of_the_days_concerned_are_read() -> None:
    moment = now().replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=1)
    with connection.cursor() as cursor:
        days = (moment.date() - timedelta(days=3), moment.date() + timedelta(days=1))
        cursor.execute("SELECT switchgear_ensure_days(%s, %s)", days)
        cursor.execute("SET enable_seqscan = off")
        try:
            explain = "EXPLAIN (ANALYZE, FORMAT JSON) " + named_sql(wall.TRAIL)
            cursor.execute(explain, wall.trail_values(moment))
            nodes = _nodes(cursor.fetchone()[0][0]["Plan"])
        finally:
            cursor.execute("RESET enable_seqscan")
    ran = {
        node["Index Name"]
        for node in nodes
        if "occurred_at_tenant_idx" in node.get("Index Name", "") and node["Actual Loops"]
    }
    assert ran == {f"attempt_{moment:%Y%m%d}_occurred_at_tenant_idx"}
