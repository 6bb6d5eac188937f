"""The wall's two reads give the numbers that were stored."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from controlplane.reports import wall, wall_rows
from tests import builders

pytestmark = pytest.mark.django_db


def test_reads_an_empty_database() -> None:
    found = wall.read()
    assert found.now.circuits == []
    assert found.trail.minutes == []
    assert found.trail.peak is None


def test_reads_states_of_present_instances_alone() -> None:
    gateway = builders.gateway()
    circuit = builders.circuit()
    here = builders.instance(gateway)
    silent = builders.instance(gateway, last_seen_at=builders.ago(120))
    gone = builders.instance(gateway, last_seen_at=builders.ago(3700))
    farewell = builders.instance(gateway, goodbye_at=builders.now())
    for one in (here, silent, gone, farewell):
        builders.circuit_state(one, circuit, "Open", counters={"calls": 9, "failures": 7})
    now = wall.read().now
    assert {row.id for row in now.instances} == {here.pk, silent.pk}
    assert {row.instance_id for row in now.states} == {here.pk, silent.pk}
    assert {(row.calls, row.failures, row.state) for row in now.states} == {(9, 7, "Open")}


def test_an_override_whose_time_has_passed_is_not_read() -> None:
    kept = builders.override(provider="openai")
    builders.override(provider="mistral", created_at=builders.ago(900), expires_at=builders.ago(1))
    builders.override(provider="google", ended_at=builders.now())
    assert [row.name for row in wall.read().now.overrides] == [kept.name]


def test_sums_minutes_over_gateways_exactly() -> None:
    circuit = builders.circuit()
    minute = builders.now()
    for name in ("a", "b"):
        builders.rollup(
            builders.gateway(name), circuit, minute, attempts=10, failed=3,
            cost_gbp=Decimal("0.1"), wasted_gbp=Decimal("0.000000000001"),
        )  # fmt: skip
    [row] = wall.read().trail.minutes
    assert (row.attempts, row.failed) == (20, 6)
    assert row.cost_gbp == Decimal("0.2")
    assert row.wasted_gbp == Decimal("0.000000000002")


def test_the_version_rises_when_somebody_commits(transactional_db: None) -> None:
    first = wall.read().now.version
    builders.gateway()
    assert wall.read().now.version > first


def test_the_sliding_minute_weighs_the_minute_before() -> None:
    running = builders.now().replace(second=0, microsecond=0)
    rows = [
        wall_rows.MinuteRow(1, minute, 60, 60, 6, 30, 0, 0, 0, Decimal(3), Decimal(1), 0)
        for minute in (running - timedelta(minutes=1), running)
    ]
    rates = wall.sliding_minute(rows, running + timedelta(seconds=45))
    assert rates.attempts == pytest.approx(60 + 15)
    assert rates.cost_gbp == Decimal("3.75")
    assert rates.failure_ratio == pytest.approx(0.5)
    assert rates.retry_ratio == pytest.approx(0.1)


def test_the_peak_is_the_worst_minute_of_the_hour() -> None:
    gateway, circuit = builders.gateway(), builders.circuit()
    for minutes, amount in ((5, "1.5"), (20, "4.25"), (40, "2")):
        builders.rollup(gateway, circuit, builders.ago(60 * minutes), wasted_gbp=Decimal(amount))
    peak = wall.read().trail.peak
    assert peak is not None
    assert peak.wasted_gbp == Decimal("4.25")
