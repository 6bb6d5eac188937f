"""Windows of calls against a plain list of everything that was ever added."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.window import SLICES, CallWindow, Row, TimeWindow

CALLS = st.lists(st.tuples(st.booleans(), st.booleans()), max_size=40)
TIMED = st.lists(st.tuples(st.integers(0, 90), st.booleans(), st.booleans()), max_size=40)


def totals(window: CallWindow | TimeWindow) -> tuple[int, int, int]:
    return window.calls, window.failures, window.slow


def summed(rows: Iterable[Row]) -> tuple[int, int, int]:
    kept = list(rows)
    return sum(r[1] for r in kept), sum(r[2] for r in kept), sum(r[3] for r in kept)


@given(calls=CALLS, size=st.integers(1, 9))
def test_a_window_of_calls_holds_the_last_ones(calls: list[tuple[bool, bool]], size: int) -> None:
    window = CallWindow(size)
    for failed, slow in calls:
        window.add(0.0, failed, slow)
    last = calls[-size:]
    assert totals(window) == (len(last), sum(f for f, _ in last), sum(s for _, s in last))
    assert totals(window) == summed(window.rows())


@given(calls=TIMED, later=st.integers(0, 60))
def test_a_window_of_seconds_holds_the_slices_that_lie_in_it(
    calls: list[tuple[int, bool, bool]], later: int
) -> None:
    window = TimeWindow(SLICES * 1.0)  # one second each
    calls = sorted(calls)
    for at, failed, slow in calls:
        window.add(at / 2, failed, slow)
    now = (calls[-1][0] if calls else 0) // 2 + later
    window.expire(now)
    kept = [call for call in calls if call[0] // 2 > now - SLICES]
    assert totals(window) == (len(kept), sum(f for _, f, _ in kept), sum(s for *_, s in kept))
    assert totals(window) == summed(window.rows())


@given(calls=TIMED, seconds=st.sampled_from([10.0, 20.0, 40.0]))
def test_rows_that_are_loaded_elsewhere_are_the_same_calls(
    calls: list[tuple[int, bool, bool]], seconds: float
) -> None:
    first, again, wide = TimeWindow(20.0), TimeWindow(20.0), TimeWindow(2000.0)
    for at, failed, slow in sorted(calls):
        first.add(at / 2, failed, slow)
    now = max(call[0] for call in calls) / 2 if calls else 0.0
    first.expire(now)
    again.load(first.rows(), now)
    wide.load(first.rows(), now)
    assert totals(again) == totals(wide) == totals(first)
    assert list(again.rows()) == list(first.rows())
    other = TimeWindow(seconds)
    other.load(first.rows(), now)
    assert totals(other) == summed(other.rows())


def test_a_call_at_the_end_of_a_slice_belongs_to_the_next() -> None:
    for load in (False, True):
        window = TimeWindow(20.0)
        for at in (0.5, 1.0):
            if load:
                window.load([(at, 1, 0, 0)], 1.0)
            else:
                window.add(at, False, False)
        window.expire(20.0)
        assert window.calls == 1


def test_what_a_thread_with_an_older_time_adds_leaves_too() -> None:
    window = TimeWindow(20.0)
    window.add(0.0, True, True)
    window.expire(100.0)
    window.add(0.5, True, True)
    assert totals(window) == (1, 1, 1)
    window.expire(101.0)
    assert totals(window) == (0, 0, 0)


def test_a_row_from_the_future_is_dated_now() -> None:
    window = TimeWindow(20.0)
    window.load([(30.0, 3, 2, 1)], 10.0)
    window.expire(29.9)
    assert totals(window) == (3, 2, 1)
    window.expire(30.0)
    assert totals(window) == (0, 0, 0)


@pytest.mark.parametrize(("size", "kept"), [(9, (5, 2, 1)), (3, (3, 2, 1)), (1, (1, 1, 1))])
def test_within_a_row_the_failures_are_the_newest(size: int, kept: tuple[int, int, int]) -> None:
    window = CallWindow(size)
    window.load([(0.0, 5, 2, 1)], 0.0)
    assert totals(window) == kept
