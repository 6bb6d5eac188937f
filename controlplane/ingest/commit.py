"""Commit a group of batches: prepare it, store it, answer each batch.

Invariant: a batch is answered after the commit that holds it, and by its own fate: what is wrong
with one batch never costs another one its place.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import psycopg
from psycopg import AsyncConnection

from controlplane.errors import Busy, Problem
from controlplane.ingest import facts, isolate
from controlplane.ingest.append import NoPartition, Way
from controlplane.ingest.costs import price_book
from controlplane.ingest.facts import Moved, Version
from controlplane.ingest.partitions import ensure_days
from controlplane.ingest.prepare import Arrived, Prepared, prepare
from controlplane.ingest.read import ReadBatch
from controlplane.ingest.receipts import InstanceGone, OlderDatabase, Stored, key_of
from controlplane.ingest.store import Said, store
from controlplane.models.epochs import EpochRefused, renew
from controlplane.models.registry import forget_circuits
from controlplane.notify import observed_changed

_TRIES = 4
_RETRYABLE = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.LockNotAvailable,
)
_version: Version | None = None
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a receipt says, of the batch and of the control plane."""

    stored: Stored
    epoch: str
    generation: int


@dataclass(slots=True)
class Waiting:
    """A batch and its answer to come."""

    arrived: Arrived
    answer: asyncio.Future[Answer]


def fail(group: Sequence[Waiting], error: Exception) -> None:
    """Answer those that have no answer yet."""
    for one in group:
        if not one.answer.done():
            one.answer.set_exception(error)


async def commit(conn: AsyncConnection, group: list[Waiting]) -> None:
    """Store a group and answer each of its batches. Raises what says nothing of the batches."""
    for _ in range(_TRIES):
        version = _version or await _renewed(conn)
        try:
            prepared, faulty = await _prepare(conn, group, version)
            changed = await _store_parted(conn, prepared, version)
            for one, fault in faulty:
                changed |= await _store_without_bad(conn, one, version, fault)
            if changed:
                await observed_changed()
            return
        except Moved as moved:
            _take(moved.version)
        except OlderDatabase as error:
            # First the epoch, then the batch: a death between them must not lose the finding.
            log.warning("a new epoch is asked for: %s", error)
            try:
                await renew(conn, error.gateway_id, version.epoch, str(error), datetime.now(UTC))
            except EpochRefused as refused:
                group = _without(group, error, refused)
            _take(None)
    fail(group, Busy("The database's epoch changes; send the same batch again.", retry_after_s=1))


def _without(group: list[Waiting], older: OlderDatabase, refused: EpochRefused) -> list[Waiting]:
    """The group without the batches of the boot that claims what it may not; they are answered."""
    claimed = (older.gateway_id, older.instance)
    out = [w for w in group if (w.arrived.gateway_id, w.arrived.batch.instance) == claimed]
    wait_s = refused.wait_s
    fail(out, Problem(str(refused), code="epoch_claimed", status=429, retry_after_s=wait_s))
    return [waiting for waiting in group if waiting not in out]


async def _renewed(conn: AsyncConnection) -> Version:
    version = (await facts.told(await facts.ask(conn, [0]))).version
    _take(version)
    return version


def _take(version: Version | None) -> None:
    """Prepare under this version from now on; None: ask for it."""
    global _version
    if version is None or _version is None or version.epoch != _version.epoch:
        # Another database (a restored backup): ids that this process remembers may be wrong.
        forget_circuits()
    _version = version


async def _prepare(
    conn: AsyncConnection, group: Sequence[Waiting], version: Version
) -> tuple[list[tuple[Waiting, Prepared]], list[tuple[Waiting, Exception]]]:
    """The group's rows, and apart the batches that have none, with the fault."""
    book = await price_book(conn, (version.epoch, version.revision))
    prepared: list[tuple[Waiting, Prepared]] = []
    faulty: list[tuple[Waiting, Exception]] = []
    for place, one in enumerate(group):
        try:
            prepared.append((one, await prepare(conn, one.arrived, place, book)))
        except psycopg.errors.ForeignKeyViolation as error:
            # The gateway was deleted since its token was read; the next try is told so.
            fail([one], _deleted(error))
        except Exception as error:
            if isolate.passes(error):
                raise
            faulty.append((one, error))
    return prepared, faulty


