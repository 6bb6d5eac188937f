"""Reads of four weeks of telemetry: the wall, a week, a circuit's day, a task; and ingest into it.

Warm: each read is repeated and its first run left out. Median and 95th percentile of the time that
the caller waits, on one connection; and processor time, which a busy machine stretches less.
Ingest: batches of 500 into a database of few partitions and into this one, in turns; the ratio says
what thirty partitions and their rows cost.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from statistics import median, quantiles
from typing import Any

import psycopg

from tests.bench import ingest
from tests.bench._history import database, events, name, present
from tests.bench._stand import (
    add_gateways,
    cpu_seconds_of,
    environment,
    new_database,
    postgres,
    web,
)
from tests.bench._telemetry import GATEWAYS, Fleet
from tests.bench.figures import Figure, say

_RUNS = int(os.environ.get("BENCH_READS", "20"))
_ROUNDS = 7
_BATCHES = 1
# What is to be met, in milliseconds.
_AIMS = {"wall": 20, "week": 150, "running": 150, "India's": 150, "series": 30, "trace": 10}
_HOUR = timedelta(hours=1)


def measure() -> Iterator[Figure]:
    """Times of reading, and the rate of writing beside so much."""
    with postgres() as server:
        os.environ.update(environment(server.dsn(name())))
        import django

        django.setup()
        dsn, tokens, end = database(server)
        with psycopg.connect(dsn, autocommit=True) as db:
            present(db)
        yield from _reads(end)
        yield from _ingest(new_database(server, "empty"), dsn, tokens)


def _reads(end: datetime) -> Iterator[Figure]:
    from django.db import connection, transaction

    from controlplane.domain.calendar import last_finished, zone_named
    from controlplane.reports import telemetry, wall, weekly

    zone = zone_named("UTC")
    week = last_finished(end, zone)
    day = end - timedelta(days=1)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT gateway_id, tenant, task FROM attempt WHERE task IS NOT NULL"
            " AND occurred_at >= %s LIMIT 1",
            [end - timedelta(days=10)],
        )
        gateway, tenant, task = cursor.fetchone()
    yield from _timed("wall", wall.read)
    yield from _timed("series", lambda: telemetry.circuit_series(1, day, end, timedelta(minutes=5)))
    yield from _timed("trace", lambda: telemetry.task_trace(gateway, tenant, task))
    over = week.bounds(zone)[1]
    for by in weekly.SPLITS:
        asked = weekly.Question(week, zone, by)
        yield from _timed(f"week by {by}", lambda asked=asked: weekly.weekly(asked, over + _HOUR))
    # Its midnights lie within hours: both ends come from raw events.
    india = zone_named("Asia/Kolkata")
    there = last_finished(end, india)
    for by in weekly.SPLITS:
        asked = weekly.Question(there, india, by)
        yield from _timed(
            f"India's week by {by}", lambda asked=asked: weekly.weekly(asked, over + _HOUR)
        )
    # The same week ten minutes before it was over, when its last hour was not derived yet.
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE rollup_watermark SET upto = %s WHERE grain = 'hour'", [over - _HOUR]
            )
        now = over - timedelta(minutes=10)
        for by in weekly.SPLITS:
            asked = weekly.Question(week, zone, by)
            yield from _timed(
                f"running week by {by}", lambda asked=asked: weekly.weekly(asked, now)
            )
        transaction.set_rollback(True)


def _timed(what: str, read: Callable[[], Any]) -> Iterator[Figure]:
    assert read(), f"{what} found nothing"
    took, worked = [], _worked()
    for _ in range(_RUNS):
        began = time.perf_counter()
        read()
        took.append((time.perf_counter() - began) * 1000)
    worked = (_worked() - worked) / _RUNS * 1000
    half, late = median(took), quantiles(took, n=20, method="inclusive")[18]
    aim = _AIMS[what.split()[0]]
    say(
        f"{what}: median {half:.1f} ms, 95th percentile {late:.1f} ms, aim {aim} ms;"
        f" processor {worked:.1f} ms"
    )
    yield Figure(f"reads.{what}.processor", worked, "ms")
    for point, value in (("median", half), ("p95", late)):
        yield Figure(f"reads.{what}.{point}", value, "ms", f"aim of {aim} ms", value / aim)


def _worked() -> float:
    """Processor time of this process and of its Postgres backend, in seconds."""
    from django.db import connection

    connection.ensure_connection()
    return cpu_seconds_of(connection.connection.info.backend_pid) + time.process_time()


def _ingest(empty: str, full: str, tokens: tuple[str, ...]) -> Iterator[Figure]:
    rates: dict[str, list[float]] = {"empty": [], "full": []}
    with web(empty, add_gateways(empty)) as one, web(full, tokens) as other:
        stands = {"empty": one, "full": other}
        fleets = {which: Fleet(seed) for seed, which in enumerate(stands, int(time.time()))}
        for number in range(_ROUNDS):
            for which, stand in stands.items():
                bodies = ingest._bodies(fleets[which], 500, _BATCHES)
                seconds = asyncio.run(ingest._send(stand, bodies))
                # The first round finds circuits, instances and prices.
                if number:
                    rates[which].append(500 * _BATCHES * GATEWAYS / seconds)
    ratios = [b / a for a, b in zip(rates["empty"], rates["full"], strict=True)]
    yield Figure(
        f"ingest.into_{events()}_events",
        median(rates["full"]),
        "events/s",
        "batches of 500 into an empty database",
        median(ratios),
    )
