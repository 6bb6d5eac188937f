"""Telemetry in: events/s through the HTTP door, against one large binary COPY of the same rows.

End to end means HTTP, decode, COPY, rollup with histograms, commit, 200; one web worker, twenty
gateways that each send one batch after another. The COPY writes the very rows that a round has
stored into the same tables with the same indexes, emptied before, in one statement for each table.
Beside the rates stands the processor time of the web process, of Postgres and of the COPY for one
event, which other work on the machine stretches less. ``BENCH_ROUNDS`` (5) rounds of either size.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from statistics import median

import psycopg

from tests.bench._stand import (
    Stand,
    add_gateways,
    cpu_seconds_of,
    new_database,
    postgres,
    postgres_cpu_seconds,
    web,
)
from tests.bench._telemetry import GATEWAYS, Fleet
from tests.bench.figures import Figure, say

TABLES = ("attempt", "refusal", "outcome", "transition", "budget_event")
DERIVED = ("receipt", "rollup_minute", "rollup_minute_part", "rollup_minute_request")
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
# Events of a batch -> batches of each gateway in a round.
SIZES = {500: 6, 20: 50}


def measure() -> Iterator[Figure]:
    """Rates of batches of 500 and of 20, and the ratio of each to COPY."""
    with postgres() as server:
        dsn = new_database(server, "ingest")
        with web(dsn, add_gateways(dsn)) as stand:
            yield from _rates(stand)


def _rates(stand: Stand) -> Iterator[Figure]:
    fleet = Fleet()
    asyncio.run(_send(stand, _bodies(fleet, 100, 1)))
    copied: list[float] = []
    ratios: dict[int, list[float]] = {size: [] for size in SIZES}
    rates: dict[int, list[float]] = {size: [] for size in SIZES}
    cpu: dict[str, list[float]] = {"copy": []}
    cpu |= {f"{who}_cpu_of_{size}": [] for size in SIZES for who in ("web", "postgres")}
    for number in range(ROUNDS):
        for size, batches in SIZES.items():
            _empty(stand.dsn)
            bodies = _bodies(fleet, size, batches)
            web, server = stand.cpu_seconds(), postgres_cpu_seconds()
            seconds = asyncio.run(_send(stand, bodies))
            events = size * batches * GATEWAYS
            web, server = stand.cpu_seconds() - web, postgres_cpu_seconds() - server
            cpu[f"web_cpu_of_{size}"].append(web / events * 1e6)
            cpu[f"postgres_cpu_of_{size}"].append(server / events * 1e6)
            stored, copy_seconds, copy_cpu = _copy_again(stand.dsn)
            cpu["copy"].append(copy_cpu / events * 1e6)
            if stored != events:
                raise RuntimeError(f"{events} events were acknowledged and {stored} stored")
            rates[size].append(events / seconds)
            copied.append(events / copy_seconds)
            ratios[size].append(copy_seconds / seconds)
            say(
                f"round {number}, batches of {size}: {events / seconds:,.0f}/s,"
                f" COPY {events / copy_seconds:,.0f}/s, ratio {copy_seconds / seconds:.3f};"
                f" processor {web / events * 1e6:.1f} web, {server / events * 1e6:.1f} Postgres,"
                f" {copy_cpu / events * 1e6:.1f} COPY us/event"
            )
    yield Figure("ingest.copy", median(copied), "events/s")
    yield Figure("ingest.copy_cpu", median(cpu.pop("copy")), "us/event")
    for name, values in cpu.items():
        yield Figure(f"ingest.{name}", median(values), "us/event")
    for size in SIZES:
        yield Figure(
            f"ingest.batches_of_{size}",
            median(rates[size]),
            "events/s",
            "one binary COPY of the same rows",
            median(ratios[size]),
        )
    yield Figure(
        "ingest.batches_of_20",
        median(rates[20]),
        "events/s",
        "batches of 500",
        median(rates[20]) / median(rates[500]),
    )


def _bodies(fleet: Fleet, size: int, batches: int) -> list[list[bytes]]:
    now = datetime.now(UTC)
    return [[fleet.body(g, size, now) for _ in range(batches)] for g in range(GATEWAYS)]


def _empty(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute(f"TRUNCATE {', '.join((*TABLES, *DERIVED))}")
        db.execute("CHECKPOINT")


async def _send(stand: Stand, bodies: list[list[bytes]]) -> float:
    """Seconds that it took until the last batch was acknowledged."""
    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for token, own in zip(stand.tokens, bodies, strict=True):
            group.create_task(_send_all(stand.port, token, own))
    return time.perf_counter() - began


async def _send_all(port: int, token: str, bodies: list[bytes]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for body in bodies:
        writer.write(
            b"POST /api/v1/events HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"authorization: Bearer %b\r\ncontent-length: %d\r\n\r\n%b"
            % (token.encode(), len(body), body)
        )
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        answer = await reader.readexactly(length)
        if b" 200 " not in head.split(b"\r\n")[0]:
            raise RuntimeError(f"refused: {answer.decode(errors='replace')}")
    writer.close()


def _copy_again(dsn: str) -> tuple[int, float, float]:
    """Take the rows out, empty the tables, put them back; how many, and of the last the seconds and
    Postgres' processor seconds.
    """
    rows, seconds, processor = 0, 0.0, 0.0
    with psycopg.connect(dsn, autocommit=True) as db:
        for table in TABLES:
            with db.cursor() as cursor:
                with cursor.copy(f"COPY (SELECT * FROM {table}) TO STDOUT (FORMAT binary)") as out:
                    content = b"".join(bytes(part) for part in out)
                cursor.execute(f"TRUNCATE {table}")
                began, worked = time.perf_counter(), cpu_seconds_of(db.info.backend_pid)
                with cursor.copy(f"COPY {table} FROM STDIN (FORMAT binary)") as into:
                    into.write(content)
                seconds += time.perf_counter() - began
                processor += cpu_seconds_of(db.info.backend_pid) - worked
                rows += cursor.rowcount
    return rows, seconds, processor
