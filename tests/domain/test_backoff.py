"""Full jitter below a growing cap, never below the server's hint."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.backoff import BackoffPolicy


@pytest.mark.parametrize(
    ("retry", "cap"), [(1, 0.5), (2, 1.0), (3, 2.0), (6, 16.0), (7, 30.0), (8, 30.0), (0, 0.5)]
)
def test_the_cap_doubles_up_to_its_end(retry: int, cap: float) -> None:
    assert BackoffPolicy().cap(retry) == cap


@pytest.mark.parametrize("retry", [1100, 10**6, 10**12])
def test_huge_numbers_of_retries_do_not_overflow(retry: int) -> None:
    assert BackoffPolicy().cap(retry) == 30.0
    assert BackoffPolicy(base_seconds=0.0).cap(retry) == 0.0


@pytest.mark.parametrize(
    ("u", "hint", "wait"),
    [(0.0, None, 0.0), (0.25, None, 0.5), (0.5, 0.2, 1.0), (0.5, 7.0, 7.0), (0.9, 300.0, 300.0)],
)
def test_the_hint_is_a_minimum_even_above_the_cap(
    u: float, hint: float | None, wait: float
) -> None:
    assert BackoffPolicy().wait(3, u, hint) == wait


@given(
    retry=st.integers(0, 10**9),
    u=st.floats(0, 1, exclude_max=True),
    hint=st.one_of(st.none(), st.floats(0, 1e6)),
)
def test_a_wait_lies_between_the_hint_and_the_cap(retry: int, u: float, hint: float | None) -> None:
    policy = BackoffPolicy()
    wait = policy.wait(retry, u, hint)
    assert math.isfinite(wait)
    assert (hint or 0.0) <= wait <= max(hint or 0.0, policy.cap(retry))


@pytest.mark.parametrize(
    ("name", "value"), [("base_seconds", -1), ("factor", 0.5), ("cap_seconds", math.inf)]
)
def test_impossible_settings_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        BackoffPolicy(**{name: value})
