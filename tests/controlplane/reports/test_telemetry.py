"""Series, open times, traces and losses say what was sent, and what is missing as missing."""

import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection

from controlplane.ingest.derive import derive
from controlplane.reports import telemetry, wall
from tests.controlplane.ingest.batches import attempt, batch, now, outcome, refusal, transition
from tests.controlplane.ingest.conftest import Sender

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


def hour_ago(hours: int = 1) -> datetime:
    return (now() - hours * HOUR).replace(minute=0, second=0, microsecond=0)


async def circuit_id(sender: Sender, model: str) -> int:
    rows = await sender.query("SELECT id FROM circuit WHERE model = %s", [model])
    return int(rows[0][0])


def derive_now() -> None:
    connection.ensure_connection()
    derive(connection.connection, datetime.now(UTC), most=10**6)


async def test_a_series_joins_derived_minutes_and_the_running_one(
    sender: Sender,
) -> None:
    start = hour_ago(3)
    old = [attempt(start + n * MINUTE, model="m-series", ended_ms=1000) for n in range(3)]
    running = now() - timedelta(seconds=5)
    new = attempt(running, model="m-series", ended_ms=5000, role="retry", served=False)
    await sender.send(batch(*old, new))
    await sync_to_async(derive_now)()
    circuit = await circuit_id(sender, "m-series")
    steps = await sync_to_async(telemetry.circuit_series)(circuit, start, now(), 2 * MINUTE)
    assert [(s.at - start, s.attempts, s.retries) for s in steps[:2]] == [
        (timedelta(0), 2, 0),
        (2 * MINUTE, 1, 0),
    ]
    assert (steps[-1].attempts, steps[-1].retries, steps[-1].retry_ratio) == (1, 1, None)
    assert sum(s.attempts for s in steps) == 4
    for step, ms in ((steps[0], 1000), (steps[-1], 5000)):
        p95 = step.latency_ms(0.95)
        assert p95 is not None
        assert abs(p95 - ms) <= ms * 0.02
    assert steps[0].first_byte_ms(0.5) is None
    # A step that is derived in part has the histograms of both.
    (whole,) = await sync_to_async(telemetry.circuit_series)(circuit, start, now(), 6 * HOUR)
    assert (whole.attempts, whole.latency.total) == (4, 4)


async def test_open_times_end_with_the_last_word_and_admit_gaps(
    sender: Sender,
) -> None:
    start = hour_ago(2)
    at = [start + n * MINUTE for n in range(30)]

    def step(number: int, to: str, minute: int) -> dict[str, Any]:
        return transition(number, to, at[minute], model="m-open")

    whole, holed = uuid.UUID(int=11), uuid.UUID(int=12)
    await sender.send(
        batch(step(1, "Open", 1), step(2, "Closed", 4), step(3, "Open", 20), boot=whole)
    )
    await sender.send(batch(step(1, "Open", 2), step(5, "Closed", 9), boot=holed, slot="host-b/0"))
    circuit = await circuit_id(sender, "m-open")
    found = await sync_to_async(telemetry.open_intervals)(circuit, start + 3 * MINUTE, now())
    seen = [(f.slot, f.since - start, f.until - start, f.certain, f.silent) for f in found]
    assert seen == [
        ("host-a/0", 3 * MINUTE, 4 * MINUTE, True, False),
        ("host-b/0", 3 * MINUTE, 9 * MINUTE, False, False),
        # Its instance's last word: of what came after nothing is claimed.
        ("host-a/0", 20 * MINUTE, 20 * MINUTE, True, True),
    ]


async def test_a_task_is_traced_over_its_requests(sender: Sender) -> None:
    begin = hour_ago(2)
    request = str(uuid.UUID(int=77))
    named = {"task": "t-trace", "request": request, "tenant": "acme"}
    await sender.send(
        batch(
            attempt(begin, verdict="retryable", served=False, billing="not_billed", **named),
            refusal(begin + MINUTE, gate="budget", **named),
            attempt(begin + 2 * MINUTE, ordinal=2, role="fallback", model="m-2", **named),
            outcome(
                begin + 3 * MINUTE,
                success=True,
                started_at=begin.isoformat(),
                latency_ms=9,
                **named,
            ),
            attempt(begin, task="t-other", tenant="acme"),
        )
    )
    read = sync_to_async(telemetry.task_trace)
    trace = await read(sender.gateway_id, "acme", "t-trace")
    assert trace is not None
    assert [(r.kind, r.role, r.verdict) for r in trace.rows] == [
        ("attempt", "first", "retryable"),
        ("refusal", None, "budget"),
        ("attempt", "fallback", "success"),
        ("outcome", None, None),
    ]
    assert (trace.success, trace.cost_gbp, trace.unpriced) == (True, Decimal(0), 1)
    assert await read(sender.gateway_id, "zeta", "t-trace") is None


