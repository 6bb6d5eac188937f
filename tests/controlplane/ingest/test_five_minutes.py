"""A circuit's sums of five minutes are what its derived minutes say, whoever writes those."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection

from controlplane.domain.rollup import floor_to, is_of_fives
from controlplane.ingest import derive
from controlplane.reports.telemetry import circuit_series
from tests.telemetry import forget_telemetry

pytestmark = pytest.mark.django_db(transaction=True)
MINUTE = timedelta(minutes=1)
BEGIN = floor_to(timedelta(hours=1), datetime.now(UTC) - timedelta(hours=2))
CIRCUIT = -5
_INSERT = (
    "INSERT INTO rollup_circuit_minute (circuit_id, minute, attempts, cost_gbp, latency)"
    " VALUES (%s, %s, %s, %s, %s)"
)


@pytest.fixture(autouse=True)
def nothing_else() -> Iterator[None]:
    forget_telemetry()
    passed_to(BEGIN + timedelta(hours=1))
    yield
    forget_telemetry()


def query(statement: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchall() if cursor.description else []


def passed_to(upto: datetime) -> None:
    query("UPDATE rollup_watermark SET upto = %s WHERE grain = 'minute'", [upto])


def minute(number: int, attempts: int, bins: list[int], circuit: int = CIRCUIT) -> list[Any]:
    """What ``_INSERT`` takes: a minute after ``BEGIN``."""
    return [circuit, BEGIN + number * MINUTE, attempts, attempts, bins]


def bins(**counts: int) -> list[int]:
    return [int(bucket[1:]) << 32 | count for bucket, count in counts.items()]


def sums(circuit: int = CIRCUIT) -> list[tuple[Any, ...]]:
    """The minute, attempts, cost and latency of a circuit's sums."""
    found = query(
        "SELECT at, attempts, cost_gbp, latency FROM rollup_circuit_five_minutes"
        " WHERE circuit_id = %s ORDER BY at",
        [circuit],
    )
    return [((at - BEGIN) // MINUTE, *rest) for at, *rest in found]


def test_five_minutes_are_summed_with_their_histograms() -> None:
    query(_INSERT, minute(0, 2, bins(b3=1, b7=1)))
    query(_INSERT, minute(4, 3, bins(b3=3)))
    query(_INSERT, minute(5, 7, []))
    query(_INSERT, minute(1, 9, [], circuit=CIRCUIT - 1))
    assert sums() == [(0, 5, 5, bins(b3=4, b7=1)), (5, 7, 7, [])]
    assert sums(CIRCUIT - 1) == [(0, 9, 9, [])]


def test_they_follow_every_change_of_a_minute() -> None:
    for number in (0, 1, 6):
        query(_INSERT, minute(number, 1, bins(b3=1)))
    query("UPDATE rollup_circuit_minute SET attempts = 8 WHERE minute = %s", [BEGIN])
    assert sums() == [(0, 9, 2, bins(b3=2)), (5, 1, 1, bins(b3=1))]
    query(
        "UPDATE rollup_circuit_minute SET minute = minute + interval '6 minutes' WHERE minute = %s",
        [BEGIN + MINUTE],
    )
    assert sums() == [(0, 8, 1, bins(b3=1)), (5, 2, 2, bins(b3=2))]
    # The minutes that are left of a sum are read as minutes.
    query("DELETE FROM rollup_circuit_minute WHERE minute = %s", [BEGIN + 7 * MINUTE])
    assert sums() == [(0, 8, 1, bins(b3=1))]
    steps = circuit_series(CIRCUIT, BEGIN, BEGIN + 10 * MINUTE, 5 * MINUTE)
    assert [(step.attempts, step.latency.counts()) for step in steps] == [(8, {3: 1}), (1, {3: 1})]


def test_a_sum_is_made_when_its_last_minute_is_before_the_watermark() -> None:
    passed_to(BEGIN + 4 * MINUTE)
    query(_INSERT, minute(3, 1, []))
    assert sums() == []
    passed_to(BEGIN + 5 * MINUTE)
    query(_INSERT, minute(4, 1, []))
    assert sums() == [(0, 2, 2, [])]


def test_a_sum_beyond_the_end_or_the_watermark_is_not_read() -> None:
    for number in range(10):
        query(_INSERT, minute(number, 1, bins(b3=1)))
    (first, second) = circuit_series(CIRCUIT, BEGIN, BEGIN + 8 * MINUTE, 5 * MINUTE)
    assert (first.attempts, second.attempts, second.latency.counts()) == (5, 3, {3: 3})
    passed_to(BEGIN + 7 * MINUTE)
    (whole,) = circuit_series(CIRCUIT, BEGIN, BEGIN + 10 * MINUTE, 10 * MINUTE)
    assert whole.attempts == 7


def test_two_that_derive_minutes_of_one_sum_at_once_both_count() -> None:
    dsn = connection.get_connection_params() | {"autocommit": True}
    dsn = {k: v for k, v in dsn.items() if k in ("host", "port", "user", "password", "dbname")}
    with psycopg.connect(**dsn) as one, psycopg.connect(**dsn, autocommit=True) as other:
        # Longer than for any other lock: beside a rebuild the usual work would be told as failed.
        other.execute("SET lock_timeout = '1ms'")
        one.execute(_INSERT, minute(0, 1, bins(b3=1)))
        thread = threading.Thread(target=other.execute, args=(_INSERT, minute(1, 2, bins(b3=2))))
        thread.start()
        waiting = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
        while thread.is_alive() and not query(waiting, [other.info.backend_pid]):
            pass
        for _ in range(20):
            assert query(waiting, [other.info.backend_pid])
        one.commit()
        thread.join()
    assert sums() == [(0, 3, 3, bins(b3=3))]


def test_minutes_that_come_from_raw_events_are_derived_in_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In any other, two runs at once would each hold an hour of sums that the other waits for."""
    order: list[datetime] = []
    monkeypatch.setattr(derive, "_derive_kept", lambda conn, at, derive_one: order.append(at))
    minutes = [BEGIN - timedelta(days=3) + n * MINUTE for n in (70, 0, 130, 5)]
    connection.ensure_connection()
    derive._derive_minutes(connection.connection, minutes, datetime.now(UTC))
    assert order == sorted(minutes)


@pytest.mark.parametrize(
    ("start", "step", "fits"),
    [
        (BEGIN, 5 * MINUTE, True),
        (BEGIN + 10 * MINUTE, 60 * MINUTE, True),
        (BEGIN + 3 * MINUTE, 5 * MINUTE, False),
        (BEGIN + timedelta(seconds=1), 5 * MINUTE, False),
        (BEGIN, 7 * MINUTE, False),
        (BEGIN, MINUTE, False),
    ],
)
def test_which_steps_are_made_of_them(start: datetime, step: timedelta, fits: bool) -> None:
    assert is_of_fives(start, step) is fits
