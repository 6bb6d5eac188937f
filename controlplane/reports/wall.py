"""What the wall is made of: one read of the present, one of the last quarter of an hour.

Invariant: every figure of a ``Wall`` comes out of one database snapshot (the trail out of one of
its own), and ``version`` never goes back: of two reads the one with the lower version saw less.
Rates are per second or per minute over a sliding minute; money is £, exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
from django.db import connection
from msgspec import Struct
from msgspec.structs import replace

from controlplane.models.pool import named_sql, pool
from controlplane.reports import background
from controlplane.reports.wall_rows import MinuteRow, Now, Trail, Wall

_SQL = Path(__file__).parent / "sql"
NOW, TRAIL, PAST = _SQL / "wall_now.sql", _SQL / "wall_trail.sql", _SQL / "wall_past.sql"
# How far this process's clock may be from Postgres' own.
_AROUND = timedelta(days=1)


class Rates(Struct, frozen=True):
    """What happened in the sliding minute up to a moment. Counts are fractional by weighting."""

    attempts: float = 0.0
    firsts: float = 0.0
    retries: float = 0.0
    failed: float = 0.0
    refused_breaker: float = 0.0
    refused_override: float = 0.0
    refused_budget: float = 0.0
    cost_gbp: Decimal = Decimal(0)
    wasted_gbp: Decimal = Decimal(0)
    unpriced: float = 0.0

    @property
    def failure_ratio(self) -> float | None:
        """Failed attempts of all attempts; None when there were none."""
        return self.failed / self.attempts if self.attempts else None

    @property
    def retry_ratio(self) -> float | None:
        """Retries over firsts (design 4.7); None when no request began."""
        return self.retries / self.firsts if self.firsts else None


def sliding_minute(minutes: list[MinuteRow], at: datetime) -> Rates:
    """The minute up to ``at``: the running minute whole, the one before by the part still inside.

    Minute rows are all there is to read 200 circuits four times a second; spreading the previous
    minute evenly is off by at most the unevenness within that one minute.
    """
    running = at.replace(second=0, microsecond=0)
    part = (60 - (at - running).total_seconds()) / 60
    weights = {running: 1.0, running - timedelta(minutes=1): part}
    total = Rates()
    for row in minutes:
        weight = weights.get(row.minute)
        if weight is not None:
            total = _add(total, row, weight)
    return total


def _add(total: Rates, row: MinuteRow, weight: float) -> Rates:
    exact = Decimal(weight)
    return Rates(
        attempts=total.attempts + row.attempts * weight,
        firsts=total.firsts + row.firsts * weight,
        retries=total.retries + row.retries * weight,
        failed=total.failed + row.failed * weight,
        refused_breaker=total.refused_breaker + row.refused_breaker * weight,
        refused_override=total.refused_override + row.refused_override * weight,
        refused_budget=total.refused_budget + row.refused_budget * weight,
        cost_gbp=total.cost_gbp + row.cost_gbp * exact,
        wasted_gbp=total.wasted_gbp + row.wasted_gbp * exact,
        unpriced=total.unpriced + row.unpriced * weight,
    )


def minutes_by_circuit(trail: Trail) -> Mapping[int, list[MinuteRow]]:
    """The trail's minutes, grouped, in time order."""
    grouped: dict[int, list[MinuteRow]] = {}
    for row in trail.minutes:
        grouped.setdefault(row.circuit_id, []).append(row)
    return grouped


def _now(row: Any) -> Now:
    return msgspec.json.decode(row[0], type=Now)


def trail_values(at: datetime | None = None) -> dict[str, datetime | None]:
    """What ``TRAIL`` asks for: a moment of the past, or now by Postgres' clock."""
    near = at or datetime.now(UTC)
    return {"at": at, "first": near - _AROUND, "last": near + _AROUND}


def _trail(row: Any) -> Trail:
    return msgspec.json.decode(row[0], type=Trail)


def read() -> Wall:
    """Both reads over Django's connection, for a page."""
    with connection.cursor() as cursor:
        cursor.execute(named_sql(NOW))
        now = _now(cursor.fetchone())
        cursor.execute(named_sql(TRAIL), trail_values())
        trail = _trail(cursor.fetchone())
    return Wall(now, replace(trail, work=background.read()))


def read_past(at: datetime) -> Wall:
    """The wall as it was at the end of a whole minute: the running one would hold what came later.

    Its ``version`` is 0: it is never newer than anything.
    """
    moment = at.replace(second=0, microsecond=0) - timedelta(milliseconds=1)
    with connection.cursor() as cursor:
        cursor.execute(named_sql(PAST), {"at": moment})
        now = _now(cursor.fetchone())
        cursor.execute(named_sql(TRAIL), trail_values(moment))
        return Wall(now, _trail(cursor.fetchone()))


def read_present() -> Now:
    """The present alone, over Django's connection."""
    with connection.cursor() as cursor:
        cursor.execute(named_sql(NOW))
        return _now(cursor.fetchone())


async def read_now() -> Now:
    """The present, over the process's pool."""
    async with (await pool()).connection() as conn:
        return _now(await (await conn.execute(named_sql(NOW))).fetchone())


async def read_trail() -> Trail:
    """The last quarter of an hour, and how the work behind it fares, over the process's pool."""
    async with (await pool()).connection() as conn:
        trail = _trail(await (await conn.execute(named_sql(TRAIL), trail_values())).fetchone())
        return replace(trail, work=await background.read_on(conn))