async def test_failures_come_newest_first(sender: Sender) -> None:
    start = hour_ago(2)
    events = [
        attempt(start + n * MINUTE, model="m-fail", verdict=v, reason=f"r{n}")
        for n, v in enumerate(["retryable", "success", "permanent", "partial"])
    ]
    await sender.send(batch(*events))
    circuit = await circuit_id(sender, "m-fail")
    found = await sync_to_async(telemetry.newest_failures)(circuit, start, now(), 2)
    assert [f.reason for f in found] == ["r3", "r2"]


async def test_served_attempts_of_a_task_that_failed_are_finally_wasted(
    sender: Sender,
) -> None:
    begin = hour_ago(2)
    named = {"tenant": "waster", "task": "t-waste"}
    priced = {"billing": "billed", "served": True}
    await sender.send(batch(attempt(begin, **named, **priced), outcome(begin + MINUTE, **named)))
    await sync_to_async(derive_now)()

    async def final() -> int:
        rows = await sender.query(
            "SELECT sum(wasted_final_tokens) FROM rollup_hour_tenant WHERE tenant = 'waster'"
        )
        return int(rows[0][0])

    assert await final() == 0
    word = outcome(now(), success=False, explicit=True, started_at=None, ended_at=None, **named)
    await sender.send(batch(word, seq=2))
    await sync_to_async(derive_now)()
    assert await final() == 160
    found = await sync_to_async(telemetry.tenants_by_waste)(begin, now() + HOUR, 1000)
    (waster,) = [t for t in found if t.tenant == "waster"]
    assert (waster.attempts, waster.wasted_gbp, waster.wasted_final_unpriced) == (1, 0, 1)


