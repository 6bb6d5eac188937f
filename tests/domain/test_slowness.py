"""Slow is what the policy calls slow, on enough calls, and p95 only where it is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.histogram import bucket_of, quantile
from controlplane.domain.slowness import SAMPLE, SlowRule, slowness


def counted(durations: dict[int, int]) -> dict[int, int]:
    return {bucket_of(ms): count for ms, count in durations.items()}


@pytest.mark.parametrize(
    ("durations", "rule", "slow"),
    [
        ({500: 95, 12_000: 5}, SlowRule(12), True),
        ({500: 96, 12_000: 4}, SlowRule(12), False),
        ({500: 300, 12_000: 100}, SlowRule(12, 0.5), True),
        ({500: 301, 12_000: 99}, SlowRule(12, 0.5), False),
        ({500: 98, 12_000: 2}, SlowRule(12, 0.04), True),
        ({12_000: SAMPLE}, SlowRule(12), True),
        ({12_000: SAMPLE - 1}, SlowRule(12), False),
        ({11_000: 400}, SlowRule(12), False),
        ({}, SlowRule(12), False),
    ],
)
def test_slow_is_half_of_what_opens_or_else_one_call_in_twenty(
    durations: dict[int, int], rule: SlowRule, slow: bool
) -> None:
    found = slowness(sum(durations.values()), counted(durations), rule)
    assert (found is not None) == slow


def test_p95_is_said_only_where_the_tail_reaches_down_to_it() -> None:
    rule = SlowRule(12, 0.04)
    known = slowness(100, counted({12_000: 4, 20_000: 2}), rule)
    assert known is not None
    assert known.p95_ms is not None
    assert abs(known.p95_ms - 12_000) <= 240
    unknown = slowness(100, counted({12_000: 5}), rule)
    assert unknown is not None
    assert (unknown.share, unknown.p95_ms) == (0.05, None)


@given(
    st.lists(st.integers(1, 100_000), min_size=SAMPLE, max_size=200),
    st.floats(0.001, 100),
    st.one_of(st.none(), st.floats(0.001, 1)),
)
def test_the_upper_bins_alone_say_what_the_whole_histogram_says(
    durations: list[int], seconds: float, trips_at: float | None
) -> None:
    rule = SlowRule(seconds, trips_at)
    whole: dict[int, int] = {}
    for ms in durations:
        whole[bucket_of(ms)] = whole.get(bucket_of(ms), 0) + 1
    tail = {b: n for b, n in whole.items() if b >= bucket_of(rule.call_ms)}
    found, of_whole = slowness(len(durations), tail, rule), slowness(len(durations), whole, rule)
    assert (found is None) == (of_whole is None)
    if found is not None and of_whole is not None:
        assert of_whole.p95_ms == quantile(whole, 0.95)
        assert found.p95_ms in (None, of_whole.p95_ms)
        if found.share > 0.05 + 1e-9:
            assert found.p95_ms == of_whole.p95_ms
