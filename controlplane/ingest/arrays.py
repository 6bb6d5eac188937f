"""Arrays as Postgres reads them: texts of our own making.

Invariant: only for numbers, times and bins, whose text needs no quotes of its own; psycopg's
dumping of a list asks each value for its type, which was measured at four times the cost. A list of
numbers is the same in JSON but for the brackets, and msgspec writes it at a tenth of the cost of
joining the numbers' texts in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from functools import lru_cache

import msgspec

_written = msgspec.json.Encoder(decimal_format="number").encode


def array_of(values: Sequence[int] | Sequence[Decimal]) -> str:
    """An array of numbers."""
    return "{" + _written(values)[1:-1].decode() + "}"


def array_of_bins(rows: Sequence[Sequence[int]]) -> str:
    """An array of texts, each of them an array of whole numbers."""
    texts = _written(rows)[1:-1].decode()
    return "{" + texts.replace("[", '"{').replace("]", '}"') + "}"


def array_of_times(values: Sequence[datetime]) -> str:
    """An array of aware times."""
    return "{" + ",".join([value.isoformat() for value in values]) + "}"


@lru_cache(maxsize=1024)
def zeros(count: int) -> str:
    """An array of so many zeros."""
    return array_of([0] * count)