def nodes_of(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Every node of a plan that Postgres explains as JSON."""
    return [plan, *(n for child in plan.get("Plans", []) for n in nodes_of(child))]


START = (datetime.now(UTC) - timedelta(days=2)).replace(hour=1, minute=0, second=0, microsecond=0)
RANGE = {"start": START, "end": START + 2 * HOUR}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("name", "values", "indexes"),
    [
        (
            "circuit_series",
            RANGE | {"circuit": 1, "step": MINUTE, "fives": True},
            {
                *("rollup_circuit_five_minutes_pkey", "rollup_circuit_minute_pkey"),
                *("rollup_minute_by_time", "rollup_minute_part_by_time"),
            },
        ),
        (
            "open_intervals",
            RANGE | {"circuit": 1, "since": START - HOUR},
            {"transition_{day}_circuit_id_occurred_at_idx"},
        ),
        (
            "task_trace",
            RANGE | {"gateway": 1, "tenant": "a", "task": "t"},
            {f"{t}_{{day}}_gateway_id_tenant_task_idx" for t in ("attempt", "refusal", "outcome")},
        ),
        (
            "newest_failures",
            RANGE | {"circuit": 1, "limit": 50},
            {"attempt_{day}_circuit_id_occurred_at_idx"},
        ),
        ("tenants_by_waste", RANGE | {"limit": 20}, {"rollup_hour_tenant_pkey"}),
        (
            "lost_telemetry",
            {"since": START},
            {"batch_gap_pkey", "dead_letter_of_instance", "receipt_of_faulty_clocks"},
        ),
        (
            "dead_letters",
            {"since": START, "until": START + HOUR, "gateway": None, "limit": 10},
            {"dead_letter_by_age"},
        ),
        (
            "wall_now",
            {"unused": 0},
            {"rollup_minute_by_time", "circuit_state_instance_id_3f8c11f3"},
        ),
    ],
)
def test_plans_prune_days_and_use_their_indexes(
    name: str, values: dict[str, Any], indexes: set[str]
) -> None:
    statement = telemetry.named_sql(telemetry._SQL / f"{name}.sql")
    with connection.cursor() as cursor:
        days = (START.date() - timedelta(days=3), START.date() + timedelta(days=3))
        cursor.execute("SELECT switchgear_ensure_days(%s, %s)", days)
        # On an empty table any index is as good as another.
        cursor.execute(
            "INSERT INTO rollup_circuit_minute (circuit_id, minute)"
            " SELECT -c, %s + m * interval '1 minute'"
            " FROM generate_series(1, 40) c, generate_series(1, 300) m ON CONFLICT DO NOTHING",
            [START],
        )
        cursor.execute(
            "INSERT INTO rollup_minute (gateway_id, circuit_id, minute)"
            " SELECT -g, -c, %s + m * interval '1 minute' FROM generate_series(1, 10) g,"
            " generate_series(1, 10) c, generate_series(1, 300) m",
            [START],
        )
        cursor.execute("ANALYZE rollup_circuit_minute, rollup_circuit_five_minutes, rollup_minute")
        cursor.execute("SET enable_seqscan = off")
        try:
            cursor.execute(f"EXPLAIN (FORMAT JSON) {statement}", values)
            nodes = nodes_of(cursor.fetchone()[0][0]["Plan"])
        finally:
            cursor.execute("RESET enable_seqscan")
            cursor.execute("DELETE FROM rollup_circuit_minute WHERE circuit_id < 0")
            cursor.execute("DELETE FROM rollup_minute WHERE circuit_id < 0")
    used = {node["Index Name"] for node in nodes if "Index Name" in node}
    assert {index.format(day=f"{START:%Y%m%d}") for index in indexes} <= used
    touched = {n["Relation Name"] for n in nodes if "Relation Name" in n}
    of_days = {t for t in touched if t[-8:].isdigit()}
    assert {t[-8:] for t in of_days} <= {f"{START:%Y%m%d}"}


@pytest.mark.django_db(transaction=True)
def test_the_trail_looks_into_its_own_day_alone() -> None:
    statement = telemetry.named_sql(telemetry._SQL / "wall_trail.sql")
    with connection.cursor() as cursor:
        days = (START.date() - timedelta(days=3), START.date() + timedelta(days=3))
        cursor.execute("SELECT switchgear_ensure_days(%s, %s)", days)
        cursor.execute(
            "INSERT INTO rollup_minute (gateway_id, circuit_id, minute, attempts, failed)"
            " SELECT -1, -c, %s + m * interval '1 minute', 2, 1"
            " FROM generate_series(1, 40) c, generate_series(1, 300) m",
            [START],
        )
        # Of the past beyond the watermark minutes come derived, here of every breaker's own.
        cursor.execute("UPDATE rollup_watermark SET upto = %s WHERE grain = 'minute'", [START])
        cursor.execute(
            "INSERT INTO transition SELECT -1, -1, g %% 50, gen_random_uuid(),"
            " %s + g * interval '1 second', now(), g, 'Closed', 'Open', '', 'Auto', 0, 0, 0, 0,"
            " NULL, 0 FROM generate_series(1, 20000) g",
            [START],
        )
        cursor.execute("ANALYZE rollup_minute, transition")
        cursor.execute("SET enable_seqscan = off")
        try:
            cursor.execute(
                f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}",
                wall.trail_values(START + 2 * HOUR - MINUTE),
            )
            nodes = nodes_of(cursor.fetchone()[0][0]["Plan"])
        finally:
            cursor.execute("RESET enable_seqscan")
            cursor.execute("DELETE FROM rollup_minute WHERE gateway_id = -1")
            cursor.execute("DELETE FROM transition WHERE gateway_id = -1")
            cursor.execute("UPDATE rollup_watermark SET upto = date_trunc('minute', now())")
    # The moment is known when it runs and not before, so the days are pruned as it runs.
    ran = [node for node in nodes if node["Actual Loops"]]
    used = {node["Index Name"] for node in ran if "Index Name" in node}
    day = f"{START:%Y%m%d}"
    assert {
        "rollup_circuit_minute_by_time",
        f"attempt_{day}_circuit_id_occurred_at_idx",
    } <= used
    # Both know the time: the second by skipping from circuit to circuit.
    assert used & {
        f"transition_{day}_occurred_at_idx",
        f"transition_{day}_circuit_id_occurred_at_idx",
    }
    touched = {node["Relation Name"] for node in ran if "Relation Name" in node}
    assert {name[-8:] for name in touched if name[-8:].isdigit()} == {day}
