"""Four weeks of a fleet's telemetry in a database that is kept between runs: made by SQL, once.

``BENCH_EVENTS`` events (500,000; published figures are of 20,000,000) end at the last midnight:
the fleet of ``_telemetry`` with a task's header on every tenth attempt. What is derived of them is
derived by the product's own statements. ``present`` adds the last minutes anew for each run.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
from psycopg import Connection

from controlplane.local.postgres import EmbeddedPostgres
from tests.bench._stand import add_gateways, migrate, new_database
from tests.bench._telemetry import CIRCUITS, GATEWAYS
from tests.bench.figures import say

DAYS = 28
# How long one is used: its reads are of its own last days, whenever they are.
_KEPT = timedelta(days=7)
_MADE = f"{GATEWAYS} gateways, rows of 2026-11-30"
_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_DAY_OF_EVENTS = (Path(__file__).parent / "_history_day.sql").read_text(encoding="utf-8")
# Of each day's rows 97 % are attempts and 1.5 % transitions; as many attempts have an end beside.
_ROWS_OF_EVENTS = 0.985
# Two days at a time, on a machine of two cores.
_AT_ONCE = 2
_QUICK = """
SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0;
SET synchronous_commit = off; SET wal_compression = off; SET jit = off;
SET temp_buffers = '128MB'; SET work_mem = '256MB'; SET maintenance_work_mem = '512MB';
SET max_parallel_maintenance_workers = 0
"""
_PRESENT = """
DELETE FROM rollup_minute WHERE minute >= date_trunc('minute', now()) - interval '70 minutes';
INSERT INTO rollup_minute (gateway_id, circuit_id, minute, attempts, firsts, retries, succeeded,
    failed, served, cost_gbp, wasted_gbp)
SELECT g, c, date_trunc('minute', now()) - m * interval '1 minute', 20, 18, 2, 19, 1, 19, 0.02,
    0.001
FROM generate_series(1, %(gateways)s) g, generate_series(1, %(circuits)s) c,
    generate_series(0, 60) m;
