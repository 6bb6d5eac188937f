"""Histograms merge, and what is read from them is at most 2 % off."""

from fractions import Fraction
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.histogram import (
    EDGES,
    MOST_MS,
    Histogram,
    bins_of,
    bucket_of,
    counts_of,
    quantile,
)

durations = st.integers(0, MOST_MS)


def histogram(values: list[int]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for value in values:
        counts[bucket_of(value)] = counts.get(bucket_of(value), 0) + 1
    return counts


@given(durations)
def test_a_value_lies_in_its_bucket_and_reads_back_within_two_percent(ms: int) -> None:
    bucket = bucket_of(ms)
    assert EDGES[bucket] <= ms < EDGES[bucket + 1]
    read = quantile({bucket: 1}, 0.5)
    assert read is not None
    assert abs(read - ms) <= Fraction(2, 100) * ms


def test_growth_is_at_most_four_percent_and_small_values_are_exact() -> None:
    assert EDGES[:52] == (*range(51), 52)
    assert all(b <= max(a + 1, a * 1.04) for a, b in pairwise(EDGES))
    assert EDGES[-1] > MOST_MS


@given(st.lists(durations), st.lists(durations))
def test_bins_of_two_are_the_histogram_of_both(one: list[int], other: list[int]) -> None:
    bins = bins_of(histogram(one)) + bins_of(histogram(other))
    assert counts_of(bins) == histogram(one + other)
    assert bins_of(counts_of(bins)) == bins_of(histogram(one + other))


@given(st.lists(durations, min_size=1), st.sampled_from([0.0, 0.5, 0.95, 0.99, 1.0]))
def test_a_quantile_is_the_value_of_its_rank(values: list[int], q: float) -> None:
    rank = max(1, -int(-Fraction(q) * len(values) // 1))
    exact = sorted(values)[min(rank, len(values)) - 1]
    read = quantile(histogram(values), q)
    assert read is not None
    assert abs(read - exact) <= Fraction(2, 100) * exact


@given(st.lists(durations), st.lists(durations), st.sampled_from([0.0, 0.5, 0.95, 0.99, 1.0]))
def test_bins_of_two_unsummed_are_read_as_the_histogram_of_both(
    one: list[int], other: list[int], q: float
) -> None:
    read = Histogram(bins_of(histogram(one)) + bins_of(histogram(other)))
    assert (read.counts(), read.total) == (histogram(one + other), len(one + other))
    assert read.quantile(q) == quantile(histogram(one + other), q)
    assert read == Histogram(bins_of(histogram(other + one)))
    assert read != Histogram(bins_of(histogram([*one, *other, 5])))


def test_nothing_has_no_quantile() -> None:
    assert Histogram([]).quantile(0.5) is None
    assert quantile({}, 0.5) is None
