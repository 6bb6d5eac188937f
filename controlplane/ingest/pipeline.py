"""One batch of a gateway: validate, append, fold, notify.

Invariant: the answer is given after the commit and never before; a batch that is answered is stored
once, whatever dies at whatever moment. A batch is refused as a whole only if its head is unreadable
or Postgres is away; whatever one event is, it never becomes a batch that is sent for ever.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import psycopg
from django.conf import settings
from psycopg import AsyncConnection
from psycopg_pool import PoolTimeout

from controlplane.errors import Busy
from controlplane.ingest import receipts
from controlplane.ingest.append import NoPartition, append
from controlplane.ingest.costs import cost_of, price_book
from controlplane.ingest.fold import fold
from controlplane.ingest.partitions import ensure_days
from controlplane.ingest.read import ReadBatch, read_batch, timeliness
from controlplane.ingest.receipts import Stored
from controlplane.ingest.rows import Item, Origin, circuit_of, table_rows
from controlplane.models.pool import pool
from controlplane.models.registry import circuit_ids, forget_circuits, instance_row
from controlplane.notify import observed_changed
from controlplane.wire.events import Attempt, Receipt, Unread

_TRIES = 4
_RETRYABLE = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.LockNotAvailable,
)
_FACTS = """
SELECT r.epoch::text, r.value, COALESCE(c.generation, 0)
FROM revision r LEFT JOIN gateway_config c ON c.gateway_id = %s
"""
_epoch = ""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Facts:
    """What every receipt says of the control plane."""

    epoch: str
    revision: int
    generation: int


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A batch with everything looked up that its rows need."""

    batch: ReadBatch
    origin: Origin
    items: list[Item]


async def accept(gateway_id: int, body: bytes, now: datetime) -> Receipt:
    """Store a batch (unpacked JSON) that arrived at ``now``; ``Problem`` when it cannot be."""
    batch = read_batch(body, now=now, retention=timedelta(days=settings.RAW_RETENTION_DAYS))
    try:
        async with (await pool()).connection() as conn:
            facts = await _facts(conn, gateway_id)
            prepared = await _prepare(conn, batch, gateway_id, facts, now)
            said, changed = await _store_with_retries(conn, prepared)
    except psycopg.errors.ForeignKeyViolation as error:
        # The gateway was deleted since its token was read; the next try is told so.
        raise Busy("The gateway is being deleted.", retry_after_s=5) from error
    except (psycopg.OperationalError, PoolTimeout) as error:
        log.warning("a batch of gateway %s was not stored: %s", gateway_id, error)
        raise Busy(
            "Postgres is away or busy; send the same batch again.", retry_after_s=2
        ) from error
    if changed:
        await observed_changed()
    return Receipt(
        seq=batch.seq,
        epoch=facts.epoch,
        contiguous=said.contiguous,
        generation=facts.generation,
        server_time=now,
        stored=said.stored,
        duplicates=said.duplicates,
        unread=said.unread,
    )


async def _facts(conn: AsyncConnection, gateway_id: int) -> _Facts:
    global _epoch
    row = await (await conn.execute(_FACTS, (gateway_id,))).fetchone()
    assert row is not None, "the revision row is missing: run manage.py migrate"
    if row[0] != _epoch:
        # Another database (a restored backup): ids that this process remembers may be wrong.
        forget_circuits()
        _epoch = row[0]
    return _Facts(*row)


async def _prepare(
    conn: AsyncConnection, batch: ReadBatch, gateway_id: int, facts: _Facts, now: datetime
) -> _Prepared:
    """Look up instance, circuits and prices before the transaction, so that it stays short."""
    instance_id, _ = await instance_row(
        conn, gateway_id, batch.instance, batch.slot, now, alive_at=batch.newest()
    )
    circuits = {index: circuit_of(event) for index, event in batch.events.items()}
    ids = await circuit_ids(conn, {c for c in circuits.values() if c is not None}, now)
    book = await price_book(conn, (facts.epoch, facts.revision))
    items = []
    for index, event in batch.events.items():
        circuit = circuits[index]
        cost = cost_of(event, book) if isinstance(event, Attempt) else None
        items.append(Item(index, event, ids[circuit] if circuit else None, cost))
    return _Prepared(batch, Origin(gateway_id, instance_id, now), items)


async def _store_with_retries(conn: AsyncConnection, prepared: _Prepared) -> tuple[Stored, bool]:
    for attempt in range(1, _TRIES + 1):
        try:
            async with conn.transaction():
                return await _store(conn, prepared)
        except NoPartition:
            if attempt == _TRIES:
                raise
            days = {
                event.occurred_at.astimezone(UTC).date() for event in prepared.batch.events.values()
            }
            await ensure_days(conn, days)
        except _RETRYABLE:
            if attempt == _TRIES:
                raise
            await asyncio.sleep(0.02 * attempt)
    raise AssertionError("unreachable")


async def _store(conn: AsyncConnection, prepared: _Prepared) -> tuple[Stored, bool]:
    """The batch's one transaction. True when what the wall shows has changed."""
    batch, origin, items = prepared.batch, prepared.origin, prepared.items
    if not await receipts.claim(conn, batch, origin):
        return await receipts.earlier(conn, batch, origin), False
    contiguous = await receipts.lock_instance(conn, origin)
    appended = await append(conn, table_rows(items, origin))
    letters = list(batch.unread)
    letters += [batch.letter(item.index, why) for item, why in appended.refused]
    letters.sort(key=lambda letter: letter.index)
    budgets = [item for item in items if item.is_budget]
    changed = await fold(conn, [*appended.new, *budgets], origin)
    contiguous = await receipts.move_on(conn, batch, origin, contiguous)
    stored = len(appended.new) + len(budgets)
    said = Stored(
        stored=stored,
        duplicates=len(items) - stored - len(appended.refused),
        unread=[Unread(index=letter.index, reason=letter.reason) for letter in letters],
        contiguous=contiguous,
    )
    ages = [timeliness(item.event.occurred_at, origin.received_at) for item in items]
    await receipts.fill(
        conn, batch, origin, said, late=ages.count("late"), skewed=ages.count("skewed")
    )
    await receipts.keep_letters(conn, batch, origin, letters)
    return said, changed
