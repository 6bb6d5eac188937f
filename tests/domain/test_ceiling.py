"""Ceilings in pounds: exact, asked before each attempt, settled after it."""

from decimal import Decimal as D

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.ceiling import (
    Purse,
    TokenPrice,
    pounds,
    refusal,
    reserve,
    share,
)
from controlplane.domain.gate import Gate

PRICE = TokenPrice(D("2"), D("8"))


def test_a_cost_is_exact() -> None:
    assert PRICE.cost(1_000, 500) == D("0.006")
    assert TokenPrice(D("0.1"), D("0.2")).cost(1, 1) == D("0.0000003")


def test_the_attempt_that_would_pass_a_ceiling_is_refused_by_its_name() -> None:
    request, tenant = Purse(D("0.010")), Purse(D("1"), 3600)
    purses = (("request", request), ("tenant", tenant))
    reserve(purses, PRICE, D("0.006"), 0.0)
    answer = refusal(purses, PRICE, D("0.006"), 1.0)
    assert answer is not None
    assert (answer.gate, answer.detail, answer.retry_at) == (Gate.COST, "request", None)
    assert refusal(purses, PRICE, D("0.004"), 1.0) is None


def test_what_a_call_really_cost_takes_the_place_of_its_estimate() -> None:
    purse = Purse(D("0.010"))
    held = reserve((("task", purse),), PRICE, D("0.010"), 0.0)
    assert refusal((("task", purse),), PRICE, D("0.001"), 1.0) is not None
    held.settle(D("0.002"), 2.0)
    assert purse.spent(2.0) == D("0.002")
    assert refusal((("task", purse),), PRICE, D("0.008"), 2.0) is None


def test_a_window_says_when_it_has_room_again() -> None:
    purses = (("tenant", Purse(D("1"), 60.0)),)
    reserve(purses, PRICE, D("0.7"), 0.5)
    reserve(purses, PRICE, D("0.2"), 20.5)
    answer = refusal(purses, PRICE, D("0.5"), 21.0)
    assert answer is not None
    assert answer.retry_at == 61.0
    assert refusal(purses, PRICE, D("0.5"), 61.0) is None


def test_an_unknown_price_is_refused_only_under_a_ceiling() -> None:
    assert refusal((), None, D(0), 0.0) is None
    answer = refusal((("system", Purse(D("1000"))),), None, D(0), 0.0)
    assert answer is not None
    assert (answer.gate, answer.detail) == (Gate.COST, "unpriced")


@pytest.mark.parametrize("text", ["", "free", "NaN", "-1", "Infinity", "1e400", "£2"])
def test_what_is_no_amount_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="max_cost_gbp"):
        pounds("max_cost_gbp", text)


@given(st.decimals(0, 1000, places=9), st.integers(1, 60))
def test_shares_add_up_to_the_ceiling_or_a_little_more(ceiling: D, instances: int) -> None:
    whole = share(ceiling, instances) * instances
    assert ceiling <= whole <= ceiling + instances * D("1e-12")


MONEY = st.decimals(0, 2, places=6)


@given(
    MONEY,
    st.lists(st.tuples(st.floats(0, 30), MONEY, st.floats(0, 1)), max_size=40),
)
def test_no_window_holds_more_than_the_ceiling(
    most: D, calls: list[tuple[float, D, float]]
) -> None:
    purse, now, sent = Purse(most, 60.0), 0.0, list[tuple[float, D]]()
    purses = (("tenant", purse),)
    for pause, cost, part in calls:
        now += pause
        if refusal(purses, PRICE, cost, now) is not None:
            continue
        actual = cost * D(part)
        reserve(purses, PRICE, cost, now).settle(actual, now)
        sent.append((now, actual))
        assert sum(c for at, c in sent if now - at < 60) <= most
