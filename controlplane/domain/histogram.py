"""Histograms of whole milliseconds that merge: sparse counts in buckets of growth 1.04.

Invariant: the bucket of a value is decided in whole numbers, so Python and SQL
(``switchgear_bucket``) always agree, and a quantile read from the middle of a bucket is at most 2 %
off (exact below 50 ms). A histogram is written as bins, ascending: ``bucket << 32 | count``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from itertools import accumulate, repeat
from operator import and_

MOST_MS = 2**31 - 1
_COUNT_BITS = 32
_COUNT_MASK = (1 << _COUNT_BITS) - 1


def _edges() -> tuple[int, ...]:
    edges = [0]
    while edges[-1] <= MOST_MS:
        edges.append(max(edges[-1] + 1, edges[-1] * 104 // 100))
    return tuple(edges)


EDGES = _edges()
"""Bucket ``i`` holds ``EDGES[i] <= ms < EDGES[i + 1]``."""


# Nearly every duration is below: its bucket by its place costs a third of a search.
_NEAR = tuple(bisect_right(EDGES, ms) - 1 for ms in range(16_384))


def bucket_of(ms: int) -> int:
    """The bucket of a duration from 0 to ``MOST_MS``."""
    return _NEAR[ms] if 0 <= ms < 16_384 else bisect_right(EDGES, ms) - 1


def bins_of(counts: Mapping[int, int]) -> list[int]:
    """Bins of counts by bucket."""
    return [bucket << _COUNT_BITS | counts[bucket] for bucket in sorted(counts)]


def counts_of(bins: Iterable[int]) -> dict[int, int]:
    """Counts by bucket of any number of bins, in any order, of one or more histograms."""
    counts: dict[int, int] = {}
    for one in bins:
        bucket = one >> _COUNT_BITS
        counts[bucket] = counts.get(bucket, 0) + (one & _COUNT_MASK)
    return counts


class Histogram:
    """Any number of bins of one or more histograms, to be asked for quantiles.

    They are put in order and not summed: a series is hundreds of these, and no step of it is a loop
    of Python. Measured: two thirds of the time of ``counts_of``, and three quantiles each of a
    day's series in 3 ms where it was 10.
    """

    __slots__ = ("_bins", "_upto")

    def __init__(self, bins: Iterable[int]) -> None:
        self._bins = sorted(bins)
        # How many were counted in each bin and those before it.
        self._upto = list(accumulate(map(and_, self._bins, repeat(_COUNT_MASK))))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Histogram) and self.counts() == other.counts()

    __hash__ = None  # type: ignore[assignment]

    @property
    def total(self) -> int:
        """How many were counted."""
        return self._upto[-1] if self._upto else 0

    def counts(self) -> dict[int, int]:
        """Counts by bucket."""
        return counts_of(self._bins)

    def quantile(self, q: float) -> int | None:
        """The ``q`` quantile (0 to 1, nearest rank) in milliseconds; None of an empty histogram."""
        total = self.total
        if not total:
            return None
        rank = max(1, min(total, int(q * total) + (q * total % 1 > 0)))
        bucket = self._bins[bisect_left(self._upto, rank)] >> _COUNT_BITS
        return (EDGES[bucket] + EDGES[bucket + 1] - 1) // 2


def quantile(counts: Mapping[int, int], q: float) -> int | None:
    """A quantile of counts by bucket, as a ``Histogram`` has it."""
    return Histogram(bins_of(counts)).quantile(q)
