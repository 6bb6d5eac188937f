"""What is derived outlives the raw rows that it was derived from, whatever comes late."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from io import StringIO
from typing import Any

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.core.management import CommandError, call_command
from django.db import connection

from controlplane.ingest.derive import MINUTES_KEPT, derive
from controlplane.ingest.partitions import drop_expired
from controlplane.ingest.retention import delete_expired
from tests.controlplane.ingest import batches
from tests.controlplane.ingest.batches import now
from tests.controlplane.ingest.conftest import Sender
from workers import tasks


async def test_a_day_is_dropped_only_once_its_late_events_are_in_its_figures(
    sender: Sender, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    at = (now() - timedelta(days=34)).replace(minute=5, second=0, microsecond=0)
    hour, day = at.replace(minute=0), f"attempt_{at:%Y%m%d}"
    await sender.send(batches.batch(batches.attempt(at)))
    await sync_to_async(_derive_at)(now())
    kept = "SELECT sum(attempts)::int FROM rollup_hour WHERE hour = %s"
    assert await sync_to_async(_rows)(kept, [hour]) == [(1,)]
    # A late event marks it and the day passes its retention before any run has derived it.
    await sender.send(batches.batch(batches.attempt(at), seq=2))
    settings.RAW_RETENTION_DAYS = 33
    with _in_hand(hour):
        # A run that has it in hand may still read the day.
        assert day not in await sync_to_async(tasks.partitions)()
        assert "are not derived yet" in caplog.text
    assert day in await sync_to_async(tasks.partitions)()
    assert await sync_to_async(_rows)(kept, [hour]) == [(2,)]
    assert await sync_to_async(_rows)(
        "SELECT count(*) FROM rollup_dirty WHERE at = %s", [hour]
    ) == [(0,)]


async def test_a_day_that_no_run_has_come_to_is_derived_before_it_is_dropped(
    sender: Sender, settings: Any
) -> None:
    """The worker was away for all the days of the retention."""
    at = (now() - timedelta(days=34)).replace(hour=23, minute=5, second=0, microsecond=0)
    hour = at.replace(minute=0)
    await sync_to_async(_rows)("UPDATE rollup_watermark SET upto = %s RETURNING 1", [hour])
    await sender.send(batches.batch(batches.attempt(at)))
    settings.RAW_RETENTION_DAYS = 33
    assert f"attempt_{at:%Y%m%d}" in await sync_to_async(tasks.partitions)()
    kept = "SELECT sum(attempts)::int FROM rollup_hour WHERE hour = %s"
    assert await sync_to_async(_rows)(kept, [hour]) == [(1,)]


async def test_a_raised_retention_never_shrinks_an_hour(sender: Sender) -> None:
    # At noon: the hour after it is of the same day, whenever this runs.
    at = (now() - timedelta(days=34)).replace(hour=12, minute=5, second=0, microsecond=0)
    sent = [batches.attempt(at), batches.attempt(at)]
    await sender.send(batches.batch(*sent))
    await sync_to_async(_derive_at)(now())
    figures = {
        "rollup_hour": "hour",
        "rollup_hour_tenant": "hour",
        "rollup_minute": "minute",
        "rollup_circuit_minute": "minute",
    }
    await sync_to_async(_drop_before)(now() + timedelta(days=2))
    # Retention is longer now. One that was counted already, one that was not, and one of today.
    today = batches.attempt()
    receipt = await sender.send(batches.batch(sent[0], today, batches.attempt(at), seq=2))
    assert (receipt["stored"], receipt.get("duplicates", 0)) == (1, 0)
    assert [letter["index"] for letter in receipt["unread"]] == [0, 2]
    assert "are dropped already" in receipt["unread"][0]["reason"]
    assert await sender.rows("dead_letter", "index") == [(0,), (2,)]
    assert await sender.rows("receipt", "seq, late") == [(1, 2), (2, 2)]
    alone = await sender.send(batches.batch(batches.attempt(at), seq=3))
    assert [letter["index"] for letter in alone["unread"]] == [0]
    # And when a mark is there all the same, with rows that came some other way.
    await sync_to_async(_mark_and_bring_back)(at, sender.gateway_id)
    await sync_to_async(_derive_at)(now())
    for table, grain in figures.items():
        start = at.replace(minute=0) if grain == "hour" else at
        counted = f"SELECT sum(attempts)::int FROM {table} WHERE {grain} = %s"
        assert await sync_to_async(_rows)(counted, [start]) == [(2,)], table
    times = ("--from", at.isoformat(), "--to", (at + timedelta(hours=1)).isoformat())
    with pytest.raises(CommandError, match="raw events are kept from"):
        await sync_to_async(call_command)("rebuild", *times, stdout=StringIO())


async def test_a_minute_is_whole_while_an_older_run_still_derives(sender: Sender) -> None:
    began = now() - timedelta(minutes=10)
    at = (began - MINUTES_KEPT + timedelta(minutes=2)).replace(second=0, microsecond=0)
    await sender.send(batches.batch(batches.attempt(at)))
    await sync_to_async(_derive_at)(now())
    await sync_to_async(_delete_expired)(now())
    # It comes before that run, which takes its mark and holds the minute for a recent one, ends.
    await sender.send(batches.batch(batches.attempt(at), seq=2))
    await sync_to_async(_derive_at)(began)
    counted = "SELECT sum(attempts)::int FROM rollup_circuit_minute WHERE minute = %s"
    assert await sync_to_async(_rows)(counted, [at]) == [(2,)]


def _derive_at(moment: datetime) -> None:
    connection.ensure_connection()
    derive(connection.connection, moment, most=10**6)


def _delete_expired(moment: datetime) -> None:
    connection.ensure_connection()
    delete_expired(connection.connection, moment, timedelta(days=35))


def _mark_and_bring_back(at: datetime, gateway: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT switchgear_ensure_days(%s, %s)", [at.date(), at.date()])
        cursor.execute(
            "INSERT INTO attempt SELECT (jsonb_populate_record(a, jsonb_build_object("
            "'occurred_at', %s::timestamptz))).* FROM attempt a WHERE gateway_id = %s",
            [at, gateway],
        )
        cursor.execute(
            "INSERT INTO rollup_dirty VALUES ('hour', %s), ('minute', %s)",
            [at.replace(minute=0), at],
        )


def _drop_before(moment: datetime) -> None:
    connection.ensure_connection()
    drop_expired(connection.connection, moment, timedelta(days=35))


@contextmanager
def _in_hand(hour: datetime) -> Iterator[None]:
    """A run that derives has taken the hour's mark, and is not committed."""
    with psycopg.connect(**connection.get_connection_params()) as conn:
        conn.execute("DELETE FROM rollup_dirty WHERE grain = 'hour' AND at = %s", (hour,))
        yield
        conn.rollback()


def _rows(query: str, values: list[Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        return list(cursor.fetchall())
