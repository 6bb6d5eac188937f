"""Add events to the minute rollup, in their batch's own transaction.

Invariant: sums are only ever added to, with rows locked in the order of their keys, so batches of
any gateway and any order may meet in one minute. Histograms are not merged here but laid beside as
parts, whose sum is the histogram: merging in the row was measured at half of all that Postgres did
for small batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache

from psycopg import AsyncConnection, AsyncRawCursor

from controlplane.domain.histogram import bins_of
from controlplane.domain.rollup import COUNTERS, MONEY, MinuteSums, RequestSums
from controlplane.ingest.arrays import array_of, array_of_bins, zeros
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


@dataclass(frozen=True, slots=True)
class Additions:
    """Statements and what each is given: of minutes (for a raw cursor), then those beside them."""

    minutes: tuple[str, list[str]] | None
    beside: list[tuple[str, list[str]]]

    async def send(self, conn: AsyncConnection) -> None:
        """Write them inside the caller's transaction, also in a pipeline."""
        if self.minutes is not None:
            await AsyncRawCursor(conn).execute(*self.minutes)
        for statement, given in self.beside:
            await conn.execute(statement, given)


def additions(new: Tables) -> Additions:
    """What these events add, as it will be sent."""
    minutes, requests = counted(new)
    beside = []
    timed = sorted(key for key, sums in minutes.items() if sums.latency or sums.first_byte)
    if timed:
        bins = [[bins_of(minutes[key].latency) for key in timed]]
        bins.append([bins_of(minutes[key].first_byte) for key in timed])
        beside.append((_ADD_PARTS, [*_columns(timed), *map(array_of_bins, bins)]))
    if requests:
        at = sorted(requests)
        ends = [requests[key] for key in at]
        counts = [array_of([e.requests for e in ends]), array_of([e.succeeded for e in ends])]
        bins = [[bins_of(e.latency) for e in ends], [bins_of(e.waited) for e in ends]]
        beside.append((_ADD_REQUESTS, [*_columns(at), *counts, *map(array_of_bins, bins)]))
    return Additions(_minutes_added(minutes) if minutes else None, beside)


def _minutes_added(minutes: dict[Key, MinuteSums]) -> tuple[str, list[str]]:
    keys = sorted(minutes)
    sums = [minutes[key] for key in keys]
    columns: list[tuple[int, ...] | tuple[Decimal, ...]]
    columns = [*zip(*[s.counts for s in sums], strict=True)]
    columns += zip(*[s.money for s in sums], strict=True)
    any_of = [any(column) for column in columns]
    left_out = tuple(not any(any_of[place] for place in places) for places in _PLACES)
    statement, places = _add_statement(left_out)
    none = zeros(len(keys))
    return statement, _columns(keys) + [
        array_of(columns[place]) if any_of[place] else none for place in places
    ]


def _columns(keys: Sequence[tuple[int, ...]]) -> list[str]:
    return [array_of(column) for column in zip(*keys, strict=True)]
