"""What other numbers would have granted: the real inequality, minute by minute."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.budget import BudgetPolicy
from controlplane.domain.budget_replay import Asked, replay

TEN = BudgetPolicy(ratio_per_mille=100, min_per_second=0)


def minute(
    firsts: int = 1000, retries: int = 100, refused: int = 200, failed: int = 0, instances: int = 1
) -> Asked:
    attempts = firsts + retries
    return Asked(instances, attempts, firsts, retries, refused, failed, Decimal(attempts) / 100)


@pytest.mark.parametrize(
    ("edited", "row", "more"),
    [
        (BudgetPolicy(ratio_per_mille=200, min_per_second=0), minute(), 100),
        # Nobody asked for more than what was refused.
        (BudgetPolicy(ratio_per_mille=900, min_per_second=0), minute(), 200),
        (BudgetPolicy(ratio_per_mille=80, min_per_second=0), minute(), -20),
        # Fewer than those that were sent there are not.
        (BudgetPolicy(ratio_per_mille=0, min_per_second=0), minute(), -100),
        # A floor of 4/s is 240 in a minute; a ceiling of 1/s holds what the ratio earned at 60.
        (BudgetPolicy(ratio_per_mille=100, min_per_second=4), minute(), 140),
        (BudgetPolicy(ratio_per_mille=100, min_per_second=0, max_per_second=1), minute(), -40),
        # Half of the calls failed, so half of the firsts earned nothing.
        (BudgetPolicy(ratio_per_mille=200, min_per_second=0), minute(failed=550), 50),
        # Ten instances share a floor of 4/s: 24 each.
        (BudgetPolicy(ratio_per_mille=100, min_per_second=4), minute(instances=10), 140),
    ],
)
def test_the_difference_is_that_of_the_inequality(
    edited: BudgetPolicy, row: Asked, more: int
) -> None:
    assert replay([row], TEN, edited).more == more


def test_a_refusal_that_the_recorded_numbers_do_not_explain_is_credited_to_nobody() -> None:
    generous = BudgetPolicy(ratio_per_mille=500, min_per_second=0)
    found = replay([minute()], generous, BudgetPolicy(ratio_per_mille=900, min_per_second=0))
    assert (found.more, found.refused) == (0, 200)


def test_what_it_costs_and_how_often_it_fails_is_at_its_minutes_rate() -> None:
    edited = BudgetPolicy(ratio_per_mille=200, min_per_second=0)
    calm, sick = minute(), minute(failed=550)
    found = replay([calm, sick], TEN, edited)
    assert found.more == 150
    assert found.failing == pytest.approx(25)
    assert found.cost_gbp == Decimal("1.50")


ROWS = st.builds(
    minute,
    firsts=st.integers(0, 5000),
    retries=st.integers(0, 500),
    refused=st.integers(0, 500),
    failed=st.integers(0, 6000),
    instances=st.integers(1, 40),
)
POLICIES = st.builds(
    BudgetPolicy,
    ratio_per_mille=st.integers(0, 1000),
    min_per_second=st.floats(0, 5),
    max_per_second=st.none() | st.floats(0, 50),
    window_seconds=st.floats(1, 600),
)


@given(st.lists(ROWS, max_size=8), POLICIES, POLICIES)
def test_it_never_grants_what_nobody_asked_for_and_never_takes_what_was_not_sent(
    rows: list[Asked], recorded: BudgetPolicy, edited: BudgetPolicy
) -> None:
    found = replay(rows, recorded, edited)
    assert -sum(row.retries for row in rows) <= found.more <= found.refused
    assert replay(rows, recorded, recorded).more == 0


@given(st.lists(ROWS, max_size=8), POLICIES, st.integers(0, 500))
def test_a_higher_ratio_never_grants_fewer(
    rows: list[Asked], recorded: BudgetPolicy, by: int
) -> None:
    more = BudgetPolicy(
        recorded.ratio_per_mille + by,
        recorded.min_per_second,
        recorded.max_per_second,
        recorded.window_seconds,
    )
    assert replay(rows, recorded, more).more >= 0