DELETE FROM attempt WHERE occurred_at >= now() - interval '20 minutes';
DELETE FROM transition WHERE occurred_at >= now() - interval '20 minutes';
UPDATE instance SET replaced_at = coalesce(replaced_at, now()) WHERE slot <> 'host/0';
UPDATE instance SET last_seen_at = now(), goodbye_at = NULL, replaced_at = NULL
WHERE slot = 'host/0';
UPDATE rollup_watermark SET upto = date_trunc('minute', now()) - interval '2 minutes'
WHERE grain = 'minute'
"""


def events() -> int:
    """How many there are to be."""
    return int(os.environ.get("BENCH_EVENTS", "500000"))


def name() -> str:
    """Of the database."""
    return f"history_{events()}"


def database(server: EmbeddedPostgres) -> tuple[str, tuple[str, ...], datetime]:
    """The database, the tokens of its gateways and the midnight at which its days end.

    Made if it is not there, or is older than ``_KEPT``.
    """
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    with psycopg.connect(server.dsn("postgres"), autocommit=True) as admin:
        row = admin.execute(
            "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = %s",
            (name(),),
        ).fetchone()
    tokens = tuple(f"bench-token-{i:02d}-" + "x" * 32 for i in range(GATEWAYS))
    what, _, ends = (row[0] if row and row[0] else "").partition(", ends ")
    if what == _MADE and today - (end := datetime.fromisoformat(ends)) <= _KEPT:
        say(f"{name()} is there and ends {end:%Y-%m-%d}")
        migrate(server.dsn(name()))
        return server.dsn(name()), tokens, end
    say(f"making {events():,} events in {name()}")
    dsn = new_database(server, name())
    tokens = add_gateways(dsn)
    _make(dsn, today)
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute(f"COMMENT ON DATABASE {name()} IS '{_MADE}, ends {today.isoformat()}'")
    return dsn, tokens, today


def present(db: Connection) -> None:
    """The last hour of minutes and living instances, as the wall reads them; no run before."""
    for statement in _PRESENT.split(";"):
        if statement.strip():
            db.execute(statement, {"gateways": GATEWAYS, "circuits": len(CIRCUITS)})
    from controlplane.ingest import derive

    now = datetime.now(UTC).replace(second=0, microsecond=0)
    with db.transaction():
        minutes = [now - n * timedelta(minutes=1) for n in range(3, 62)]
        derive._derive_minutes(db, minutes, now)


def _make(dsn: str, today: datetime) -> None:
    began = time.monotonic()
    first = today - DAYS * _DAY
    with _connected(dsn) as db:
        _fleet(db)
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            list(threads.map(lambda day: _store(dsn, first + day * _DAY, day), range(DAYS)))
        # What has no events in it, and the day that is to come.
        db.execute("SELECT switchgear_ensure_days(%s, %s)", (first.date(), (today + _DAY).date()))
        say(f"stored in {time.monotonic() - began:.0f} s")
        # Plans of days that nothing is known of walk a gateway's whole day for each outcome.
        db.execute("ANALYZE")
        stored = time.monotonic()
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            list(threads.map(lambda day: _derive(dsn, first + day * _DAY, today), range(DAYS)))
        db.execute("UPDATE rollup_watermark SET upto = %s", (today,))
        db.execute("DELETE FROM rollup_dirty")
        say(f"derived in {time.monotonic() - stored:.0f} s")
        db.execute("VACUUM ANALYZE")
        db.execute("CHECKPOINT")
    say(f"all made in {time.monotonic() - began:.0f} s")


def _connected(dsn: str) -> Connection:
    db = psycopg.connect(dsn, autocommit=True)
    db.execute(_QUICK)
    return db


def _fleet(db: Connection) -> None:
    with db.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO circuit (provider, model, region, first_seen_at)"
            " VALUES (%s, %s, %s, now())",
            CIRCUITS,
        )
        cursor.executemany(
            "INSERT INTO gateway_circuit SELECT %s, id FROM circuit",
            [(gateway,) for gateway in range(1, GATEWAYS + 1)],
        )
    db.execute(
        "INSERT INTO instance (gateway_id, boot_id, slot, first_seen_at, last_seen_at, version,"
        " status_seq, epoch, received_generation, applied_generation, applied_hash, config_source,"
        " items, spool, clock, capabilities, contiguous_seq, highest_seq)"
        " SELECT id, gen_random_uuid(), 'host/0', now(), now(), '', 0, '', 0, 0, '', '', '[]',"
        " '{}', '{}', '[]', 0, 0 FROM gateway ORDER BY id"
    )
    db.execute(
        "INSERT INTO circuit_state (gateway_id, instance_id, circuit_id, number, state, since,"
        " cause, mode, reported_at, counters, override_uid, would_be, ramp_percent, stuck,"
        " keys_note) SELECT i.gateway_id, i.id, c.id, 1, 'Closed', now(), '', 'Auto', now(), '{}',"
        " '', '', 100, false, '' FROM instance i, circuit c"
    )


def _store(dsn: str, start: datetime, day: int) -> None:
    """One day's events, its indexes built when its rows are there."""
    values = {
        "start": start,
        "events": int(events() / DAYS * _ROWS_OF_EVENTS),
        "gateways": GATEWAYS,
        "circuits": len(CIRCUITS),
        "day": day,
        "number": day * events(),
        "salt": day * 100,
    }
    names = {"{day}": f"{start:%Y%m%d}", "{from}": str(start), "{to}": str(start + _DAY)}
    with _connected(dsn) as db, db.transaction():
        for statement in _DAY_OF_EVENTS.split(";\n"):
            for place, word in names.items():
                statement = statement.replace(place, word)
            if "%(" in statement:
                db.execute(statement.encode(), values)
            elif statement.strip():
                db.execute(statement.encode())


def _derive(dsn: str, start: datetime, today: datetime) -> None:
    """A day's hours and, of the last two, its minutes, by the product's own statements."""
    from controlplane.ingest import derive, rebuild

    with _connected(dsn) as db:
        for at in (start + n * _HOUR for n in range(24)):
            with db.transaction():
                derive.derive_hour(db, {"start": at, "end": at + _HOUR})
            if at < today - 2 * _DAY:
                continue
            rebuild._minutes(db, at)
            with db.transaction():
                minutes = [at + n * timedelta(minutes=1) for n in range(60)]
                derive._derive_minutes(db, minutes, at)
