"""Four weeks of a fleet's telemetry in a database that is kept between runs: made by SQL, once.

``BENCH_EVENTS`` events (500,000; published figures are of 20,000,000) end at the last midnight:
the fleet of ``_telemetry`` with a task's header on every tenth attempt. What is derived of them is
derived by the product's own statements. ``present`` adds the last minutes anew for each run.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta

import psycopg
from psycopg import Connection

from controlplane.local.postgres import EmbeddedPostgres
from tests.bench._stand import add_gateways, migrate, new_database
from tests.bench._telemetry import CIRCUITS, GATEWAYS
from tests.bench.figures import say

DAYS = 28
_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_ID = """(lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7'
    || substr(md5(g::text || {salt}), 1, 3) || '8'
    || substr(md5(g::text || {salt}), 4, 15))::uuid"""
# Places by Zipf: the logarithm of an even draw falls on k with about 1/k.
_DAY_OF_EVENTS = f"""
CREATE TEMP TABLE drawn AS
SELECT g, %(start)s::timestamptz + g * interval '1 day' / %(events)s AS at,
    1 + (g %% {GATEWAYS}) AS gateway, random() AS kind, random() < 0.95 AS good,
    least({len(CIRCUITS)}, floor(exp(random() * ln({len(CIRCUITS)} + 1)))::int) AS circuit,
    'tenant-' || lpad((floor(exp(random() * ln(51)))::int - 1)::text, 2, '0') AS tenant,
    'route-' || (floor(exp(random() * ln(7)))::int - 1) AS route,
    CASE WHEN (g / {GATEWAYS}) %% 100 < 10
        THEN 'task-' || %(day)s || '-' || (g %% {GATEWAYS}) || '-' || (g / {GATEWAYS} / 100) END
        AS task,
    exp(7.5 + 0.6 * sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random()))::int AS ms,
    (50 + random() * 3950)::int AS input, (10 + random() * 890)::int AS output
FROM generate_series(0, %(events)s - 1) AS g;
INSERT INTO attempt (gateway_id, instance_id, circuit_id, id, occurred_at, received_at, request,
    task, ordinal, role, rerouted, key, tenant, route, served_model, status, verdict, reason,
    counts, first_byte_ms, ended_ms, waited_ms, input_tokens, cached_tokens, output_tokens,
    tokens_estimated, service_tier, billing, served, generation, cost_native, currency, cost_gbp,
    cost_status, price_id, fx_id)
SELECT gateway, gateway, circuit, {_ID.format(salt="'a'")}, at, at + interval '1 second',
    {_ID.format(salt="'r'")}, CASE WHEN task IS NOT NULL THEN 'tenant-00/' || task END, 1,
    CASE WHEN random() < 0.95 THEN 'first' ELSE 'retry' END, false, 'key-1',
    CASE WHEN task IS NULL THEN tenant ELSE 'tenant-00' END, route, 'model',
    CASE WHEN good THEN 200 ELSE 503 END, CASE WHEN good THEN 'success' ELSE 'retryable' END,
    CASE WHEN good THEN '' ELSE 'overloaded' END, NOT good, ms / 3, ms, 0, input, 0, output,
    false, '', CASE WHEN good THEN 'billed' ELSE 'not_billed' END, good, 12,
    CASE WHEN good THEN input * 0.0000025 + output * 0.00001 ELSE 0 END, 'USD',
    CASE WHEN good THEN (input * 0.0000025 + output * 0.00001) * 0.7512 ELSE 0 END,
    CASE WHEN good THEN 'priced' ELSE 'not_billed' END, 1, 1
FROM drawn WHERE kind >= 0.03;
INSERT INTO outcome (gateway_id, instance_id, id, occurred_at, received_at, request, tenant, route,
    success, explicit, reason, started_at, ended_at, latency_ms, waited_ms)
SELECT gateway, gateway, {_ID.format(salt="'o'")}, at, at + interval '1 second',
    {_ID.format(salt="'r'")}, tenant, route, good, false, '', at, at, ms, 0
FROM drawn WHERE kind < 0.015;
INSERT INTO transition (gateway_id, instance_id, circuit_id, id, occurred_at, received_at, number,
    from_state, to_state, cause, mode, calls, failures, slow, consecutive, generation)
SELECT gateway, gateway, circuit, {_ID.format(salt="'t'")}, at, at + interval '1 second',
    %(number)s + g, CASE WHEN good THEN 'Open' ELSE 'Closed' END,
    CASE WHEN good THEN 'Closed' ELSE 'Open' END, 'ConsecutiveFailures', 'Auto', 0, 0, 0, 0, 12
