"""Events as rows: the columns of each event table, and one tuple for each event.

Invariant: the order of a table's columns here is the order of its tuples; tests/…/test_rows holds
both against the database's own description.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from controlplane.domain.circuit import Circuit
from controlplane.domain.pricing import Cost
from controlplane.wire.events import (
    AnyEvent,
    Attempt,
    Budget,
    Outcome,
    Refusal,
    Tokens,
    Transition,
)

_COMMON = (("gateway_id", "int4"), ("instance_id", "int8"))
_STAMPS = (("id", "uuid"), ("occurred_at", "timestamptz"), ("received_at", "timestamptz"))
_CIRCUIT = (("circuit_id", "int8"),)

# Table -> (column, type); written in this order of tables, so that two batches cannot deadlock.
TABLES: dict[str, tuple[tuple[str, str], ...]] = {
    "attempt": (
        *_COMMON,
        *_STAMPS,
        *_CIRCUIT,
        ("request", "uuid"),
        ("task", "text"),
        ("ordinal", "int2"),
        ("role", "text"),
        ("rerouted", "bool"),
        ("key", "text"),
        ("tenant", "text"),
        ("route", "text"),
        ("served_model", "text"),
        ("status", "int2"),
        ("verdict", "text"),
        ("reason", "text"),
        ("counts", "bool"),
        ("retry_after_s", "float8"),
        ("first_byte_ms", "int4"),
        ("ended_ms", "int4"),
        ("waited_ms", "int4"),
        ("input_tokens", "int8"),
        ("cached_tokens", "int8"),
        ("cache_write_tokens", "int8"),
        ("output_tokens", "int8"),
        ("reasoning_tokens", "int8"),
        ("tokens_estimated", "bool"),
        ("service_tier", "text"),
        ("billing", "text"),
        ("served", "bool"),
        ("generation", "int8"),
        ("cost_native", "numeric"),
        ("currency", "text"),
        ("cost_gbp", "numeric"),
        ("cost_status", "text"),
        ("price_id", "int8"),
        ("fx_id", "int8"),
    ),
    "refusal": (
        *_COMMON,
        *_STAMPS,
        *_CIRCUIT,
        ("request", "uuid"),
        ("task", "text"),
        ("key", "text"),
        ("tenant", "text"),
        ("route", "text"),
        ("gate", "text"),
        ("detail", "text"),
        ("would_have", "bool"),
        ("generation", "int8"),
    ),
    "outcome": (
        *_COMMON,
        *_STAMPS,
        ("request", "uuid"),
        ("task", "text"),
        ("tenant", "text"),
        ("route", "text"),
        ("success", "bool"),
        ("explicit", "bool"),
        ("reason", "text"),
        ("started_at", "timestamptz"),
        ("ended_at", "timestamptz"),
        ("latency_ms", "int4"),
        ("waited_ms", "int4"),
    ),
    "transition": (
        *_COMMON,
        *_STAMPS,
        *_CIRCUIT,
        ("number", "int8"),
        ("from_state", "text"),
        ("to_state", "text"),
        ("cause", "text"),
        ("mode", "text"),
        ("calls", "int8"),
        ("failures", "int8"),
        ("slow", "int8"),
        ("consecutive", "int8"),
        ("next_probe_at", "timestamptz"),
        ("generation", "int8"),
    ),
}
_NO_TOKENS = Tokens()


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose batch it is, when it arrived, and its place in the group that is committed."""

    gateway_id: int
    instance_id: int
    received_at: datetime
    place: int


class Item(NamedTuple):
    """One event on its way into the database. ``index``: its place in its batch."""

    origin: Origin
    index: int
    event: AnyEvent
    circuit_id: int | None
    cost: Cost | None


@dataclass(slots=True)
class TableRows:
    """The rows of one table with the items they came from, in the same order."""

    items: list[Item] = field(default_factory=list)
    rows: list[tuple[Any, ...]] = field(default_factory=list)


def circuit_of(event: AnyEvent) -> Circuit | None:
    """The circuit that an event is about; outcomes and budgets have none."""
    if isinstance(event, Outcome | Budget):
        return None
    return Circuit(event.provider, event.model, event.region)


