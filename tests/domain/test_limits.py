"""Requests and tokens a minute, and places: the limit holds over every minute there is."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.gate import Gate
from controlplane.domain.limits import (
    Concurrency,
    RateLimit,
    RatePolicy,
    concurrency,
    share,
)


def test_the_next_request_is_refused_until_the_oldest_is_a_minute_old() -> None:
    limit = RateLimit(RatePolicy(requests_per_minute=2))
    for now in (0.0, 10.0):
        assert limit.refusal(0, now) is None
        limit.take(0, now)
    refusal = limit.refusal(0, 11.0)
    assert refusal is not None
    assert (refusal.gate, refusal.detail) == (Gate.RATE, "requests_per_minute")
    assert refusal.retry_at == 61.0
    assert limit.refusal(0, 60.9) is not None
    assert limit.refusal(0, 61.0) is None


def test_tokens_are_counted_as_estimated_and_then_as_used() -> None:
    limit = RateLimit(RatePolicy(tokens_per_minute=1000))
    taken = limit.take(900, 0.0)
    assert limit.refusal(200, 1.0) is not None
    limit.settle(taken, 300, 2.0)
    assert limit.refusal(700, 3.0) is None
    refusal = limit.refusal(701, 3.0)
    assert refusal is not None
    assert refusal.detail == "tokens_per_minute"


def test_more_tokens_than_a_minute_has_go_in_an_unused_minute() -> None:
    limit = RateLimit(RatePolicy(tokens_per_minute=1000))
    assert limit.refusal(5000, 0.0) is None
    limit.take(5000, 0.0)
    refusal = limit.refusal(1, 1.0)
    assert refusal is not None
    assert refusal.retry_at == 61.0


def test_what_was_not_sent_is_given_back() -> None:
    limit = RateLimit(RatePolicy(requests_per_minute=1, tokens_per_minute=10))
    limit.give_back(limit.take(10, 0.0), 0.5)
    assert limit.refusal(10, 1.0) is None


def test_a_limit_of_0_never_opens() -> None:
    for policy in (RatePolicy(requests_per_minute=0), RatePolicy(tokens_per_minute=0)):
        refusal = RateLimit(policy).refusal(1, 0.0)
        assert refusal is not None
        assert refusal.retry_at is None


def test_other_numbers_keep_the_last_minute() -> None:
    limit = RateLimit(RatePolicy(requests_per_minute=10))
    for _ in range(3):
        limit.take(0, 0.0)
    limit.set_policy(RatePolicy(requests_per_minute=10), instances=4)
    assert limit.refusal(0, 1.0) is not None  # a share of 3 is used up


@pytest.mark.parametrize(
    ("limit", "instances", "expected"),
    [(10, 1, 10), (10, 3, 4), (1, 50, 1), (0, 3, 0), (10, 0, 10)],
)
def test_shares_are_rounded_up_and_at_least_1(limit: int, instances: int, expected: int) -> None:
    assert share(limit, instances) == expected


@pytest.mark.parametrize("field", ["requests_per_minute", "tokens_per_minute"])
def test_a_negative_limit_is_named(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        RatePolicy(**{field: -1})


@given(
    st.integers(0, 8),
    st.integers(0, 400),
    st.lists(st.tuples(st.floats(0, 30), st.integers(0, 300), st.integers(-200, 0)), max_size=60),
)
def test_no_minute_holds_more_than_the_limits(
    requests: int, tokens: int, calls: list[tuple[float, int, int]]
) -> None:
    limit = RateLimit(RatePolicy(requests_per_minute=requests, tokens_per_minute=tokens))
    now, sent = 0.0, deque[tuple[float, int]]()
    for pause, need, less in calls:
        now += pause
        refusal = limit.refusal(need, now)
        if refusal is not None:
            if refusal.retry_at is not None:
                assert refusal.retry_at > now
            continue
        limit.settle(limit.take(need, now), max(0, need + less), now)
        sent.append((now, max(0, need + less)))
        minute = [used for at, used in sent if now - at < 60]
        assert len(minute) <= requests
        assert sum(minute) <= tokens or len([u for u in minute if u]) == 1


@given(
    st.integers(1, 8),
    st.lists(st.floats(0, 20), min_size=1, max_size=40),
)
def test_a_refused_call_goes_at_the_moment_that_it_was_told(
    requests: int, pauses: list[float]
) -> None:
    limit, now = RateLimit(RatePolicy(requests_per_minute=requests)), 0.0
    for pause in pauses:
        now += pause
        refusal = limit.refusal(0, now)
        if refusal is None:
            limit.take(0, now)
        else:
            assert refusal.retry_at is not None
            assert limit.refusal(0, refusal.retry_at) is None
            now = refusal.retry_at


@given(st.integers(1, 500), st.integers(0, 600))
def test_ordinary_calls_always_leave_room_for_a_probe(most: int, in_flight: int) -> None:
    limit = concurrency(most)
    if limit.admits(in_flight, urgent=False):
        assert limit.admits(in_flight, urgent=True)
        if most > 1:
            assert limit.admits(in_flight + 1, urgent=True)


def test_a_cap_of_0_admits_nobody() -> None:
    assert not concurrency(0).admits(0, urgent=True)
    assert Concurrency(1, 0).admits(0, urgent=False)


@given(st.integers(1, 500), st.integers(0, 600))
def test_low_priority_never_has_a_place_that_ordinary_calls_have_not(
    most: int, in_flight: int
) -> None:
    limit = concurrency(most)
    if limit.admits(in_flight, urgent=False, low=True):
        assert limit.admits(in_flight, urgent=False)
    assert limit.admits(0, urgent=False, low=True), "an idle provider turns nobody away"
    assert Concurrency(most, 0).admits(in_flight, urgent=False, low=True) == (in_flight < most)
