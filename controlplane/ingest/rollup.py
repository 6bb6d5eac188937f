"""Add events to the minute rollup, in their batch's own transaction.

Invariant: sums are only ever added to, with rows locked in the order of their keys, so batches of
any gateway and any order may meet in one minute. Histograms are not merged here but laid beside as
parts, whose sum is the histogram: merging in the row was measured at half of all that Postgres did
for small batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain

from psycopg import AsyncConnection, AsyncRawCursor

from controlplane.domain.histogram import bins_of
from controlplane.domain.rollup import COUNTERS, MONEY, MinuteSums, RequestSums
from controlplane.ingest.arrays import array_of, array_of_bins
from controlplane.ingest.rows import Tables
from controlplane.wire.events import Attempt, Outcome, Refusal

# Gateway, circuit and minute (whole minutes since 1970, which is an event id's own time).
Key = tuple[int, int, int]
RequestKey = tuple[int, int]

_MINUTE = "'epoch'::timestamptz + minute * interval '1 minute'"
_VALUES = (*COUNTERS, *MONEY)


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


# The parameters: $1 to $3 keys of minutes, $4 their counters, $5 where in them each
# minute begins, $6 and $7 their bins, $8 to $13 requests, then money.
_ADD_PARTS = f"""
    INSERT INTO rollup_minute_part (gateway_id, circuit_id, minute, latency, first_byte)
    SELECT gateway_id, circuit_id, {_MINUTE}, latency::bigint[], first_byte::bigint[]
    FROM unnest($1::int[], $2::bigint[], $3::int[], $6::text[], $7::text[])
        AS added(gateway_id, circuit_id, minute, latency, first_byte)
    WHERE latency <> '{{}}' OR first_byte <> '{{}}'
"""
_ADD_REQUESTS = f"""
    INSERT INTO rollup_minute_request AS r (
        gateway_id, minute, requests, succeeded, latency, waited)
    SELECT gateway_id, {_MINUTE}, requests, succeeded, latency::bigint[], waited::bigint[]
    FROM unnest($8::int[], $9::int[], $10::int[], $11::int[], $12::text[], $13::text[])
        AS added(gateway_id, minute, requests, succeeded, latency, waited)
    ON CONFLICT (gateway_id, minute) DO UPDATE SET
        requests = r.requests + EXCLUDED.requests,
        succeeded = r.succeeded + EXCLUDED.succeeded,
        latency = switchgear_merge(r.latency, EXCLUDED.latency),
        waited = switchgear_merge(r.waited, EXCLUDED.waited)
"""
_FIRST_OF_MONEY = 14


@cache
def _add_statement(left_out: tuple[bool, ...]) -> tuple[str, tuple[int, ...]]:
    """The statement without these families, and the places of the values that it adds.

    One for three tables, for each statement costs the web process a turn. All stand behind WITH, so
    that Postgres locks the tables in the order written here, which is a rebuild's. Counters are one
    array, minute after minute: of an array for each, Postgres makes a store of rows for each. Where
    a minute begins is said and not counted by Postgres, whose guess of how many rows that gives had
    the statement planned anew each time.
    """
    without = frozenset[str]().union(
        *(family for family, out in zip(_SELDOM, left_out, strict=True) if out)
    )
    counters = [name for name in COUNTERS if name not in without]
    money = [name for name in MONEY if name not in without]
    names = counters + money
    values = [f"($4::bigint[])[at + {place}]" for place, _ in enumerate(counters, 1)] + money
    # Numbered parameters for a raw cursor: a statement of this length would be parsed anew each
    # time.
    amounts = "".join(
        f", unnest(${place}::numeric[])" for place, _ in enumerate(money, _FIRST_OF_MONEY)
    )
    statement = f"""
WITH minutes AS (
    INSERT INTO rollup_minute AS r (gateway_id, circuit_id, minute, {", ".join(names)})
    SELECT gateway_id, circuit_id, {_MINUTE}, {", ".join(values)}
    FROM ROWS FROM (
        unnest($1::int[]), unnest($2::bigint[]), unnest($3::int[]), unnest($5::int[]){amounts}
    ) AS added({", ".join(["gateway_id", "circuit_id", "minute", "at", *money])})
    ON CONFLICT (gateway_id, circuit_id, minute) DO UPDATE SET
        {", ".join(f"{name} = r.{name} + EXCLUDED.{name}" for name in names)}
), parts AS ({_ADD_PARTS}), requests AS ({_ADD_REQUESTS})
SELECT
"""
    return statement, tuple(_VALUES.index(name) for name in names)


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


@dataclass(frozen=True, slots=True)
class Additions:
    """A statement for a raw cursor and what it is given; None when there is nothing to add."""

    statement: tuple[str, list[str]] | None

    async def send(self, conn: AsyncConnection) -> None:
        """Write them inside the caller's transaction, also in a pipeline."""
        if self.statement is not None:
            await AsyncRawCursor(conn).execute(*self.statement)


def additions(new: Tables) -> Additions:
    """What these events add, as it will be sent."""
    minutes, requests = counted(new)
    if not minutes and not requests:
        return Additions(None)
    keys, at = sorted(minutes), sorted(requests)
    sums, ends = [minutes[key] for key in keys], [requests[key] for key in at]
    counts = [*zip(*[s.counts for s in sums], strict=True)] or [()] * len(COUNTERS)
    money = [*zip(*[s.money for s in sums], strict=True)] or [()] * len(MONEY)
    any_of = [any(column) for column in (*counts, *money)]
    left_out = tuple(not any(any_of[place] for place in places) for places in _PLACES)
    statement, places = _add_statement(left_out)
    added = [counts[place] for place in places if place < len(COUNTERS)]
    begins = range(0, len(keys) * len(added), len(added))
    flat = [*chain.from_iterable(zip(*added, strict=True))]
    given = [*_columns(keys, 3), array_of(flat), array_of([*begins])]
    given += [array_of_bins([bins_of(s.latency) for s in sums])]
    given += [array_of_bins([bins_of(s.first_byte) for s in sums])]
    given += [*_columns(at, 2)]
    given += [array_of([e.requests for e in ends]), array_of([e.succeeded for e in ends])]
    given += [array_of_bins([bins_of(e.latency) for e in ends])]
    given += [array_of_bins([bins_of(e.waited) for e in ends])]
    given += [array_of(money[place - len(COUNTERS)]) for place in places if place >= len(COUNTERS)]
    return Additions((statement, given))


def _columns(keys: Sequence[tuple[int, ...]], width: int) -> list[str]:
    return [array_of([key[place] for key in keys]) for place in range(width)]
