"""Look up what a batch's rows need: instance, circuits, prices. Before the transaction.

Invariant: nothing of a batch is stored here but the names of things (an instance, a circuit), each
committed at once, so the transaction that follows is short and waits for nobody's names.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from psycopg import AsyncConnection

from controlplane.domain.circuit import Circuit
from controlplane.domain.pricing import PriceBook
from controlplane.ingest.costs import cost_of
from controlplane.ingest.read import ReadBatch
from controlplane.ingest.rows import TABLE_OF, Item, Origin, Tables, no_items
from controlplane.models.registry import Boot, circuit_ids_of, instance_ids
from controlplane.wire.events import Attempt, Refusal, Transition

# The loop is given back after so many events: at 10 µs each, others wait 5 ms at most.
_AT_ONCE = 500
_OF_CIRCUIT = (Attempt, Refusal, Transition)


@dataclass(slots=True)
class Arrived:
    """A batch that was read, of which gateway, when."""

    gateway_id: int
    batch: ReadBatch
    received_at: datetime


@dataclass(slots=True)
class Prepared:
    """A batch with its rows."""

    batch: ReadBatch
    origin: Origin
    items: list[Item]
    tables: Tables


async def prepare(conn: AsyncConnection, arrived: Arrived, place: int, book: PriceBook) -> Prepared:
    """The rows of a batch. Raises psycopg's ``ForeignKeyViolation`` when the gateway is gone."""
    batch, now = arrived.batch, arrived.received_at
    boot = Boot(arrived.gateway_id, batch.instance, batch.slot, alive_at=batch.newest)
    (instance_id,) = (await instance_ids(conn, [boot], now)).values()
    origin = Origin(arrived.gateway_id, instance_id, now, place)
    events = batch.events.values()
    # Plain tuples, which are found as the circuits that they equal: one less object an event.
    named = {(e.provider, e.model, e.region) for e in events if isinstance(e, _OF_CIRCUIT)}
    circuits = {Circuit(*name) for name in named}
    known = await circuit_ids_of(conn, arrived.gateway_id, circuits, now)
    ids = cast("dict[tuple[str, str, str], int]", known)
    prepared = Prepared(batch, origin, [], no_items())
    items, tables = prepared.items, prepared.tables
    for count, (index, event) in enumerate(batch.events.items(), 1):
        circuit = None
        if isinstance(event, _OF_CIRCUIT):
            circuit = ids[event.provider, event.model, event.region]
        cost = cost_of(event, book) if isinstance(event, Attempt) else None
        item = Item(origin, index, event, circuit, cost)
        items.append(item)
        tables[TABLE_OF[type(event)]].append(item)
        if count % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return prepared
