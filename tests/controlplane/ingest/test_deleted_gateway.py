"""What a deleted gateway has sent stays countable, and costs nobody else anything."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from asgiref.sync import sync_to_async
from django.core.management import call_command
from django.db import connection

from controlplane.ingest.derive import derive
from controlplane.models import Gateway
from controlplane.reports import finding, telemetry, wall
from tests.controlplane.ingest.batches import attempt, batch, outcome, refusal, transition
from tests.controlplane.ingest.conftest import Sender

pytestmark = pytest.mark.django_db(transaction=True)


def _derive() -> None:
    connection.ensure_connection()
    derive(connection.connection, datetime.now(UTC), most=10**6)


async def test_events_of_a_deleted_gateway_are_derived_rebuilt_and_read(sender: Sender) -> None:
    # An hour of its own: what others left of today does not count.
    at = (datetime.now(UTC) - timedelta(hours=29)).replace(minute=5, second=0, microsecond=0)
    own = {"task": "t-1", "tenant": "acme"}
    await sender.send(
        batch(
            attempt(at, **own), refusal(at), transition(1, "Open", at),
            outcome(at, started_at=at.isoformat(), **own),
            seq=3,
        )
    )  # fmt: skip
    await sync_to_async(_derive)()
    counted = "SELECT sum(attempts)::int FROM {0} WHERE {1} >= %s AND {1} < %s + interval '1 hour'"
    tables = {
        "rollup_hour": "hour",
        "rollup_hour_tenant": "hour",
        "rollup_circuit_minute": "minute",
    }
    hour = at.replace(minute=0)
    await sync_to_async(Gateway.objects.filter(pk=sender.gateway_id).delete)()
    answer = await sender.post(batch(attempt(at), seq=4))
    assert answer.status in (401, 503), answer.body
    await sender.query(
        "INSERT INTO rollup_dirty VALUES ('hour', %s), ('minute', %s) ON CONFLICT DO NOTHING",
        [hour, at],
    )
    await sync_to_async(_derive)()
    times = ("--from", hour.isoformat())
    await sync_to_async(call_command)("rebuild", *times, stdout=StringIO())
    for table, column in tables.items():
        assert await sender.query(counted.format(table, column), [hour, hour]) == [(1,)], table
    assert await sync_to_async(telemetry.lost_telemetry)(hour) == []
    assert await sync_to_async(finding.where_known)("t-1", None, None) in ([], ())
    now = await sync_to_async(wall.read_present)()
    assert not now.instances
