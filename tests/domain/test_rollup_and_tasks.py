"""Counters and tasks come out the same in any order, any grouping, with any repetition."""

import random
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from functools import reduce
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.rollup import Counts, TokenCounts, minute_of, of_attempt, of_refusal
from controlplane.domain.tasks import OutcomeRow, Start, Task, Word, merge, of_outcome

T0 = datetime(2026, 11, 30, 3, 10, tzinfo=UTC)
TOKENS = TokenCounts(input=100, cached_read=20, cache_write=3, output=40)


def attempt(**over: object) -> Counts:
    given = {
        "role": "first",
        "verdict": "success",
        "counts_against_breaker": False,
        "served": True,
        "tokens": TOKENS,
        "cost_gbp": Decimal("0.01"),
        "ended_ms": 700,
    } | over
    return of_attempt(**given)  # type: ignore[arg-type]


def test_a_served_attempt_wastes_nothing() -> None:
    assert attempt() == Counts(
        attempts=1,
        firsts=1,
        succeeded=1,
        served=1,
        input_tokens=100,
        cached_tokens=20,
        cache_write_tokens=3,
        output_tokens=40,
        cost_gbp=Decimal("0.01"),
        ended_ms_sum=700,
        ended_count=1,
    )


def test_an_attempt_that_was_not_served_is_wasted_whatever_its_verdict() -> None:
    found = attempt(served=False, role="retry", verdict="partial", counts_against_breaker=True)
    assert (found.wasted_tokens, found.wasted_gbp) == (163, Decimal("0.01"))
    assert (found.retries, found.firsts, found.failed, found.succeeded) == (1, 0, 1, 0)


def test_an_unknown_cost_is_counted_and_adds_no_money() -> None:
    found = attempt(cost_gbp=None, ended_ms=None)
    assert (found.unpriced, found.cost_gbp, found.ended_count) == (1, 0, 0)


def test_refusals_are_counted_by_gate_and_observed_ones_apart() -> None:
    assert of_refusal(gate="breaker", would_have=False) == Counts(refused_breaker=1)
    assert of_refusal(gate="override", would_have=False) == Counts(refused_override=1)
    assert of_refusal(gate="budget", would_have=False) == Counts(refused_budget=1)
    assert of_refusal(gate="deadline", would_have=False) == Counts(refused_other=1)
    assert of_refusal(gate="breaker", would_have=True) == Counts(would_refuse=1)


def test_pounds_are_added_without_rounding() -> None:
    tiny = Counts(cost_gbp=Decimal(1).scaleb(-28))
    assert (Counts(cost_gbp=Decimal(12345)) + tiny).cost_gbp == Decimal(
        "12345.0000000000000000000000000001"
    )


def test_a_minute_is_utc_whatever_the_zone_of_the_time() -> None:
    tokyo = timezone(timedelta(hours=9, minutes=30))
    assert minute_of(T0.astimezone(tokyo) + timedelta(seconds=59, microseconds=7)) == T0


def outcome(number: int, **over: object) -> OutcomeRow:
    given = {
        "id": UUID(int=number),
        "occurred_at": T0 + timedelta(seconds=number),
        "success": True,
        "explicit": False,
        "route": "chat",
        "request": UUID(int=1000 + number),
        "started_at": T0,
        "ended_at": T0 + timedelta(seconds=number),
    } | over
    return OutcomeRow(**given)  # type: ignore[arg-type]


def test_an_explicit_word_beats_a_later_implicit_one() -> None:
    both = merge(
        of_outcome(outcome(1, explicit=True, success=False)), of_outcome(outcome(9, success=True))
    )
    assert both.success is False
    assert both.last_ended_at == T0 + timedelta(seconds=9)


def test_the_later_explicit_word_holds_then_the_greater_id() -> None:
    at = T0 + timedelta(seconds=5)
    words = [
        outcome(1, explicit=True, success=False, occurred_at=at),
        outcome(2, explicit=True, success=True, occurred_at=at),
        outcome(3, explicit=True, success=False, occurred_at=T0),
    ]
    assert reduce(merge, map(of_outcome, words)).explicit == Word(at, UUID(int=2), True)


def test_the_first_request_gives_the_route() -> None:
    early = outcome(7, started_at=T0 - timedelta(seconds=1), route="early")
    both = merge(of_outcome(outcome(1)), of_outcome(early))
    assert both.first == Start(T0 - timedelta(seconds=1), UUID(int=1007), "early")


times = st.none() | st.integers(-5, 5).map(lambda s: T0 + timedelta(seconds=s))
outcomes = st.builds(
    lambda number, **over: outcome(number, **over),
    st.integers(1, 40),
    success=st.booleans(),
    explicit=st.booleans(),
    route=st.sampled_from(["", "chat", "batch"]),
    started_at=times,
    ended_at=times,
)


@given(st.lists(outcomes, min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_any_order_and_repetition_of_outcomes_closes_a_task_alike(
    rows: list[OutcomeRow], shuffle: random.Random
) -> None:
    straight = reduce(merge, map(of_outcome, rows), Task())
    again = rows + shuffle.sample(rows, shuffle.randint(0, len(rows)))
    shuffle.shuffle(again)
    half = len(again) // 2
    left = reduce(merge, map(of_outcome, again[:half]), Task())
    right = reduce(merge, map(of_outcome, again[half:]), Task())
    assert merge(right, left) == merge(left, right) == straight
