"""What ingest folds, in any order, batching and repetition, is what a rebuild makes of the rows."""

import random
import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import StringIO
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from controlplane.ingest.derive import derive
from controlplane.models import Circuit
from controlplane.models.pool import close_pool
from controlplane.reports import telemetry
from tests.controlplane.ingest.batches import attempt, batch, outcome, refusal, transition
from tests.controlplane.ingest.conftest import Sender, new_sender
from tests.controlplane.ingest.test_cost_at_ingest import add_prices
from tests.telemetry import forget_telemetry

BEGIN = (datetime.now(UTC) - timedelta(hours=3)).replace(minute=0, second=0, microsecond=0)
DERIVED = {
    "rollup_minute": "*",
    "rollup_minute_request": "*",
    "rollup_hour": "*",
    # Parts are one for each commit; their sums are what counts.
    "(SELECT gateway_id, circuit_id, minute, switchgear_compact("
    " array_agg(l.bin)) AS latency FROM rollup_minute_part, unnest(latency) AS l(bin)"
    " GROUP BY 1, 2, 3) AS latencies": "*",
    "(SELECT gateway_id, circuit_id, minute, switchgear_compact("
    " array_agg(l.bin)) AS first_byte FROM rollup_minute_part, unnest(first_byte) AS l(bin)"
    " GROUP BY 1, 2, 3) AS first_bytes": "*",
    "task": "*",
    "circuit_state": "instance_id, circuit_id, number, state, since, cause, mode, counters,"
    " next_probe_at, stuck",
}

# Requests and tasks that the events of a history share.
REQUESTS = [str(uuid.UUID(int=n)) for n in range(1, 5)]
TASKS = [None, "t-1", "t-2"]
TENANTS = ["acme", "zeta"]

# Two hours, of which a few minutes: each is derived again after every half.
moments = st.builds(
    lambda minute, ms: BEGIN + timedelta(minutes=minute, milliseconds=ms),
    st.sampled_from([0, 1, 58, 59, 60, 61, 119]),
    st.integers(0, 59_999),
)
tokens = st.none() | st.fixed_dictionaries(
    {"input": st.integers(0, 10**6), "output": st.none() | st.integers(0, 10**5)}
)
attempts = st.builds(
    attempt,
    moments,
    model=st.sampled_from(["gpt-4o", "unpriced"]),
    request=st.sampled_from(REQUESTS),
    task=st.sampled_from(TASKS),
    tenant=st.sampled_from(TENANTS),
    role=st.sampled_from(["first", "retry", "fallback", "redelivery"]),
    verdict=st.sampled_from(["success", "retryable", "partial", "local_fault"]),
    counts_against_breaker=st.booleans(),
    served=st.booleans(),
    tokens=tokens,
    billing=st.sampled_from(["billed", "not_billed", "unknown"]),
    ended_ms=st.none() | st.integers(0, 10**6),
    first_byte_ms=st.none() | st.integers(0, 10**4),
    rerouted=st.booleans(),
)
refusals = st.builds(
    refusal,
    moments,
    gate=st.sampled_from(["breaker", "override", "budget", "rate", "key", "cost"]),
    would_have=st.booleans(),
)
outcomes = st.builds(
    outcome,
    moments,
    request=st.none() | st.sampled_from(REQUESTS),
    task=st.sampled_from(TASKS),
    tenant=st.sampled_from(TENANTS),
    route=st.sampled_from(["", "chat", "Batch", "batch"]),
    success=st.booleans(),
    explicit=st.booleans(),
    started_at=st.none() | moments.map(datetime.isoformat),
    ended_at=st.none() | moments.map(datetime.isoformat),
    latency_ms=st.none() | st.integers(0, 10**6),
    waited_ms=st.integers(0, 10**6),
)
transitions = st.lists(
    st.tuples(moments, st.sampled_from(["Open", "HalfOpen", "Closed"])), max_size=6
).map(lambda steps: [transition(n, to, at) for n, (at, to) in enumerate(sorted(steps), 1)])
histories = st.tuples(
    st.lists(attempts | refusals | outcomes, min_size=1, max_size=25), transitions
).map(lambda parts: [*parts[0], *parts[1]])


def rebatched(events: list[dict[str, Any]], chance: random.Random) -> list[dict[str, Any]]:
    """The same events, some of them again, in another order and other batches, some twice."""
    given = events + chance.sample(events, chance.randint(0, len(events)))
    chance.shuffle(given)
    batches = []
    while given:
        size = chance.randint(1, 8)
        head, given = given[:size], given[size:]
        batches.append(batch(*head, seq=len(batches) + 1))
    batches += chance.sample(batches, chance.randint(0, len(batches)))
    chance.shuffle(batches)
    return batches


def derived(sender: Sender) -> dict[str, Any]:
    async def read() -> dict[str, Any]:
        return {t: await sender.rows(t, columns, "2, 3") for t, columns in DERIVED.items()}

    return async_to_sync(read)()


def send_all(sender: Sender, batches: list[dict[str, Any]]) -> None:
    """Send, deriving what is finished after each half."""

    async def run(part: list[dict[str, Any]]) -> None:
        try:
            for one in part:
                await sender.send(one)
        finally:
            await close_pool()

    half = len(batches) // 2
    for part in (batches[:half], batches[half:]):
        async_to_sync(run)(part)
        derive_all()


