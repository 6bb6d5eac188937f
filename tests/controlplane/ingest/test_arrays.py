"""Postgres reads our arrays as the values that they were made of."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

from controlplane.ingest.arrays import array_of, array_of_bins, array_of_times, zeros
from controlplane.models.pool import pool

_LARGE = 2**63 - 1
_BINS = [[], [1 << 32 | 3], [5, _LARGE]]
_TIMES = [
    datetime(2026, 11, 30, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(2026, 12, 1, tzinfo=timezone(timedelta(hours=1))),
]
_MONEY = [Decimal("0E-10"), Decimal("1E+3"), Decimal("0.00000000012345"), Decimal("-2.50")]


async def test_postgres_reads_them_as_what_they_were(hot_pool: None) -> None:
    async with (await pool()).connection() as conn:
        cursor = await conn.execute(
            "SELECT %s::bigint[], %s::numeric[], %s::timestamptz[], %s::int[],"
            " ARRAY(SELECT bins::bigint[]::text FROM unnest(%s::text[]) AS bins)",
            (
                array_of((0, -1, _LARGE)),
                array_of(_MONEY),
                array_of_times(_TIMES),
                zeros(3),
                array_of_bins(_BINS),
            ),
        )
        row = await cursor.fetchone()
    assert row is not None
    bins = [f"{{{','.join(map(str, one))}}}" for one in _BINS]
    assert row == ([0, -1, _LARGE], _MONEY, _TIMES, [0, 0, 0], bins)


async def test_none_of_anything_is_an_empty_array(hot_pool: None) -> None:
    async with (await pool()).connection() as conn:
        cursor = await conn.execute(
            "SELECT %s::int[], %s::text[]", (array_of([]), array_of_bins([]))
        )
        assert await cursor.fetchone() == ([], [])
