"""One retry bucket, several asked as one, and the promise that both keep at every grant."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.domain.budget import BudgetPolicy, Level, RetryBudget
from controlplane.domain.budgets import SYSTEM, Budgets, Unlimited
from controlplane.domain.circuit import Circuit
from controlplane.domain.gate import Gate, Refusal

GPT = Circuit("openai", "gpt-x")
BARE = BudgetPolicy(ratio_per_mille=100, min_per_second=0, burst=10**6)


def grants(bucket: RetryBudget, now: float, asked: int) -> int:
    granted = 0
    for _ in range(asked):
        if bucket.allows(now):
            bucket.spend(now)
            granted += 1
    return granted


def earn(bucket: RetryBudget, now: float, firsts: int) -> None:
    for _ in range(firsts):
        bucket.earn(now)


@pytest.mark.parametrize(("firsts", "granted"), [(0, 0), (9, 0), (10, 1), (19, 1), (300, 30)])
def test_ten_firsts_earn_one_retry_exactly(firsts: int, granted: int) -> None:
    bucket = RetryBudget(BARE)
    earn(bucket, 0.0, firsts)
    assert grants(bucket, 1.0, 100) == granted


def test_the_floor_allows_retries_without_traffic() -> None:
    bucket = RetryBudget(BudgetPolicy(min_per_second=0.1, window_seconds=60))
    assert grants(bucket, 0.0, 20) == 6


def test_the_ceiling_cuts_what_was_earned_but_never_the_floor() -> None:
    bucket = RetryBudget(BudgetPolicy(500, min_per_second=0, max_per_second=0.1, burst=1000))
    earn(bucket, 0.0, 1000)
    assert grants(bucket, 0.0, 100) == 6
    bucket = RetryBudget(BudgetPolicy(500, min_per_second=0.2, max_per_second=0.1, burst=1000))
    earn(bucket, 0.0, 1000)
    assert grants(bucket, 0.0, 100) == 12


def test_a_burst_is_limited_in_any_one_second() -> None:
    bucket = RetryBudget(BudgetPolicy(1000, burst=20))
    earn(bucket, 0.0, 1000)
    assert grants(bucket, 0.5, 50) == 20
    assert grants(bucket, 1.4, 50) == 0
    assert grants(bucket, 1.5, 50) == 20


def test_a_burst_of_nothing_allows_nothing() -> None:
    bucket = RetryBudget(BudgetPolicy(1000, burst=0))
    earn(bucket, 0.0, 100)
    assert grants(bucket, 0.0, 1) == 0


def test_a_failed_first_gives_back_so_an_outage_mints_nothing() -> None:
    bucket = RetryBudget(BARE)
    marks = [bucket.earn(0.0) for _ in range(100)]
    for mark in marks:
        bucket.give_back(mark, 20.0)
    assert grants(bucket, 20.0, 10) == 0


def test_giving_back_after_the_window_takes_nothing_from_others() -> None:
    bucket = RetryBudget(BARE)
    old = bucket.earn(0.0)
    earn(bucket, 61.0, 10)
    bucket.give_back(old, 61.0)
    assert bucket.balance(61.0).earned == 10


def test_what_has_left_the_window_neither_earns_nor_counts() -> None:
    bucket = RetryBudget(BARE)
    earn(bucket, 0.0, 10)
    assert grants(bucket, 56.0, 5) == 1
    assert grants(bucket, 61.0, 5) == 0
    earn(bucket, 61.0, 20)
    assert grants(bucket, 61.0, 5) == 1
    assert grants(bucket, 117.0, 5) == 1


def test_a_refund_makes_room_again() -> None:
    bucket = RetryBudget(BARE)
    earn(bucket, 0.0, 10)
    assert grants(bucket, 1.0, 2) == 1
    bucket.refund(20.0)
    assert grants(bucket, 20.0, 2) == 1


def test_balance_is_the_room_left() -> None:
    bucket = RetryBudget(BARE)
    earn(bucket, 0.0, 35)
    grants(bucket, 0.0, 2)
    bucket.refuse(0.0)
    seen = bucket.balance(0.0)
    assert (seen.balance, seen.earned, seen.spent, seen.refused, seen.window_s) == (1, 35, 2, 1, 60)
    assert bucket.balance(100.0).earned == 0


@pytest.mark.parametrize(("instances", "floor", "burst"), [(1, 6, 20), (4, 2, 5), (50, 1, 1)])
def test_an_instance_takes_its_share_rounded_up_and_at_least_one(
    instances: int, floor: int, burst: int
) -> None:
    limits = BudgetPolicy().limits(instances)
    assert (limits.floor, limits.burst, limits.ratio) == (floor * 1000, burst, 100)


def test_a_share_of_nothing_is_nothing() -> None:
    limits = BudgetPolicy(min_per_second=0, max_per_second=0, burst=0).limits(5)
    assert (limits.floor, limits.ceiling, limits.burst) == (0, 0, 0)


def test_a_share_is_not_rounded_up_by_the_floats_own_error() -> None:
    policy = BudgetPolicy(min_per_second=0.3, max_per_second=0.7, window_seconds=10)
    limits = policy.limits(3)
    assert (limits.floor, limits.ceiling) == (1000, 3000)


@pytest.mark.parametrize("window", [30.0, 60.0, 240.0])
def test_new_numbers_keep_what_was_counted(window: float) -> None:
    bucket = RetryBudget(BARE)
    marks = [bucket.earn(50.0) for _ in range(30)]
    grants(bucket, 50.0, 2)
    bucket.set_policy(BudgetPolicy(200, 0, window_seconds=window, burst=10**6))
    seen = bucket.balance(55.0)
    assert (seen.balance, seen.earned, seen.spent) == (4, 30, 2)
    if window == 60.0:
        bucket.give_back(marks[0], 55.0)
        assert bucket.balance(55.0).earned == 29


def test_all_levels_agree_or_none_spends() -> None:
    rich = BudgetPolicy(1000, min_per_second=10, burst=1000)
    poor = BudgetPolicy(0, min_per_second=0)
    budgets = Budgets(lambda level, subject: poor if level is Level.CIRCUIT else rich)
    view = budgets.of("acme")
    assert view.ask(GPT, 0.0) == Refusal(Gate.BUDGET, "circuit")
    rows = {(level, subject): b for level, subject, b in budgets.balances(0.0)}
    assert {key: b.spent for key, b in rows.items()} == dict.fromkeys(rows, 0)
    assert rows[Level.CIRCUIT, "openai/gpt-x"].refused == 1
    budgets.set_policies(lambda level, subject: rich, 1)
    assert view.ask(GPT, 0.0) is None
    assert {b.spent for _, _, b in budgets.balances(0.0)} == {1}


def test_each_subject_has_its_own_bucket() -> None:
    budgets = Budgets(lambda level, subject: BudgetPolicy(1000, min_per_second=0, burst=1000))
    one, other = budgets.of("one"), budgets.of("other")
    mark = one.earn(GPT, 0.0)
    assert other.ask(GPT, 0.0) == Refusal(Gate.BUDGET, "tenant")
    assert one.ask(GPT, 0.0) is None
    one.refund(GPT, 0.0)
    one.give_back(GPT, mark, 0.0)
    assert one.ask(GPT, 0.0) == Refusal(Gate.BUDGET, "tenant")


def test_the_count_of_live_instances_changes_every_share() -> None:
    budgets = Budgets(lambda level, subject: BudgetPolicy(0, min_per_second=0.1))
    assert [budgets.ask((SYSTEM,), 0.0) for _ in range(6)] == [None] * 6
    budgets.set_policies(lambda level, subject: BudgetPolicy(0, min_per_second=0.2), 3)
    assert [b.balance for _, _, b in budgets.balances(0.0)] == [0]
    budgets.set_policies(lambda level, subject: BudgetPolicy(0, min_per_second=0.4), 3)
    assert [b.balance for _, _, b in budgets.balances(0.0)] == [2]


def test_idle_buckets_are_dropped_and_busy_ones_kept() -> None:
    budgets = Budgets(lambda level, subject: BudgetPolicy())
    budgets.of("old").earn(GPT, 0.0)
    budgets.of("new").earn(GPT, 50.0)
    budgets.sweep(61.0)
    assert [subject for level, subject, _ in budgets.balances(61.0) if level is Level.TENANT] == [
        "new"
    ]


def test_what_was_refused_is_told_until_it_leaves_the_window() -> None:
    bucket = RetryBudget(BudgetPolicy(min_per_second=0))
    bucket.refuse(0.0)
    bucket.refuse(30.0)
    assert [bucket.balance(now).refused for now in (59.9, 60.0, 90.0)] == [2, 1, 0]


def test_unlimited_never_refuses() -> None:
    free = Unlimited()
    free.give_back(GPT, free.earn(GPT, 0.0), 0.0)
    assert {free.ask(GPT, 0.0) for _ in range(1000)} == {None}
    free.refund(GPT, 0.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ratio_per_mille", -1),
        ("min_per_second", float("nan")),
        ("max_per_second", -0.1),
        ("window_seconds", 0),
        ("window_seconds", float("inf")),
        ("burst", -1),
        *[(name, float("inf")) for name in ("min_per_second", "max_per_second", "burst")],
    ],
)
def test_impossible_numbers_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        BudgetPolicy(**{name: value})  # type: ignore[arg-type]


POLICIES = st.builds(
    BudgetPolicy,
    ratio_per_mille=st.integers(0, 1000),
    min_per_second=st.sampled_from([0, 0.05, 0.1, 1.0]),
    max_per_second=st.sampled_from([None, 0.1, 0.5, 5.0]),
    window_seconds=st.sampled_from([10.0, 60.0]),
    burst=st.integers(1, 6),
)
STEPS = st.lists(
    st.tuples(
        st.floats(0, 4),
        st.sampled_from(["first", "first", "fails", "retry", "retry", "refund"]),
        st.integers(1, 8),
    ),
    max_size=80,
)


@given(policy=POLICIES, steps=STEPS)
@settings(max_examples=300, deadline=None)
def test_at_every_grant_the_inequality_and_the_burst_hold(
    policy: BudgetPolicy, steps: list[tuple[float, str, int]]
) -> None:
    """Against a plain list of moments: firsts over the window, retries over it less one slice."""
    bucket, now = RetryBudget(policy), 0.0
    firsts: list[float] = []
    retries: list[float] = []
    granted: list[float] = []
    window = policy.window_seconds
    slack = window / 20 + 1e-6
    for pause, what, times in steps:
        now += pause
        for _ in range(times):
            if what == "first":
                firsts.append(bucket.earn(now))
            elif what == "fails" and firsts:
                bucket.give_back(firsts.pop(), now)
            elif what == "refund" and retries:
                bucket.refund(now)
                retries.pop()
            elif what == "retry" and bucket.allows(now):
                bucket.spend(now)
                retries.append(now)
                granted.append(now)
                sent = sum(at > now - window + slack for at in retries)
                earning = sum(at > now - window - 1e-6 for at in firsts)
                assert sent <= bound(policy, earning)
                assert sum(now - at < 1.0 for at in granted) <= policy.burst


def bound(policy: BudgetPolicy, firsts: int) -> Fraction:
    """The design's inequality, in exact fractions."""
    window = Fraction(policy.window_seconds)
    earned = Fraction(policy.ratio_per_mille, 1000) * firsts
    if policy.max_per_second is not None:
        earned = min(earned, Fraction(str(policy.max_per_second)) * window)
    return max(Fraction(str(policy.min_per_second)) * window, earned)


@given(firsts=st.integers(0, 500), asked=st.integers(0, 100), ratio=st.integers(0, 1000))
def test_nothing_that_is_allowed_is_withheld(firsts: int, asked: int, ratio: int) -> None:
    bucket = RetryBudget(BudgetPolicy(ratio, min_per_second=0, burst=10**6))
    earn(bucket, 0.0, firsts)
    assert grants(bucket, 0.0, asked) == min(asked, ratio * firsts // 1000)
