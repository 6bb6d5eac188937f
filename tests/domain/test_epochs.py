"""A gateway's word mints an epoch at once, and then ever more seldom."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.epochs import FIRST_WAIT, REMEMBERED, wait

NOW = datetime(2026, 11, 30, 3, 10, tzinfo=UTC)


def test_the_first_word_counts_at_once() -> None:
    assert wait([], NOW) == timedelta()
    assert wait([NOW - REMEMBERED], NOW) == timedelta()


def test_each_further_one_waits_twice_as_long() -> None:
    assert wait([NOW], NOW) == timedelta(minutes=10)
    assert wait([NOW - timedelta(minutes=10)], NOW) == timedelta()
    mints = [NOW - timedelta(minutes=15), NOW - timedelta(minutes=5)]
    assert wait(mints, NOW) == timedelta(minutes=15)


@given(st.lists(st.integers(0, 86_400), max_size=200))
def test_whoever_tries_all_day_mints_a_handful(tries: list[int]) -> None:
    mints: list[datetime] = []
    for second in sorted(tries):
        at = NOW + timedelta(seconds=second)
        if not wait(mints, at):
            mints.append(at)
    assert len(mints) <= 9
    assert all(b - a >= FIRST_WAIT for a, b in pairwise(mints))
