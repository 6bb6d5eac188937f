"""Rows end: boots that are long gone leave, and what is shown of the past still has its names."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection

from controlplane.ingest.departed import raw_gone_before
from controlplane.models import CircuitState, Instance, LocalOverride
from controlplane.models.registry import MOST_CIRCUITS
from controlplane.reports import wall
from tests import builders
from workers import tasks
from workers.recorded import postgres

RETENTION = timedelta(days=settings.RAW_RETENTION_DAYS)
LONG_GONE = RETENTION + timedelta(days=5)


def now() -> datetime:
    return datetime.now(UTC)


def query(statement: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchall() if cursor.description else []


def count(table: str) -> int:
    return int(query(f"SELECT count(*) FROM {table}")[0][0])


def dead_boots(gateway: int, circuit: int, boots: int, age: timedelta) -> None:
    """Pods of as many deploys, each with a breaker, a bucket and a delivery."""
    at = now() - age
    query(
        "INSERT INTO instance (gateway_id, boot_id, slot, first_seen_at, last_seen_at, version,"
        " status_seq, epoch, received_generation, applied_generation, applied_hash, config_source,"
        " items, spool, clock, capabilities, contiguous_seq, highest_seq)"
        " SELECT %s, gen_random_uuid(), 'pod-' || gen_random_uuid() || '/0', %s, %s, '', 1, '', 0,"
        " 0, '', '', '[]', '{}', '{}', '[]', 0, 0 FROM generate_series(1, %s) AS n",
        [gateway, at, at, boots],
    )
    of_dead = "FROM instance WHERE gateway_id = %s AND last_seen_at = %s"
    query(
        "INSERT INTO circuit_state (gateway_id, instance_id, circuit_id, number, state, since,"
        " cause, counters, mode, override_uid, would_be, ramp_percent, stuck, keys_note,"
        " reported_at) SELECT gateway_id, id, %s, 1, 'Closed', %s, 'Boot', '{}', 'Auto', '', '',"
        f" 100, false, '', %s {of_dead}",
        [circuit, at, at, gateway, at],
    )
    query(
        "INSERT INTO budget_state (gateway_id, instance_id, scope, balance, earned, spent, refused,"
        f" window_s, reported_at) SELECT gateway_id, id, 'system/', 1, 0, 0, 0, 60, %s {of_dead}",
        [at, gateway, at],
    )
    query(
        "INSERT INTO delivery (gateway_id, instance_id, kind, name, uid, generation, delivered_at,"
        " verdict, reason, message, field_path) SELECT gateway_id, id, 'Policy', 'p', 'u', 1, %s,"
        f" 'Applied', '', '', '' {of_dead}",
        [at, gateway, at],
    )


@pytest.mark.django_db(transaction=True)
def test_ten_thousand_dead_boots_are_gone_after_retention_and_the_wall_is_the_same() -> None:
    tasks.partitions()
    gateway, circuit = builders.gateway(), builders.circuit()
    alive = builders.instance(gateway)
    builders.circuit_state(alive, circuit)
    dead_boots(gateway.pk, circuit.pk, 10_000, LONG_GONE)
    dead_boots(gateway.pk, circuit.pk, 3, RETENTION - timedelta(days=1))
    before = wall.read_present()
    deleted = tasks.retention()
    assert deleted["instance"] == 10_000
    assert (count("instance"), count("circuit_state"), count("delivery")) == (4, 4, 3)
    after = wall.read_present()
    assert after.instances == before.instances
    assert after.states == before.states
    assert after.circuits == before.circuits
    assert tasks.retention()["instance"] == 0


@pytest.mark.django_db(transaction=True)
def test_a_boot_stays_as_long_as_something_names_it() -> None:
    tasks.partitions()
    gateway, circuit = builders.gateway(), builders.circuit()
    dead_boots(gateway.pk, circuit.pk, 4, LONG_GONE)
    ids = list(Instance.objects.order_by("id").values_list("pk", flat=True))
    late = now() - timedelta(days=1)
    # A spool that came late: its events are as old as the boot, its receipt is not.
    query(
        "INSERT INTO receipt VALUES (%s, %s, 1, %s, %s, 1, 0, 1, 0)",
        [gateway.pk, ids[0], late, late],
    )
    query(
        "INSERT INTO dead_letter (gateway_id, instance_id, seq, index, received_at, reason, body)"
        " VALUES (%s, %s, 1, 0, %s, '', '')",
        [gateway.pk, ids[1], late],
    )
    query("INSERT INTO batch_gap VALUES (%s, 1, 2, %s)", [ids[2], late])
    assert tasks.retention()["instance"] == 1
    assert set(Instance.objects.values_list("pk", flat=True)) == set(ids[:3])


@pytest.mark.django_db(transaction=True)
def test_a_day_that_is_held_back_keeps_the_names_of_its_boots() -> None:
    tasks.partitions()
    held = (now() - LONG_GONE - timedelta(days=3)).date()
    query("SELECT switchgear_ensure_days(%s, %s)", [held, held])
    try:
        gateway, circuit = builders.gateway(), builders.circuit()
        dead_boots(gateway.pk, circuit.pk, 1, LONG_GONE)
        assert raw_gone_before(postgres(), now(), RETENTION).date() == held - timedelta(days=2)
        assert tasks.retention()["instance"] == 0
    finally:
        tasks.partitions()
    assert tasks.retention()["instance"] == 1


@pytest.mark.django_db(transaction=True)
def test_what_else_grows_ends_by_its_own_rule() -> None:
    tasks.partitions()
    tasks.retention()
    gateway, circuit = builders.gateway(), builders.circuit()
    alive = builders.instance(gateway)
    old, lately = now() - LONG_GONE, now() - timedelta(hours=1)
    for task, at in (("old", old), ("new", lately)):
        for number in range(8):  # in every part of the table
            query(
                "INSERT INTO task (gateway_id, tenant, task, first_started_at, last_ended_at,"
                " implicit_at, implicit_success) VALUES (%s, %s, %s, %s, %s, %s, true)",
                [gateway.pk, f"t{number}", task, at, at, at],
            )
    for scope, at in (("tenant/old", old), ("tenant/new", lately)):
        builders.budget_state(alive, scope, reported_at=at)
    for name, lifted in (("ended", old), ("lately", lately), ("held", None)):
        query(
            "INSERT INTO delivery (gateway_id, instance_id, kind, name, uid, generation,"
            " delivered_at, verdict, reason, message, field_path, lifted_at)"
            " VALUES (%s, %s, 'Override', 'o', %s, 1, %s, 'Applied', '', '', '', %s)",
            [gateway.pk, alive.pk, name, old, lifted],
        )
    for bucket, at in (("old", old), ("new", lately)):
        query("INSERT INTO sign_in_tries VALUES (%s, 1, %s)", [bucket, at])
        query("INSERT INTO django_session VALUES (%s, '', %s)", [bucket, at + timedelta(hours=2)])
    deleted = {table: number for table, number in tasks.retention().items() if number}
    tasks_deleted = sum(n for table, n in deleted.items() if table.startswith("task_p"))
    assert (tasks_deleted, count("task")) == (8, 8)
    assert deleted["budget_state"] == deleted["delivery"] == 1
    assert deleted["sign_in_tries"] == deleted["django_session"] == 1
    assert query("SELECT scope FROM budget_state") == [("tenant/new",)]
    assert query("SELECT uid FROM delivery ORDER BY 1") == [("held",), ("lately",)]
    assert count("circuit") == 1
    assert circuit.pk


@pytest.mark.django_db(transaction=True)
def test_records_of_the_past_end_and_the_present_ones_stay() -> None:
    tasks.partitions()
    tasks.retention()
    gateway = builders.gateway(generation=3)
    old, lately = now() - LONG_GONE, now() - timedelta(hours=1)
    query("DELETE FROM config_generation WHERE gateway_id = %s", [gateway.pk])
    for generation, at in ((1, old), (2, old), (3, old)):
        query(
            "INSERT INTO config_generation (gateway_id, generation, hash, revision, compiled_at)"
            " VALUES (%s, %s, 'h', 1, %s)",
            [gateway.pk, generation, at],
        )
    ended = builders.local_override(gateway)
    LocalOverride.objects.filter(pk=ended.pk).update(ended_at=now() - timedelta(days=401))
    builders.local_override(gateway)
    query("DELETE FROM epoch_claim")
    for number, at in ((-1, old), (-2, lately)):
        query(
            "INSERT INTO epoch_claim (gateway_id, mints) VALUES (%s, ARRAY[%s]::timestamptz[])",
            [number, at],
        )
    dropped = query("SELECT max(upto) FROM raw_dropped")[0][0]
    query("INSERT INTO raw_dropped VALUES ('2020-01-01'), ('2020-01-02')")
    deleted = {table: number for table, number in tasks.retention().items() if number}
    assert deleted["config_generation"] == 2
    assert query("SELECT generation FROM config_generation") == [(3,)]
    assert deleted["local_override"] == LocalOverride.objects.count() == 1
    assert deleted["epoch_claim"] == 1
    assert deleted["raw_dropped"] == (2 if dropped else 1)
    if dropped:
        assert query("SELECT upto FROM raw_dropped") == [(dropped,)]
    else:
        query("DELETE FROM raw_dropped")
    query("DELETE FROM epoch_claim")


@pytest.mark.django_db(transaction=True)
def test_a_gateway_gets_back_the_places_of_names_that_it_uses_no_more() -> None:
    """At 500 names every new model was ``(other)`` for ever."""
    tasks.partitions()
    full, few = builders.gateway("full"), builders.gateway("few")
    old = now() - LONG_GONE
    query(
        "INSERT INTO circuit (provider, model, region, first_seen_at)"
        " SELECT 'p', 'm' || n, '', %s FROM generate_series(1, %s) AS n",
        [old, MOST_CIRCUITS],
    )
    query("INSERT INTO gateway_circuit SELECT %s, id FROM circuit", [full.pk])
    query("INSERT INTO gateway_circuit SELECT %s, id FROM circuit LIMIT 10", [few.pk])
    ((used,), (broken,)) = query("SELECT id FROM circuit ORDER BY id LIMIT 2")
    columns = [
        row[0]
        for row in query(
            "SELECT column_name FROM information_schema.columns WHERE table_name = 'rollup_hour'"
            " AND table_schema = current_schema() AND column_name NOT IN"
            " ('gateway_id', 'circuit_id', 'hour') ORDER BY ordinal_position"
        )
    ]
    values = ["'{}'" if c in ("latency", "first_byte", "request_latency", "waited") else "0"
              for c in columns]  # fmt: skip
    query(
        f"INSERT INTO rollup_hour (gateway_id, circuit_id, hour, {', '.join(columns)})"
        f" VALUES (%s, %s, %s, {', '.join(values)})",
        [full.pk, used, now().replace(minute=0, second=0, microsecond=0) - timedelta(days=3)],
    )
    try:
        state = builders.instance(full)
        CircuitState.objects.create(
            gateway=full, instance=state, circuit_id=broken, state="Open", since=now(),
            reported_at=now(),
        )  # fmt: skip
        assert tasks.retention()["gateway_circuit"] == MOST_CIRCUITS - 2
        left = query("SELECT circuit_id FROM gateway_circuit WHERE gateway_id = %s", [full.pk])
        assert {row[0] for row in left} == {used, broken}
        assert count(f"gateway_circuit WHERE gateway_id = {few.pk}") == 10
    finally:
        query("DELETE FROM rollup_hour WHERE gateway_id = %s", [full.pk])
        query("DELETE FROM gateway_circuit")