FROM drawn WHERE kind >= 0.015 AND kind < 0.03;
INSERT INTO task (gateway_id, tenant, task, first_started_at, first_request, route, last_ended_at,
    implicit_at, implicit_id, implicit_success)
SELECT gateway, 'tenant-00', 'tenant-00/' || task, min(at), gen_random_uuid(), 'route-0', max(at),
    max(at), gen_random_uuid(), bool_or(good)
FROM drawn WHERE task IS NOT NULL AND kind >= 0.03 GROUP BY gateway, task;
DROP TABLE drawn
"""
_PRESENT = """
DELETE FROM rollup_minute WHERE minute >= date_trunc('minute', now()) - interval '70 minutes';
INSERT INTO rollup_minute (gateway_id, circuit_id, minute, attempts, firsts, retries, succeeded,
    failed, served, cost_gbp, wasted_gbp)
SELECT g, c, date_trunc('minute', now()) - m * interval '1 minute', 20, 18, 2, 19, 1, 19, 0.02,
    0.001
FROM generate_series(1, %(gateways)s) g, generate_series(1, %(circuits)s) c,
    generate_series(0, 60) m;
UPDATE instance SET last_seen_at = now(), goodbye_at = NULL, replaced_at = NULL;
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
    """The database, the tokens of its gateways and its last midnight; made if it is not there."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    with psycopg.connect(server.dsn("postgres"), autocommit=True) as admin:
        row = admin.execute(
            "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = %s",
            (name(),),
        ).fetchone()
    made = f"tokens of {GATEWAYS} gateways, ends {today:%Y-%m-%d}"
    tokens = tuple(f"bench-token-{i:02d}-" + "x" * 32 for i in range(GATEWAYS))
    if row is None or row[0] != made:
        say(f"making {events():,} events in {name()}")
        dsn = new_database(server, name())
        tokens = add_gateways(dsn)
        with psycopg.connect(dsn, autocommit=True) as db:
            _make(db, today)
            db.execute(f"COMMENT ON DATABASE {name()} IS '{made}'")
    else:
        migrate(server.dsn(name()))
    return server.dsn(name()), tokens, today


def present(db: Connection) -> None:
    """The last hour of minutes and living instances, as the wall reads them."""
    for statement in _PRESENT.split(";"):
        if statement.strip():
            db.execute(statement, {"gateways": GATEWAYS, "circuits": len(CIRCUITS)})
    from controlplane.ingest import derive

    now = datetime.now(UTC).replace(second=0, microsecond=0)
    with db.transaction():
        minutes = [now - n * timedelta(minutes=1) for n in range(3, 62)]
        derive._derive_minutes(db, minutes, now)


def _make(db: Connection, today: datetime) -> None:
    db.execute("SET statement_timeout = 0")
    first = today - DAYS * _DAY
    db.execute("SELECT switchgear_ensure_days(%s, %s)", (first.date(), (today + _DAY).date()))
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
    began = time.monotonic()
    for day in range(DAYS):
        values = {
            "start": first + day * _DAY,
            "events": events() // DAYS,
            "day": day,
            "number": day * events(),
        }
        with db.transaction():
            for statement in _DAY_OF_EVENTS.split(";\n"):
                db.execute(statement, values)
    say(f"stored in {time.monotonic() - began:.0f} s")
    # Plans of days that nothing is known of walk a gateway's whole day for each outcome.
    db.execute("ANALYZE")
    stored = time.monotonic()
    _derive(db, first, today)
    say(f"derived in {time.monotonic() - stored:.0f} s")
    db.execute("VACUUM ANALYZE")
    say(f"all made in {time.monotonic() - began:.0f} s")


def _derive(db: Connection, first: datetime, today: datetime) -> None:
    """The hours of all days, the minutes of the last two, by the product's own statements."""
    from controlplane.ingest import derive, rebuild

    at = first
    while at < today:
        with db.transaction():
            derive.derive_hour(db, {"start": at, "end": at + _HOUR})
        at += _HOUR
    at = today - 2 * _DAY
    while at < today:
        rebuild._minutes(db, at)
        with db.transaction():
            minutes = [at + n * timedelta(minutes=1) for n in range(60)]
            derive._derive_minutes(db, minutes, at)
        at += _HOUR
    db.execute("UPDATE rollup_watermark SET upto = %s", (today,))
    db.execute("DELETE FROM rollup_dirty")
