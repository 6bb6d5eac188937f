"""Add a batch to the minute rollup, in the batch's own transaction.

Invariant: counters are only ever added to, with rows locked in the order of their keys, so batches
of any gateway and any order may meet in one minute.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from psycopg import AsyncConnection

from controlplane.domain.rollup import (
    COUNTERS,
    Counts,
    TokenCounts,
    minute_of,
    of_attempt,
    of_refusal,
)
from controlplane.ingest.rows import Item
from controlplane.wire.events import Attempt, Refusal, Tokens

_NO_TOKENS = Tokens()
_TYPES = {"cost_gbp": "numeric", "wasted_gbp": "numeric"} | {
    name: "bigint" for name in COUNTERS if name.endswith(("_tokens", "_sum"))
}
_ADD = f"""
INSERT INTO rollup_minute AS r (gateway_id, circuit_id, minute, {", ".join(COUNTERS)})
SELECT * FROM unnest(
    %s::int[], %s::bigint[], %s::timestamptz[],
    {", ".join(f"%s::{_TYPES.get(name, 'int')}[]" for name in COUNTERS)})
ON CONFLICT (gateway_id, circuit_id, minute) DO UPDATE SET
    {", ".join(f"{name} = r.{name} + EXCLUDED.{name}" for name in COUNTERS)}
"""

Key = tuple[int, int, datetime]


def counted(items: Iterable[Item], gateway_id: int) -> dict[Key, Counts]:
    """What these events add, by gateway, circuit and minute."""
    found: dict[Key, Counts] = {}
    for item in items:
        event = item.event
        if isinstance(event, Attempt):
            counts = _of_attempt(event, item)
        elif isinstance(event, Refusal):
            counts = of_refusal(gate=event.gate, would_have=event.would_have)
        else:
            continue
        assert item.circuit_id is not None
        key = (gateway_id, item.circuit_id, minute_of(event.occurred_at))
        found[key] = found[key] + counts if key in found else counts
    return found


def _of_attempt(event: Attempt, item: Item) -> Counts:
    tokens = event.tokens or _NO_TOKENS
    assert item.cost is not None
    return of_attempt(
        role=event.role,
        verdict=event.verdict,
        counts_against_breaker=event.counts_against_breaker,
        served=event.served,
        tokens=TokenCounts(
            tokens.input or 0,
            tokens.cached_read or 0,
            tokens.cache_write or 0,
            tokens.output or 0,
        ),
        cost_gbp=item.cost.gbp,
        ended_ms=event.ended_ms,
    )


async def add(conn: AsyncConnection, counts: dict[Key, Counts]) -> None:
    """Write the sums inside the caller's transaction."""
    if not counts:
        return
    keys = sorted(counts)
    columns = [[key[i] for key in keys] for i in range(3)]
    columns += [[getattr(counts[key], name) for key in keys] for name in COUNTERS]
    await conn.execute(_ADD, columns)
