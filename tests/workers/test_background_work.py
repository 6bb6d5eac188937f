"""The tasks do what their names say, and Celery finds them the way `make up` starts it."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connection

from controlplane.ingest.rows import TABLES
from workers import tasks
from workers.schedule import SCHEDULE

ROOT = Path(__file__).resolve().parents[2]
RETENTION = timedelta(days=settings.RAW_RETENTION_DAYS)


def now() -> datetime:
    return datetime.now(UTC)


def query(statement: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchall() if cursor.description else []


def partitions_of(table: str) -> set[str]:
    rows = query(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass", [table]
    )
    return {row[0] for row in rows}


@pytest.mark.django_db(transaction=True)
def test_days_are_made_ahead_and_dropped_only_when_wholly_expired() -> None:
    expired, kept = (now() - RETENTION - timedelta(days=1)).date(), (now() - RETENTION).date()
    tasks.partitions()  # days that other tests have left
    query("SELECT switchgear_ensure_days(%s, %s)", [expired, kept])
    dropped = tasks.partitions()
    assert dropped == sorted(f"{table}_{expired:%Y%m%d}" for table in TABLES)
    for table in TABLES:
        days = partitions_of(table)
        assert f"{table}_{kept:%Y%m%d}" in days
        for ahead in range(-1, 4):
            assert f"{table}_{now() + timedelta(days=ahead):%Y%m%d}" in days
    assert tasks.partitions() == []


@pytest.mark.django_db(transaction=True)
def test_a_detach_that_was_cut_short_is_finished() -> None:
    expired = (now() - RETENTION - timedelta(days=2)).date()
    query("SELECT switchgear_ensure_days(%s, %s)", [expired, expired])
    part = f"refusal_{expired:%Y%m%d}"
    query(f"ALTER TABLE refusal DETACH PARTITION {part}")
    assert part in tasks.partitions()
    assert query("SELECT to_regclass(%s)", [part]) == [(None,)]


@pytest.mark.django_db(transaction=True)
def test_retention_deletes_what_is_past_its_time() -> None:
    query("DELETE FROM rollup_dirty")  # whatever other tests left
    tasks.retention()
    for age in (timedelta(days=1), RETENTION + timedelta(days=3)):
        at = now() - age
        query("INSERT INTO receipt VALUES (-1, %s, 1, %s, %s, 0, 0, 0, 0)", [age.days, at, at])
        query(
            "INSERT INTO dead_letter"
            " (gateway_id, instance_id, seq, index, received_at, reason, body)"
            " VALUES (-1, 1, 1, 0, %s, '', '')",
            [at],
        )
        query("INSERT INTO rollup_minute (gateway_id, circuit_id, minute) VALUES (-1, 1, %s)", [at])
        query("INSERT INTO rollup_minute_part VALUES (-1, 1, %s, '{}', '{}')", [at])
        query("INSERT INTO rollup_minute_request VALUES (-1, %s)", [at])
        query("INSERT INTO rollup_circuit_minute (circuit_id, minute) VALUES (-1, %s)", [at])
    for age in (timedelta(days=399), timedelta(days=401)):
        query("INSERT INTO rollup_hour_rate VALUES (%s, -1)", [now() - age])
    deleted = tasks.retention()
    assert {table: deleted[table] for table in deleted if deleted[table]} == {
        "receipt": 1,
        "dead_letter": 1,
        "rollup_minute": 1,
        "rollup_minute_part": 1,
        "rollup_minute_request": 1,
        "rollup_circuit_minute": 1,
        "rollup_hour_rate": 1,
    }
    keys = {
        "batch_gap": ("instance_id = -1", 0),
        "rollup_circuit_minute": ("circuit_id = -1", 1),
        "rollup_hour": ("circuit_id = -1", 0),
        "rollup_hour_tenant": ("circuit_id = -1", 0),
        "rollup_hour_split": ("key = '-1'", 0),
        "rollup_hour_rate": ("fx_id = -1", 1),
    }
    for table in (*keys, "receipt", "dead_letter", "rollup_minute", "rollup_minute_request"):
        of_test, left = keys.get(table, ("gateway_id = -1", 1))
        assert len(query(f"DELETE FROM {table} WHERE {of_test} RETURNING 1")) == left


@pytest.mark.django_db(transaction=True)
def test_a_minute_that_is_not_derived_is_kept() -> None:
    query("DELETE FROM rollup_dirty")
    tasks.retention()
    at = (now() - timedelta(days=3)).replace(second=0, microsecond=0)
    query("INSERT INTO rollup_minute (gateway_id, circuit_id, minute) VALUES (-1, 1, %s)", [at])
    query("INSERT INTO rollup_dirty VALUES ('minute', %s)", [at])
    assert tasks.retention()["rollup_minute"] == 0
    query("DELETE FROM rollup_dirty WHERE at = %s", [at])
    assert tasks.retention()["rollup_minute"] == 1


@pytest.mark.django_db(transaction=True)
def test_the_heartbeat_moves() -> None:
    tasks.heartbeat()
    ((first,),) = query("SELECT at FROM heartbeat WHERE name = 'worker'")
    tasks.heartbeat()
    ((second,),) = query("SELECT at FROM heartbeat WHERE name = 'worker'")
    assert second > first


def test_celery_finds_every_scheduled_task() -> None:
    script = (
        "import json; from celery.app.utils import find_app; app = find_app('workers');"
        "app.loader.import_default_modules();"
        "print(json.dumps([sorted(app.tasks), app.conf.task_acks_late, app.conf.timezone]))"
    )
    out = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=os.environ | {"DJANGO_SETTINGS_MODULE": "controlplane.settings"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    names, acks_late, zone = json.loads(out)
    assert {entry["task"] for entry in SCHEDULE.values()} <= set(names)
    assert (acks_late, zone) == (True, "UTC")
