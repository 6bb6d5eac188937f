"""The prices that a gateway needs for its cost ceilings travel in its snapshot, and only then."""

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from controlplane.actions import budgets, gateways
from controlplane.actions.actor import SYSTEM, Actor
from controlplane.actions.ceiling_prices import refresh
from controlplane.errors import InvalidInput
from controlplane.models import (
    AuditEntry,
    FxRate,
    Gateway,
    GatewayConfig,
    Price,
    Revision,
    Role,
    Route,
)
from tests import builders

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 30, 3, 10, tzinfo=UTC)
ANN = Actor("ann", "person", Role.OPERATOR, "192.0.2.1")


def price(model: str, kind: str, amount: str, currency: str = "USD", days: int = -30) -> None:
    Price.objects.create(
        provider="openai",
        model=model,
        token_kind=kind,
        currency=currency,
        per_million=Decimal(amount),
        valid_from=NOW + timedelta(days=days),
        source="a price list",
        created_at=NOW,
        created_by="ann",
    )


def rate(day: date, gbp: str) -> None:
    FxRate.objects.create(
        currency="USD", day=day, gbp=Decimal(gbp), source="a bank", created_at=NOW, created_by="ann"
    )


@pytest.fixture(autouse=True)
def rows() -> None:
    gateways.create(actor=SYSTEM, name="eu-1", now=NOW)
    for kind, amount in (("input", "2.5"), ("output", "10")):
        price("gpt-4o", kind, amount)
    rate(NOW.date(), "0.8")
    spec = {"targets": [{"provider": "openai", "model": "gpt-4o", "region": "eu"}]}
    made = {"generation": 1, "resource_version": 1, "created_at": NOW, "updated_at": NOW}
    Route.objects.create(name="assistant", spec=spec, **made)


def ceiling(amount: str | None = "5.00") -> Any:
    return budgets.create(
        actor=ANN, name="capped", level="tenant", spec={"max_cost_gbp": amount}, now=NOW
    )


def prices() -> list[dict[str, str]]:
    return json.loads(GatewayConfig.objects.get(gateway__name="eu-1").spec)["prices"]


def test_a_ceiling_brings_the_prices_of_the_routes_targets_in_pounds() -> None:
    assert prices() == []
    ceiling()
    assert prices() == [
        {"provider": "openai", "model": "gpt-4o", "input_gbp": "2", "output_gbp": "8"}
    ]
    config = GatewayConfig.objects.get(gateway__name="eu-1")
    assert config.items == 1 + 1 + 1  # budget, route, price


def test_without_a_ceiling_no_price_makes_a_generation() -> None:
    ceiling(None)
    before = GatewayConfig.objects.get(gateway__name="eu-1").generation
    rate((NOW + timedelta(days=1)).date(), "0.9")
    assert refresh(NOW + timedelta(days=1)) == []
    assert prices() == []
    assert GatewayConfig.objects.get(gateway__name="eu-1").generation == before


def test_a_price_takes_effect_on_its_day_and_only_then() -> None:
    ceiling()
    price("gpt-4o", "input", "5", days=2)
    revision = Revision.objects.get(id=1).value
    assert refresh(NOW + timedelta(days=1)) == []
    assert Revision.objects.get(id=1).value == revision
    assert refresh(NOW + timedelta(days=2)) == ["eu-1"]
    assert prices()[0]["input_gbp"] == "4"
    assert Revision.objects.get(id=1).value == revision + 1
    assert AuditEntry.objects.latest("id").object_kind == "PriceBook"
    assert refresh(NOW + timedelta(days=2)) == []


def test_a_target_that_only_the_gateways_file_knows_is_priced_once_it_is_reported() -> None:
    ceiling()
    price("gpt-4.1", "input", "1.25")
    running = builders.instance(Gateway.objects.get(name="eu-1"))
    builders.circuit_state(running, builders.circuit("openai", "gpt-4.1", ""))
    assert refresh(NOW) == ["eu-1"]
    assert {"provider": "openai", "model": "gpt-4.1", "input_gbp": "1", "output_gbp": "0"} in (
        prices()
    )


def test_a_target_without_a_price_in_pounds_has_none() -> None:
    price("gpt-4o", "output", "9", currency="CHF", days=-1)
    ceiling()
    assert prices() == []


@pytest.mark.parametrize("amount", ["free", "-1", "1e99", 5, "1" * 40, ""])
def test_what_is_no_amount_is_refused_with_its_field(amount: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        ceiling(amount)
    assert [error["field"] for error in refused.value.errors] == ["max_cost_gbp"]
