"""Add events to the minute rollup, in their batch's own transaction.

Invariant: sums are only ever added to, with rows locked in the order of their keys, so batches of
any gateway and any order may meet in one minute. Histograms are not merged here but laid beside as
parts, whose sum is the histogram: merging in the row was measured at half of all that Postgres did
for small batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from psycopg import AsyncConnection, AsyncRawCursor

from controlplane.domain.histogram import bins_of
from controlplane.domain.rollup import COUNTERS, MONEY, MinuteSums, RequestSums
from controlplane.ingest.arrays import array_of, zeros
from controlplane.ingest.rows import Tables
from controlplane.wire.events import Attempt, Outcome, Refusal

# Gateway, circuit and minute (whole minutes since 1970, which is an event id's own time).
Key = tuple[int, int, int]
RequestKey = tuple[int, int]

_BIGINTS = frozenset(n for n in COUNTERS if n.endswith(("_tokens", "_sum")))
_MINUTE = "'epoch'::timestamptz + minute * interval '1 minute'"
_VALUES = (*COUNTERS, *MONEY)


def _type(name: str) -> str:
    if name in MONEY:
        return "numeric"
    return "bigint" if name in _BIGINTS else "int"


# What most groups add nothing to, in families: a statement for each set of families, sixteen in
# all, so that each is prepared once. The columns left out were a third of the upsert's cost.
_SELDOM = (
    frozenset(n for n in COUNTERS if n.startswith("refused_") or n == "would_refuse"),
    frozenset(
        (
            *("fallbacks", "redeliveries", "rerouted", "permanent", "partial"),
            *("client_cancelled", "client_deadline", "local_fault"),
        )
    ),
    frozenset(("cache_write_tokens", "reasoning_tokens", "wasted_tokens", "wasted_gbp")),
    frozenset(
        (
            *("unpriced", "wasted_unpriced", "cost_estimated", "cost_unpriced", "cost_unknown"),
            *("cost_invalid_usage", "estimated_gbp", "wasted_estimated_gbp"),
        )
    ),
)
_PLACES = [[_VALUES.index(name) for name in sorted(family)] for family in _SELDOM]


@cache
def _add_statement(left_out: tuple[bool, ...]) -> tuple[str, tuple[int, ...]]:
    """The upsert without these families, and the places of the values that it adds."""
    without = frozenset[str]().union(
        *(family for family, out in zip(_SELDOM, left_out, strict=True) if out)
    )
    names = [name for name in _VALUES if name not in without]
    # Numbered parameters for a raw cursor: a statement of this length would be parsed anew each
    # time.
    given = ", ".join(f"${place}::{_type(name)}[]" for place, name in enumerate(names, 4))
    listed = ", ".join(names)
    statement = f"""
INSERT INTO rollup_minute AS r (gateway_id, circuit_id, minute, {listed})
SELECT gateway_id, circuit_id, {_MINUTE}, {listed}
FROM unnest($1::int[], $2::bigint[], $3::int[], {given})
    AS added(gateway_id, circuit_id, minute, {listed})
ON CONFLICT (gateway_id, circuit_id, minute) DO UPDATE SET
    {", ".join(f"{name} = r.{name} + EXCLUDED.{name}" for name in names)}
"""
    return statement, tuple(_VALUES.index(name) for name in names)


_ADD_PARTS = f"""
INSERT INTO rollup_minute_part (gateway_id, circuit_id, minute, latency, first_byte)
SELECT gateway_id, circuit_id, {_MINUTE}, latency::bigint[], first_byte::bigint[]
FROM unnest(%s::int[], %s::bigint[], %s::int[], %s::text[], %s::text[])
    AS added(gateway_id, circuit_id, minute, latency, first_byte)
"""
_ADD_REQUESTS = f"""
INSERT INTO rollup_minute_request AS r (
    gateway_id, minute, requests, succeeded, latency, waited)
SELECT gateway_id, {_MINUTE}, requests, succeeded, latency::bigint[], waited::bigint[]
FROM unnest(%s::int[], %s::int[], %s::int[], %s::int[], %s::text[], %s::text[])
    AS added(gateway_id, minute, requests, succeeded, latency, waited)
ON CONFLICT (gateway_id, minute) DO UPDATE SET
    requests = r.requests + EXCLUDED.requests,
    succeeded = r.succeeded + EXCLUDED.succeeded,
    latency = switchgear_merge(r.latency, EXCLUDED.latency),
    waited = switchgear_merge(r.waited, EXCLUDED.waited)
"""


def counted(new: Tables) -> tuple[dict[Key, MinuteSums], dict[RequestKey, RequestSums]]:
    """What these events add: by gateway, circuit and minute, and requests by gateway and minute."""
    minutes: dict[Key, MinuteSums] = {}
    requests: dict[RequestKey, RequestSums] = {}
    for item in (*new.get("attempt", ()), *new.get("refusal", ())):
        event, circuit_id = item.event, item.circuit_id
        assert circuit_id is not None
        key = (item.origin.gateway_id, circuit_id, (event.id.int >> 80) // 60_000)
        sums = minutes.get(key)
        if sums is None:
            sums = minutes[key] = MinuteSums()
        if isinstance(event, Attempt):
            assert item.cost is not None
            sums.add_attempt(event, item.cost)
        elif isinstance(event, Refusal):
            sums.add_refusal(gate=event.gate, would_have=event.would_have)
    for item in new.get("outcome", ()):
        event = item.event
        if not isinstance(event, Outcome) or event.explicit:
            continue
        at = (item.origin.gateway_id, (event.id.int >> 80) // 60_000)
        ends = requests.get(at)
        if ends is None:
            ends = requests[at] = RequestSums()
        ends.add(success=event.success, latency_ms=event.latency_ms, waited_ms=event.waited_ms)
    return minutes, requests


async def add(
    conn: AsyncConnection,
    minutes: dict[Key, MinuteSums],
    requests: dict[RequestKey, RequestSums],
) -> None:
    """Write the sums inside the caller's transaction."""
    if minutes:
        keys = sorted(minutes)
        columns = list(
            zip(*((*s.counts, *s.money) for s in (minutes[key] for key in keys)), strict=True)
        )
        any_of = [any(column) for column in columns]
        left_out = tuple(not any(any_of[place] for place in places) for places in _PLACES)
        statement, places = _add_statement(left_out)
        given = [array_of(column) for column in zip(*keys, strict=True)]
        given += [array_of(columns[p]) if any_of[p] else zeros(len(keys)) for p in places]
        await AsyncRawCursor(conn).execute(statement, given)
        timed = [key for key in keys if minutes[key].latency or minutes[key].first_byte]
        if timed:
            parts: list[Sequence[object]] = list(zip(*timed, strict=True))
            parts += [
                [_bins(minutes[key].latency) for key in timed],
                [_bins(minutes[key].first_byte) for key in timed],
            ]
            await conn.execute(_ADD_PARTS, [array_of(column) for column in parts])
    if requests:
        at = sorted(requests)
        ends = [requests[key] for key in at]
        columns = [*zip(*at, strict=True), [e.requests for e in ends], [e.succeeded for e in ends]]
        columns += [[_bins(e.latency) for e in ends], [_bins(e.waited) for e in ends]]
        await conn.execute(_ADD_REQUESTS, [array_of(column) for column in columns])


def _bins(counts: dict[int, int]) -> str:
    return f'"{array_of(bins_of(counts))}"'
