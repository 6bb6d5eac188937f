"""Counters and tasks come out the same in any order, any grouping, with any repetition."""

import random
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from functools import reduce
from typing import Any, get_args
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.histogram import bucket_of
from controlplane.domain.pricing import Cost, CostStatus
from controlplane.domain.rollup import COUNTERS, MinuteSums, RequestSums, minute_of
from controlplane.domain.tasks import OutcomeRow, Start, Task, Word, merge, of_outcome
from controlplane.wire.events import Attempt, Gate, Role, Tokens, VerdictKind

OTHER_GATES = ("rate", "concurrency", "key", "deadline", "policy", "cost")

T0 = datetime(2026, 11, 30, 3, 10, tzinfo=UTC)
TOKENS = Tokens(input=100, cached_read=20, cache_write=3, output=40, reasoning_in_output=7)
PENNY = Cost(Decimal("0.02"), "USD", Decimal("0.01"), CostStatus.PRICED)


def attempt(**over: Any) -> Attempt:
    given = {
        "id": UUID(int=1),
        "occurred_at": T0,
        "request": UUID(int=2),
        "ordinal": 1,
        "role": "first",
        "provider": "openai",
        "model": "gpt-4o",
        "verdict": "success",
        "billing": "billed",
        "served": True,
        "tokens": TOKENS,
        "ended_ms": 700,
        "first_byte_ms": 40,
    } | over
    return Attempt(**given)


def sums(cost: Cost = PENNY, **over: Any) -> MinuteSums:
    found = MinuteSums()
    found.add_attempt(attempt(**over), cost)
    return found


def named(found: MinuteSums) -> dict[str, int]:
    """The counters that are not 0."""
    return {name: found[name] for name in COUNTERS if found[name]}


def test_a_served_attempt_wastes_nothing() -> None:
    found = sums()
    assert named(found) == {
        "attempts": 1,
        "firsts": 1,
        "succeeded": 1,
        "served": 1,
        "input_tokens": 100,
        "cached_tokens": 20,
        "cache_write_tokens": 3,
        "output_tokens": 40,
        "reasoning_tokens": 7,
        "cost_priced": 1,
        "ended_ms_sum": 700,
        "ended_count": 1,
    }
    assert found.money == [Decimal("0.01"), 0, 0, 0]
    assert (found.latency, found.first_byte) == ({bucket_of(700): 1}, {40: 1})


def test_an_attempt_that_was_not_served_is_wasted_whatever_its_verdict() -> None:
    estimated = Cost(Decimal("0.02"), "USD", Decimal("0.01"), CostStatus.ESTIMATED)
    found = sums(
        estimated, served=False, role="retry", verdict="partial", counts_against_breaker=True
    )
    assert found["wasted_tokens"] == 163
    assert found.money == [Decimal("0.01")] * 4
    assert (found["retries"], found["firsts"], found["failed"], found["succeeded"]) == (1, 0, 1, 0)
    assert (found["partial"], found["cost_estimated"]) == (1, 1)


def test_an_unknown_cost_is_counted_and_adds_no_money() -> None:
    found = sums(Cost(None, None, None, CostStatus.UNKNOWN), ended_ms=None, served=False)
    assert (found["unpriced"], found["wasted_unpriced"], found["cost_unknown"]) == (1, 1, 1)
    assert (found.money, found["ended_count"], found.latency) == ([0, 0, 0, 0], 0, {})


@pytest.mark.parametrize(
    ("gate", "would_have", "counters"),
    [
        ("breaker", False, {"refused_breaker": 1}),
        ("override", False, {"refused_override": 1}),
        ("budget", False, {"refused_budget": 1}),
        *((g, False, {f"refused_{g}": 1, "refused_other": 1}) for g in OTHER_GATES),
        ("breaker", True, {"would_refuse": 1}),
    ],
)
def test_refusals_are_counted_by_gate_and_observed_ones_apart(
    gate: str, would_have: bool, counters: dict[str, int]
) -> None:
    found = MinuteSums()
    found.add_refusal(gate=gate, would_have=would_have)
    assert named(found) == counters


def test_pounds_are_added_without_rounding() -> None:
    found = sums(Cost(None, "GBP", Decimal(12345), CostStatus.PRICED))
    found.add_attempt(attempt(), Cost(None, "GBP", Decimal(1).scaleb(-28), CostStatus.PRICED))
    assert found.money[0] == Decimal("12345.0000000000000000000000000001")


def test_every_word_of_the_wire_has_its_counter() -> None:
    for role in get_args(Role):
        assert sums(role=role)["attempts"] == 1
    for verdict in get_args(VerdictKind):
        assert sums(verdict=verdict)["attempts"] == 1
    for gate in get_args(Gate):
        MinuteSums().add_refusal(gate=gate, would_have=False)


def test_requests_are_counted_with_their_latency_and_their_age_in_queues() -> None:
    found = RequestSums()
    found.add(success=True, latency_ms=1000, waited_ms=0)
    found.add(success=False, latency_ms=None, waited_ms=30)
    assert (found.requests, found.succeeded) == (2, 1)
    assert (found.latency, found.waited) == ({bucket_of(1000): 1}, {0: 1, 30: 1})


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


DAY = timedelta(days=1)


def of_day(number: int, day: float, **over: object) -> OutcomeRow:
    at = T0 + day * DAY
    return outcome(number, **{"occurred_at": at, "ended_at": at, "started_at": at} | over)


def test_a_word_counts_up_to_seven_days_after_the_last_request() -> None:
    request, word = of_day(1, 0), of_day(2, 7, explicit=True, success=False)
    late = of_day(3, 7.001, explicit=True, success=True)
    task = reduce(merge, map(of_outcome, (late, request, word)))
    assert (task.success, task.frozen) == (False, True)
    assert not merge(of_outcome(request), of_outcome(word)).frozen


def test_a_later_request_brings_a_word_into_force_that_came_too_late() -> None:
    said = [of_day(1, 0), of_day(2, 1, explicit=True), of_day(3, 9, explicit=True, success=False)]
    before = reduce(merge, map(of_outcome, said))
    assert (before.success, before.frozen) == (True, True)
    after = merge(before, of_outcome(of_day(4, 2.5)))
    assert (after.success, after.frozen) == (False, False)


times = st.none() | st.integers(-5, 5).map(lambda s: T0 + timedelta(seconds=s))
far = st.integers(0, 20).map(lambda day: T0 + day * timedelta(days=1, seconds=3))
outcomes = st.builds(
    lambda number, at, **over: outcome(
        number, **over | ({} if at is None else {"occurred_at": at, "ended_at": at})
    ),
    st.integers(1, 40),
    st.none() | far,
    success=st.booleans(),
    explicit=st.booleans(),
    route=st.sampled_from(["", "chat", "batch"]),
    started_at=times,
    ended_at=times,
)


def by_the_rule(rows: list[OutcomeRow]) -> bool | None:
    """The result, straight from all that was said."""
    ends = [(r.ended_at or r.occurred_at, r.id, r.success) for r in rows if not r.explicit]
    said = [(r.occurred_at, r.id, r.success) for r in rows if r.explicit]
    if ends:
        said = [word for word in said if word[0] - max(ends)[0] <= timedelta(days=7)]
    return max(said or ends)[2]


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
    assert straight.success == by_the_rule(rows)
