"""What an attempt cost: exact, by what was served and when, and never a silent zero."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.pricing import Cost, CostStatus, PriceBook, PriceRow, RateRow

BEGUN = datetime(2026, 11, 30, 3, 10, tzinfo=UTC)


@dataclass(frozen=True)
class Tokens:
    input: int | None = 0
    cached_read: int | None = 0
    cache_write: int | None = 0
    output: int | None = 0
    estimated: bool = False
    invalid: bool = False


def price(
    number: int,
    model: str,
    kind: str,
    amount: str,
    *,
    tier: str = "",
    currency: str = "USD",
    valid_from: datetime = BEGUN - timedelta(days=100),
) -> PriceRow:
    return PriceRow(number, "openai", model, tier, kind, currency, Decimal(amount), valid_from)


BOOK = PriceBook(
    [
        price(1, "gpt-4o", "input", "2.50"),
        price(2, "gpt-4o", "cached_read", "1.25"),
        price(3, "gpt-4o", "output", "10"),
        price(4, "gpt-4o", "input", "1.25", tier="flex"),
        price(5, "gpt-4o", "output", "5", tier="flex"),
        price(6, "gpt-4o", "output", "8", valid_from=BEGUN + timedelta(days=1)),
        price(7, "embed", "input", "0.02"),
        price(8, "pounds", "input", "1", currency="GBP"),
        price(9, "crowns", "input", "1", currency="SEK"),
        price(10, "mixed", "input", "1"),
        price(11, "mixed", "output", "1", currency="EUR"),
        price(12, "named", "input", "3", tier="standard"),
        price(13, "named", "request", "5000"),
        price(14, "free", "input", "0"),
        price(15, "free", "output", "0"),
        price(16, "talk", "output", "2"),
    ],
    [
        RateRow(21, "USD", date(2026, 11, 1), Decimal("0.75")),
        RateRow(22, "USD", date(2026, 12, 1), Decimal("0.5")),
    ],
)


def cost(usage: Tokens | None, model: str = "gpt-4o", **over: object) -> Cost:
    given = {
        "provider": "openai",
        "model": model,
        "served_model": None,
        "tier": "",
        "at": BEGUN,
        "billing": "billed",
    } | over
    return BOOK.cost(usage, **given)  # type: ignore[arg-type]


def test_it_multiplies_each_kind_by_its_price_and_the_rate_of_the_day() -> None:
    found = cost(Tokens(input=86, cached_read=1920, output=300))
    assert found == Cost(
        Decimal("0.005615"),
        "USD",
        Decimal("0.00421125"),
        CostStatus.PRICED,
        price_id=3,
        fx_id=21,
        price_key="gpt-4o",
    )


@pytest.mark.parametrize(
    ("usage", "over", "status", "native"),
    [
        (Tokens(input=100), {"served_model": "unlisted"}, "unpriced", None),
        (Tokens(input=100), {"provider": "azure"}, "unpriced", None),
        (Tokens(input=100), {"at": BEGUN - timedelta(days=101)}, "unpriced", None),
        (Tokens(input=1), {"model": "mixed"}, "unpriced", None),
        (Tokens(input=1, output=1), {"model": "embed"}, "unpriced", None),
        (None, {}, "unknown", None),
        (None, {"billing": "unknown"}, "unknown", None),
        (None, {"billing": "not_billed"}, "not_billed", "0"),
        (None, {"billing": "not_billed", "model": "unlisted"}, "not_billed", "0"),
        (Tokens(input=None), {}, "unknown", None),
        (Tokens(input=5, output=None), {}, "unknown", None),
        (Tokens(input=1_000_000, output=None), {"model": "embed"}, "priced", "0.02"),
        (Tokens(input=1_000_000, estimated=True), {}, "estimated", "2.5"),
        (Tokens(input=1_000_000), {"billing": "unknown"}, "estimated", "2.5"),
        (Tokens(cached_read=150, output=10, invalid=True), {}, "invalid_usage", "0.0002875"),
        (Tokens(input=100, output=None, invalid=True), {}, "invalid_usage", None),
        (Tokens(cache_write=1_000_000), {}, "estimated", "2.5"),
        (Tokens(input=1_000_000), {"tier": "flex"}, "priced", "1.25"),
        (Tokens(input=1_000_000), {"tier": "priority"}, "estimated", "2.5"),
        (Tokens(input=1_000_000), {"tier": "default"}, "priced", "2.5"),
        (Tokens(output=1_000_000), {"served_model": "gpt-4o-2024-08-06"}, "priced", "10"),
        (Tokens(output=1_000_000), {"served_model": "gpt-4o-20240806"}, "priced", "10"),
        (Tokens(output=1_000_000), {"at": BEGUN + timedelta(days=1)}, "priced", "8"),
        (Tokens(), {}, "priced", "0"),
        # the same model under another name, and the same tier
        (Tokens(output=1_000_000), {"served_model": "models/gpt-4o"}, "priced", "10"),
        (Tokens(output=1_000_000), {"served_model": "openai/gpt-4o-2024-08-06"}, "priced", "10"),
        (Tokens(output=1_000_000), {"served_model": "GPT-4o"}, "priced", "10"),
        (Tokens(output=1_000_000), {"served_model": "gpt-4o-latest"}, "priced", "10"),
        (Tokens(output=1_000_000), {"served_model": "azure/gpt-4o"}, "unpriced", None),
        (Tokens(output=1_000_000), {"served_model": "gpt-4o-mini"}, "unpriced", None),
        (Tokens(input=1_000_000), {"tier": "FLEX"}, "priced", "1.25"),
        *[(Tokens(output=1_000_000), {"tier": tier}, "priced", "10")
          for tier in ("auto", "standard", "on_demand", "Default")],
        # a tier for everybody may have its name in the book; a fee a call
        (Tokens(input=1_000_000), {"model": "named"}, "priced", "3.005"),
        (Tokens(), {"model": "named", "billing": "not_billed"}, "not_billed", "0"),
        # neither its own price nor one of input to guess by
        (Tokens(cached_read=5), {"model": "talk"}, "unpriced", None),
        (Tokens(output=1_000_000), {"model": "talk"}, "priced", "2"),
        # what contradicts itself is not made an estimate by being one too
        (Tokens(input=1_000_000, invalid=True, estimated=True), {}, "invalid_usage", "2.5"),
        # a price of 0 is a price
        (Tokens(input=7, output=9), {"model": "free"}, "priced", "0"),
        (Tokens(output=7), {"tier": "flex", "at": BEGUN + timedelta(days=2)}, "priced", "0.000035"),
    ],
)  # fmt: skip
def test_it_says_how_far_an_amount_can_be_trusted(
    usage: Tokens | None, over: dict[str, object], status: str, native: str | None
) -> None:
    found = cost(usage, **over)  # type: ignore[arg-type]
    assert found.status == status
    assert found.native == (None if native is None else Decimal(native))
    assert (found.gbp is None) == (found.native is None)


def test_pounds_need_no_rate() -> None:
    found = cost(Tokens(input=2_000_000), "pounds")
    assert (found.gbp, found.fx_id, found.status) == (Decimal(2), None, CostStatus.PRICED)


def test_a_currency_without_a_rate_is_not_told_in_pounds() -> None:
    found = cost(Tokens(input=1_000_000), "crowns")
    assert (found.native, found.gbp, found.status) == (Decimal(1), None, CostStatus.UNPRICED)


def test_a_later_day_uses_the_latest_earlier_rate() -> None:
    assert BOOK.rate("USD", BEGUN) == RateRow(21, "USD", date(2026, 11, 1), Decimal("0.75"))
    assert BOOK.rate("USD", BEGUN + timedelta(days=300)).id == 22  # type: ignore[union-attr]
    assert BOOK.rate("USD", BEGUN - timedelta(days=60)) is None


@pytest.mark.parametrize(
    ("usage", "price_id"),
    [
        (Tokens(input=1), 1),
        (Tokens(output=1, input=1), 3),
        (Tokens(cached_read=1), 2),
        (Tokens(), 3),
    ],
)
def test_it_names_the_newest_price_that_it_used(usage: Tokens, price_id: int) -> None:
    assert cost(usage).price_id == price_id


def test_a_rate_is_that_of_the_utc_day() -> None:
    late = datetime(2026, 12, 1, 0, 30, tzinfo=timezone(timedelta(hours=2)))
    assert BOOK.rate("USD", late).id == 21  # type: ignore[union-attr]


def test_names_and_currencies_that_somebody_makes_up_do_not_fill_the_memory() -> None:
    book = PriceBook(iter([price(1, "gpt-4o", "input", "1")]), iter([]))
    for i in range(10_050):
        assert book.find("openai", f"made-up-{i}", "", BEGUN) is None
        assert book.rate(f"X{i}", BEGUN) is None
    assert len(book._remembered) <= 10_000
    assert len(book._rate_of) <= 10_000


@given(
    counts=st.lists(st.integers(0, 10**9), min_size=3, max_size=3),
    parts=st.integers(2, 5),
)
def test_the_cost_of_a_whole_is_exactly_the_cost_of_its_parts(
    counts: list[int], parts: int
) -> None:
    whole = cost(Tokens(input=counts[0], cached_read=counts[1], output=counts[2]))
    sliced = [[c // parts + (i < c % parts) for c in counts] for i in range(parts)]
    pieces = [cost(Tokens(input=a, cached_read=b, output=c)).native for a, b, c in sliced]
    assert sum(p for p in pieces if p is not None) == whole.native