def add_row(tables: dict[str, TableRows], item: Item) -> None:
    """Put an event's row into its table's. Budgets have none: only their newest word is kept."""
    origin, _, event, circuit_id, cost = item
    stamps = (
        origin.gateway_id,
        origin.instance_id,
        event.id,
        event.occurred_at,
        origin.received_at,
    )
    row: tuple[Any, ...]
    if isinstance(event, Attempt):
        assert cost is not None
        table, row = tables["attempt"], (*stamps, circuit_id, *_attempt(event, cost))
    elif isinstance(event, Refusal):
        table, row = tables["refusal"], (*stamps, circuit_id, *_refusal(event))
    elif isinstance(event, Outcome):
        table, row = tables["outcome"], (*stamps, *_outcome(event))
    elif isinstance(event, Transition):
        table, row = tables["transition"], (*stamps, circuit_id, *_transition(event))
    else:
        return
    table.items.append(item)
    table.rows.append(row)


def no_rows() -> dict[str, TableRows]:
    """Every event table, empty, in the order in which they are written."""
    return {name: TableRows() for name in TABLES}


def joined(parts: list[dict[str, TableRows]]) -> dict[str, TableRows]:
    """One set of tables of several batches, each event once, by id; tables without rows are left
    out.

    By id, so that two transactions with the same events wait for each other in the same order. An
    event that stands twice is the first one's: the first batch's, the first place's.
    """
    tables: dict[str, TableRows] = {}
    for name in TABLES:
        rows = [row for part in parts for row in part[name].rows]
        if rows:
            items = [item for part in parts for item in part[name].items]
            tables[name] = _by_id(items, rows)
    return tables


def _by_id(items: list[Item], rows: list[tuple[Any, ...]]) -> TableRows:
    ids = [item.event.id.int for item in items]
    order = sorted(range(len(ids)), key=ids.__getitem__)
    if len(set(ids)) < len(ids):
        seen: set[tuple[int, int, datetime]] = set()
        once = []
        for place in order:
            item = items[place]
            key = (item.origin.gateway_id, ids[place], item.event.occurred_at)
            if key not in seen:
                seen.add(key)
                once.append(place)
        order = once
    return TableRows([items[place] for place in order], [rows[place] for place in order])


def _attempt(event: Attempt, cost: Cost) -> tuple[Any, ...]:
    tokens = event.tokens or _NO_TOKENS
    return (
        event.request,
        event.task or None,
        event.ordinal,
        event.role,
        event.rerouted,
        event.key,
        event.tenant,
        event.route,
        event.served_model,
        event.status,
        event.verdict,
        event.reason,
        event.counts_against_breaker,
        event.retry_after_s,
        event.first_byte_ms,
        event.ended_ms,
        event.waited_ms,
        tokens.input,
        tokens.cached_read,
        tokens.cache_write,
        tokens.output,
        tokens.reasoning_in_output,
        tokens.estimated,
        event.service_tier,
        event.billing,
        event.served,
        event.generation,
        cost.native,
        cost.currency,
        cost.gbp,
        cost.status.value,
        cost.price_id,
        cost.fx_id,
    )


def _refusal(event: Refusal) -> tuple[Any, ...]:
    return (
        event.request,
        event.task or None,
        event.key,
        event.tenant,
        event.route,
        event.gate,
        event.detail,
        event.would_have,
        event.generation,
    )


def _outcome(event: Outcome) -> tuple[Any, ...]:
    return (
        event.request,
        event.task or None,
        event.tenant,
        event.route,
        event.success,
        event.explicit,
        event.reason,
        event.started_at,
        event.ended_at,
        event.latency_ms,
        event.waited_ms,
    )


def _transition(event: Transition) -> tuple[Any, ...]:
    return (
        event.number,
        event.from_state,
        event.to_state,
        event.cause,
        event.mode,
        event.counters.calls,
        event.counters.failures,
        event.counters.slow,
        event.counters.consecutive,
        event.next_probe_at,
        event.generation,
    )
