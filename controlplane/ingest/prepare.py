"""Look up what a batch's rows need: instance, circuits, prices. Before the transaction.

Invariant: nothing of a batch is stored here but the names of things (an instance, a circuit), each
committed at once, so the transaction that follows is short and waits for nobody's names.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime

from psycopg import AsyncConnection

from controlplane.domain.pricing import PriceBook
from controlplane.ingest.costs import cost_of
from controlplane.ingest.read import ReadBatch
from controlplane.ingest.rows import Item, Origin, TableRows, add_row, circuit_of, no_rows
from controlplane.models.registry import circuit_ids_of, instance_id_of
from controlplane.wire.events import Attempt, Budget

# The loop is given back after so many events: at 10 µs each, others wait 5 ms at most.
_AT_ONCE = 500


@dataclass(slots=True)
class Arrived:
    """A batch that was read, of which gateway, when."""

    gateway_id: int
    batch: ReadBatch
    received_at: datetime


@dataclass(slots=True)
class Prepared:
    """A batch with its rows. ``budgets`` are the items that have no event table."""

    batch: ReadBatch
    origin: Origin
    items: list[Item]
    budgets: list[Item]
    tables: dict[str, TableRows]


async def prepare(conn: AsyncConnection, arrived: Arrived, place: int, book: PriceBook) -> Prepared:
    """The rows of a batch. Raises psycopg's ``ForeignKeyViolation`` when the gateway is gone."""
    batch, now = arrived.batch, arrived.received_at
    instance_id = await instance_id_of(
        conn, arrived.gateway_id, batch.instance, batch.slot, now, alive_at=batch.newest
    )
    origin = Origin(arrived.gateway_id, instance_id, now, place)
    circuits = {index: circuit_of(event) for index, event in batch.events.items()}
    named = {c for c in circuits.values() if c is not None}
    ids = await circuit_ids_of(conn, arrived.gateway_id, named, now)
    prepared = Prepared(batch, origin, [], [], no_rows())
    for count, (index, event) in enumerate(batch.events.items(), 1):
        circuit = circuits[index]
        cost = cost_of(event, book) if isinstance(event, Attempt) else None
        item = Item(origin, index, event, ids[circuit] if circuit else None, cost)
        prepared.items.append(item)
        if isinstance(event, Budget):
            prepared.budgets.append(item)
        else:
            add_row(prepared.tables, item)
        if count % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return prepared
