"""Each stored attempt says what it cost, by which price and rate, or why that is not known."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from controlplane.ingest.costs import forget_prices
from controlplane.models import FxRate, Price
from tests.controlplane.ingest.batches import attempt, batch, now
from tests.controlplane.ingest.conftest import Sender

COLUMNS = "cost_native, currency, cost_gbp, cost_status, price_id, fx_id"


def add_prices() -> tuple[int, int]:
    """GPT-4o in dollars, at 0.75 pounds; ids of the output price and of the rate."""
    common: dict[str, Any] = {"source": "tests", "created_at": now(), "created_by": "tests"}
    for kind, amount in {"input": "2.50", "cached_read": "1.25", "output": "10"}.items():
        price = Price.objects.create(
            provider="openai",
            model="gpt-4o",
            token_kind=kind,
            currency="USD",
            per_million=Decimal(amount),
            valid_from=datetime(2026, 1, 1, tzinfo=UTC) - timedelta(days=400),
            **common,
        )
    rate = FxRate.objects.create(
        currency="USD", day=date(2020, 1, 1), gbp=Decimal("0.75"), **common
    )
    return price.pk, rate.pk


@pytest.fixture
async def priced(sender: Sender) -> tuple[int, int]:
    ids = await sync_to_async(add_prices)()
    forget_prices()
    return ids


async def test_a_priced_attempt(sender: Sender, priced: tuple[int, int]) -> None:
    await sender.send(batch(attempt(tokens={"input": 86, "cached_read": 1920, "output": 300})))
    assert await sender.rows("attempt", COLUMNS) == [
        (Decimal("0.005615"), "USD", Decimal("0.00421125"), "priced", *priced)
    ]
    assert await sender.rows("rollup_minute", "cost_gbp, wasted_gbp, unpriced") == [
        (Decimal("0.00421125"), 0, 0)
    ]


async def test_an_unpriced_served_model_is_not_priced_as_the_asked_one(
    sender: Sender, priced: tuple[int, int]
) -> None:
    await sender.send(batch(attempt(served_model="gpt-4o-mini")))
    assert await sender.rows("attempt", COLUMNS) == [(None, None, None, "unpriced", None, None)]
    assert await sender.rows("rollup_minute", "cost_gbp, unpriced") == [(0, 1)]


async def test_what_was_not_served_is_wasted(sender: Sender, priced: tuple[int, int]) -> None:
    cut = attempt(served=False, verdict="partial", billing="unknown")
    await sender.send(batch(cut, attempt(tokens=None, billing="not_billed", served=False)))
    assert await sender.rows("attempt", "cost_gbp, cost_status", "1 DESC") == [
        (Decimal("0.00050625"), "estimated"),
        (Decimal(0), "not_billed"),
    ]
    assert await sender.rows("rollup_minute", "cost_gbp, wasted_gbp, wasted_tokens, unpriced") == [
        (Decimal("0.00050625"), Decimal("0.00050625"), 160, 0)
    ]


async def test_contradicting_usage_is_marked(sender: Sender, priced: tuple[int, int]) -> None:
    usage = {"input": 0, "cached_read": 150, "output": 10, "invalid": True}
    await sender.send(batch(attempt(tokens=usage)))
    assert await sender.rows("attempt", "cost_native, cost_status") == [
        (Decimal("0.0002875"), "invalid_usage")
    ]
