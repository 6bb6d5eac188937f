"""Arrays of numbers and times as Postgres reads them: texts of our own making.

Invariant: only for values whose text needs no quotes of its own (numbers, times); psycopg's dumping
of a list asks each value for its type, which was measured at four times the cost.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache


def array_of(values: Iterable[object]) -> str:
    """An array of numbers, or of texts that are quoted already."""
    return "{" + ",".join(map(str, values)) + "}"


def array_of_times(values: Iterable[datetime]) -> str:
    """An array of aware times."""
    return "{" + ",".join([value.isoformat() for value in values]) + "}"


@lru_cache(maxsize=1024)
def zeros(count: int) -> str:
    """An array of so many zeros."""
    return array_of([0] * count)