def derive_all() -> None:
    connection.ensure_connection()
    derive(connection.connection, datetime.now(UTC), most=10**6)


def of_all_gateways() -> list[list[tuple[Any, ...]]]:
    """What is derived without regard to the gateway."""
    found = []
    with connection.cursor() as cursor:
        for table, at, order in (
            ("rollup_circuit_minute", "minute", "circuit_id, minute"),
            ("rollup_circuit_five_minutes", "at", "circuit_id, at"),
            ("rollup_hour_tenant", "hour", "hour, circuit_id, tenant, route"),
            ("rollup_quarter", "at", "at"),
        ):
            # Other tests' minutes may become finished at any moment.
            cursor.execute(
                f"SELECT * FROM {table} WHERE {at} >= %s AND {at} < %s ORDER BY {order}",
                [BEGIN, BEGIN + timedelta(hours=2)],
            )
            found.append(cursor.fetchall())
    return found


def series(step: timedelta, *, of_minutes: bool) -> list[list[telemetry.Step]]:
    """Every circuit's two hours, from sums of five minutes where there are any, or from minutes."""
    end = BEGIN + timedelta(hours=2)
    with pytest.MonkeyPatch.context() as patch:
        if of_minutes:
            patch.setattr(telemetry, "is_of_fives", lambda *_: False)
        ids = Circuit.objects.order_by("pk").values_list("pk", flat=True)
        return [telemetry.circuit_series(pk, BEGIN, end, step) for pk in ids]


def without_identity(found: dict[str, Any]) -> dict[str, Any]:
    """Without the ids of gateway and instance, so that two gateways can be compared."""
    return {table: [row[1:] for row in rows] for table, rows in found.items()}


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("quiet")
def test_rebuilt_is_folded() -> None:
    forget_telemetry()
    add_prices()

    @hypothesis_settings(
        max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    @given(histories, st.randoms(use_true_random=False))
    def check(events: list[dict[str, Any]], chance: random.Random) -> None:
        straight, shuffled = new_sender(), new_sender()
        send_all(straight, [batch(*events)])
        send_all(shuffled, rebatched(events, chance))
        folded = derived(shuffled)
        assert without_identity(folded) == without_identity(derived(straight))
        together = of_all_gateways()
        for minutes in (5, 60, 120):
            step = timedelta(minutes=minutes)
            assert series(step, of_minutes=False) == series(step, of_minutes=True)
        spoil(shuffled)
        call_command("rebuild", "--from", BEGIN.isoformat(), stdout=StringIO())
        assert derived(shuffled) == folded
        assert of_all_gateways() == together

    check()


def spoil(sender: Sender) -> None:
    """Lose and falsify what is derived."""

    async def run() -> None:
        for statement in (
            "UPDATE rollup_minute SET attempts = attempts + 7, cost_gbp = 1 WHERE gateway_id = %s",
            "DELETE FROM rollup_minute_part WHERE gateway_id = %s",
            "UPDATE rollup_minute_request SET latency = '{}' WHERE gateway_id = %s",
            "DELETE FROM task WHERE gateway_id = %s AND task = 't-1'",
            "UPDATE task SET implicit_success = NOT implicit_success WHERE gateway_id = %s",
            "DELETE FROM circuit_state WHERE gateway_id = %s",
            "UPDATE rollup_hour SET attempts = attempts + 1 WHERE gateway_id = %s",
            "UPDATE rollup_circuit_minute SET attempts = attempts + %s",
            "UPDATE rollup_circuit_five_minutes SET attempts = attempts + %s",
            "UPDATE rollup_hour_tenant SET cost_gbp = cost_gbp + %s",
            "UPDATE rollup_quarter SET attempts = attempts + %s",
        ):
            await sender.query(statement, [sender.gateway_id])

    async_to_sync(run)()


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """No notifications: their task would outlive the loops that this test makes and drops."""

    async def nobody() -> None:
        return None

    monkeypatch.setattr("controlplane.ingest.commit.observed_changed", nobody)


async def test_a_report_that_is_ahead_of_the_transitions_is_left(sender: Sender) -> None:
    await sender.send(batch(transition(1, "Open", BEGIN)))
    await sender.query(
        "UPDATE circuit_state SET number = 5, state = 'Closed' WHERE gateway_id = %s",
        [sender.gateway_id],
    )
    await sync_to_async(call_command)("rebuild", "--from", BEGIN.isoformat(), stdout=StringIO())
    assert await sender.rows("circuit_state", "number, state") == [(5, "Closed")]


async def test_it_says_what_it_cannot_rebuild(sender: Sender) -> None:
    kept_from = datetime.now(UTC) - timedelta(days=settings.RAW_RETENTION_DAYS)
    await sender.send(batch(attempt(kept_from + timedelta(hours=3))))
    said = StringIO()

    async def run(start: datetime, end: datetime) -> None:
        times = ("--from", start.isoformat(), "--to", end.isoformat())
        await sync_to_async(call_command)("rebuild", *times, stdout=said)

    await run(kept_from - timedelta(days=9), kept_from + timedelta(hours=5))
    assert "cannot be rebuilt" in said.getvalue()
    assert await sender.rows("rollup_minute", "attempts, cost_gbp") == [(1, Decimal(0))]
    with pytest.raises(CommandError, match="raw events are kept from"):
        await run(kept_from - timedelta(days=9), kept_from - timedelta(days=8))
