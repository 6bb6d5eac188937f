"""Events as rows: the columns of each event table, and one tuple for each event.

Invariant: the order of a table's columns here is the order of its tuples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

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
    "budget_event": (
        *_COMMON,
        *_STAMPS,
        ("scope", "text"),
        ("balance", "int8"),
        ("earned", "int8"),
        ("spent", "int8"),
        ("refused", "int8"),
        ("window_s", "float8"),
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


class Item(msgspec.Struct, frozen=True, gc=False):
    """One event on its way into the database. ``index``: its place in its batch."""

    origin: Origin
    index: int
    event: AnyEvent
    circuit_id: int | None
    cost: Cost | None


Tables = dict[str, list[Item]]
"""Items by the event table that they are stored in."""

TABLE_OF: dict[type, str] = {
    Attempt: "attempt",
    Refusal: "refusal",
    Outcome: "outcome",
    Transition: "transition",
    Budget: "budget_event",
}


def row_of(table: str, item: Item) -> tuple[Any, ...]:
    """The values of an event's row, in the order of its table's columns."""
    origin, event = item.origin, item.event
    return (
        origin.gateway_id,
        origin.instance_id,
        event.id,
        event.occurred_at,
        origin.received_at,
        *_REST[table](item, event),
    )


def no_items() -> Tables:
    """Every event table, empty, in the order in which they are written."""
    return {name: [] for name in TABLES}


def joined(parts: list[Tables]) -> Tables:
    """One set of tables of several batches, each event once, by id; tables without items are left
    out.

    By id, so that two transactions with the same events wait for each other in the same order. An
    event that stands twice is the first one's: the first batch's, the first place's.
    """
    tables: Tables = {}
    for name in TABLES:
        items = [item for part in parts for item in part[name]]
        if items:
            tables[name] = _by_id(items)
    return tables


def _by_id(items: list[Item]) -> list[Item]:
    ids = [item.event.id.int for item in items]
    order = sorted(range(len(ids)), key=ids.__getitem__)
    if len(set(ids)) == len(ids):
        return [items[place] for place in order]
    seen: set[tuple[int, int, datetime]] = set()
    once = []
    for place in order:
        item = items[place]
        key = (item.origin.gateway_id, ids[place], item.event.occurred_at)
        if key not in seen:
            seen.add(key)
            once.append(item)
    return once


def _attempt(item: Item, event: Attempt) -> tuple[Any, ...]:
    tokens, cost = event.tokens or _NO_TOKENS, item.cost
    assert cost is not None
    return (
        item.circuit_id,
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
        str(cost.status),  # the property .value takes three times as long
        cost.price_id,
        cost.fx_id,
    )


def _refusal(item: Item, event: Refusal) -> tuple[Any, ...]:
    return (
        item.circuit_id,
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


def _outcome(_: Item, event: Outcome) -> tuple[Any, ...]:
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


def _transition(item: Item, event: Transition) -> tuple[Any, ...]:
    return (
        item.circuit_id,
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


def _budget(_: Item, event: Budget) -> tuple[Any, ...]:
    return (
        event.scope,
        event.balance,
        event.earned,
        event.spent,
        event.refused,
        event.window_s,
    )


_REST: dict[str, Callable[[Item, Any], tuple[Any, ...]]] = {
    "attempt": _attempt,
    "refusal": _refusal,
    "outcome": _outcome,
    "transition": _transition,
    "budget_event": _budget,
}
