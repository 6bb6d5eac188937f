"""Conditions say what was observed; Unknown where nothing was; never more than was said."""

from __future__ import annotations

from datetime import timedelta

import pytest

from controlplane.models import Override, Route
from controlplane.reports import circuits, conditions, effect, fleet, progress
from controlplane.reports.conditions import Condition
from controlplane.reports.wall import Rates
from tests import builders

pytestmark = pytest.mark.django_db


def of_circuit(rates: Rates | None = None) -> dict[str, Condition]:
    [report] = circuits.read(builders.now())
    return {one.type: one for one in conditions.of_circuit(report, rates or Rates())}


def said(one: Condition) -> tuple[str, str]:
    return one.status, one.reason


def test_of_a_circuit_that_nothing_is_known_of() -> None:
    builders.circuit()
    found = of_circuit()
    assert {name: said(one) for name, one in found.items()} == {
        "ProviderHealthy": ("Unknown", "NoAttempts"),
        "BudgetAvailable": ("Unknown", "NoFirstAttempts"),
        "TelemetryComplete": ("Unknown", "NoInstances"),
        "Stuck": ("Unknown", "NoInstances"),
    }


def test_of_a_circuit_in_trouble() -> None:
    gateway, circuit = builders.gateway(), builders.circuit()
    one, two, silent = (
        builders.instance(gateway, "a"),
        builders.instance(gateway, "b"),
        builders.instance(gateway, "c", last_seen_at=builders.ago(90)),
    )
    hand = builders.override(provider="openai")
    builders.circuit_state(one, circuit, "Open", mode="ForceOpen", override_uid=str(hand.uid))
    builders.circuit_state(two, circuit, "HalfOpen", stuck=True, keys_ready=0, keys_total=2)
    builders.circuit_state(silent, circuit)
    builders.rollup(gateway, circuit, attempts=100, firsts=90, failed=60, refused_budget=7)
    rates = effect.rates_by_circuit(builders.now())
    found = of_circuit(rates[circuits.read(builders.now())[0].name])
    assert {name: said(one) for name, one in found.items()} == {
        "Enforced": ("False", "PartiallyEnforced"),
        "ProviderHealthy": ("False", "FailureRatio"),
        "BudgetAvailable": ("False", "RetriesRefused"),
        "TelemetryComplete": ("False", "InstanceSilent"),
        "Stuck": ("True", "NoProbeAnswered"),
        "KeysReady": ("False", "KeysResting"),
    }
    assert found["Enforced"].message == "1 of 2 instances in contact enforce ovr-1; not b".replace(
        "ovr-1", hand.name
    )
    assert found["TelemetryComplete"].since == silent.last_seen_at


def test_few_attempts_say_nothing_of_a_provider() -> None:
    builders.circuit()
    assert said(of_circuit(Rates(attempts=19, failed=19))["ProviderHealthy"])[0] == "Unknown"
    assert said(of_circuit(Rates(attempts=20, failed=0.5))["ProviderHealthy"])[0] == "True"


def test_a_silent_instance_is_never_enforcing() -> None:
    gateway = builders.gateway()
    one = builders.instance(gateway, last_seen_at=builders.ago(90))
    hand = builders.override()
    builders.delivery(one, hand)
    now = builders.now()
    [found] = conditions.of_override(hand, progress.of_item(hand, now), now)
    assert said(found)[0] == "False"
    assert found.message == "0 of 1 instances enforce it; 1 unreachable"
    assert (
        conditions.enforced(
            progress.of_item(builders.override("ObserveOnly", gateway="x"), now), 1
        ).status
        == "Unknown"
    )


def test_an_override_that_ended_is_not_enforced_and_that_is_well() -> None:
    hand = builders.override(created_at=builders.ago(90), expires_at=builders.ago(1))
    now = builders.now()
    [found] = conditions.of_override(hand, progress.of_item(hand, now), now)
    assert (found.status, found.reason, found.well) == ("False", "Expired", "False")
    Override.objects.filter(pk=hand.pk).update(ended_at=now, end_cause="Released")
    hand.refresh_from_db()
    [found] = conditions.of_override(hand, progress.of_item(hand, now), now)
    assert found.reason == "Released"


def test_of_gateways() -> None:
    builders.gateway("empty")
    behind = builders.gateway("behind", generation=5)
    builders.gap(builders.instance(behind, "b", applied_generation=4), 8, 8)
    silent = builders.gateway("silent")
    builders.instance(silent, "s", last_seen_at=builders.ago(100))
    found = {
        report.row.name: {c.type: c.status for c in conditions.of_gateway(report)}
        for report in fleet.read(builders.now())
    }
    assert found == {
        "empty": {"InContact": "Unknown", "InSync": "Unknown"},
        "behind": {"InContact": "True", "InSync": "False", "TelemetryComplete": "False"},
        "silent": {"InContact": "False", "InSync": "Unknown", "TelemetryComplete": "False"},
    }


@pytest.mark.parametrize(
    ("targets", "reason"),
    [
        ([{}, {}], "Approved"),
        ([{}], "NoFallbackApproved"),
        ([{}, {"approved": False}], "NoFallbackApproved"),
        ([{}, {"approved_until": "2020-01-01T00:00:00+00:00"}], "NoFallbackApproved"),
        ([{"approved": False}], "NoTargetApproved"),
        ([], "NoTargetApproved"),
    ],
)
def test_of_a_routes_fallback(targets: list[dict[str, object]], reason: str) -> None:
    row = Route(name="r", spec={"targets": targets}, generation=3)
    found = conditions.of_route(row, builders.now() + timedelta(0))
    assert found.reason == reason
    assert found.status == ("True" if reason == "Approved" else "False")