def _deleted(error: Exception) -> Busy:
    return _busy("The gateway is being deleted.", 5, error)


def _busy(why: str, retry_after_s: int, cause: Exception) -> Busy:
    busy = Busy(why, retry_after_s=retry_after_s)
    busy.__cause__ = cause
    return busy


async def _store_parted(
    conn: AsyncConnection, group: list[tuple[Waiting, Prepared]], version: Version
) -> bool:
    """Store a group; if that fails for what is in it, each batch alone. Answers every one."""
    if not group:
        return False
    try:
        said = await _store_somehow(conn, [prepared for _, prepared in group], version)
    except Exception as error:
        if isolate.passes(error) and not isinstance(error, InstanceGone | NoPartition):
            raise
        if len(group) > 1:
            return any([await _store_parted(conn, [one], version) for one in group])
        return await _store_without_bad(conn, group[0][0], version, error)
    for waiting, prepared in group:
        _answer(waiting, prepared, said)
    isolate.stored(said.tables)
    return said.changed


async def _store_without_bad(
    conn: AsyncConnection, waiting: Waiting, version: Version, fault: Exception
) -> bool:
    """Store a batch, which has failed with ``fault``, without the events that are to blame.

    Answers it. Raises what says nothing of the batch.
    """

    async def store_part(batch: ReadBatch, *, keep: bool = False) -> tuple[Prepared, Said]:
        book = await price_book(conn, (version.epoch, version.revision))
        prepared = await prepare(conn, replace(waiting.arrived, batch=batch), 0, book)
        return prepared, await _store_somehow(conn, [prepared], version, keep=keep)

    try:
        if isolate.passes(fault):
            raise fault
        log.warning("batch %s is parted", _named(waiting), exc_info=fault)
        arrived = waiting.arrived
        kept = await isolate.Sieve(arrived.gateway_id, arrived.batch, store_part).run(fault)
        prepared, said = await store_part(kept, keep=True)
    except InstanceGone as error:
        # Its gateway was deleted, with all that this process remembers of it.
        forget_circuits()
        fail([waiting], _deleted(error))
        return False
    except isolate.Unfinished as error:
        log.warning("batch %s is to come again: %s", _named(waiting), error)
        fail(
            [waiting],
            _busy("Events of this batch cannot be stored; which is not known yet.", 1, error),
        )
        return False
    except Exception as error:
        if isolate.passes(error) and not isinstance(error, NoPartition):
            raise
        log.error("batch %s was not stored: no event is to blame", _named(waiting), exc_info=error)
        fail([waiting], error)
        return False
    _answer(waiting, prepared, said)
    isolate.stored(said.tables)
    return said.changed


def _named(waiting: Waiting) -> str:
    batch = waiting.arrived.batch
    return f"{batch.seq} of {batch.instance}"


def _answer(waiting: Waiting, prepared: Prepared, said: Said) -> None:
    if not waiting.answer.done():
        generation = said.facts.generations.get(waiting.arrived.gateway_id, 0)
        told = said.receipts[key_of(prepared)]
        waiting.answer.set_result(Answer(told, said.facts.version.epoch, generation))


async def _store_somehow(
    conn: AsyncConnection, group: list[Prepared], version: Version, *, keep: bool = True
) -> Said:
    """The group's transaction, again and another way for what can be put right."""
    way = Way.COPY
    tries = 0
    while True:
        tries += 1
        try:
            return await store(conn, group, way, version, keep=keep)
        except NoPartition:
            if tries == _TRIES:
                raise
            events = (event for one in group for event in one.batch.events.values())
            await ensure_days(conn, {e.occurred_at.astimezone(UTC).date() for e in events})
        except _RETRYABLE:
            if tries == _TRIES:
                raise
            await asyncio.sleep(0.02 * tries)
        except psycopg.errors.UniqueViolation:
            if way is not Way.COPY:
                raise
            way = Way.INSERT
        except (psycopg.DataError, psycopg.errors.CheckViolation):
            if len(group) > 1 or way is Way.EACH:
                raise
            way = Way.EACH
