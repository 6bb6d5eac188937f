"""Commit a group of batches: prepare it, store it, answer each batch.

Invariant: a batch is answered after the commit that holds it, and by its own fate: what is wrong
with one batch never costs another one its place.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import psycopg
from psycopg import AsyncConnection

from controlplane.errors import Busy
from controlplane.ingest import facts
from controlplane.ingest.append import NoPartition, Way
from controlplane.ingest.costs import price_book
from controlplane.ingest.facts import Moved, Version
from controlplane.ingest.partitions import ensure_days
from controlplane.ingest.prepare import Arrived, Prepared, prepare
from controlplane.ingest.receipts import InstanceGone, OlderDatabase, Stored, key_of
from controlplane.ingest.store import Said, store
from controlplane.models.epochs import renew
from controlplane.models.pool import AWAY
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
            prepared = await _prepare(conn, group, version)
            if await _store_parted(conn, prepared, version):
                await observed_changed()
            return
        except Moved as moved:
            _take(moved.version)
        except OlderDatabase as error:
            # First the epoch, then the batch: a death between them must not lose the finding.
            log.warning("a new epoch: %s", error)
            await renew(conn, version.epoch, str(error), datetime.now(UTC))
            _take(None)
    fail(group, Busy("The database's epoch changes; send the same batch again.", retry_after_s=1))


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
) -> list[tuple[Waiting, Prepared]]:
    book = await price_book(conn, (version.epoch, version.revision))
    prepared = []
    for place, one in enumerate(group):
        try:
            prepared.append((one, await prepare(conn, one.arrived, place, book)))
        except psycopg.errors.ForeignKeyViolation as error:
            # The gateway was deleted since its token was read; the next try is told so.
            fail([one], _deleted(error))
        except AWAY:
            raise
        except Exception as error:
            log.exception("a batch of gateway %d was not prepared", one.arrived.gateway_id)
            fail([one], error)
    return prepared


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
        parts = [prepared for _, prepared in group]
        said = await _store_somehow(conn, parts, version)
    except (psycopg.DataError, psycopg.IntegrityError, InstanceGone, NoPartition) as error:
        if len(group) > 1:
            return any([await _store_parted(conn, [one], version) for one in group])
        if isinstance(error, InstanceGone):
            # Its gateway was deleted, with all that this process remembers of it.
            forget_circuits()
            error = _deleted(error)
        else:
            log.exception("a batch was not stored")
        fail([group[0][0]], error)
        return False
    for waiting, prepared in group:
        if not waiting.answer.done():
            generation = said.facts.generations.get(waiting.arrived.gateway_id, 0)
            answer = Answer(said.receipts[key_of(prepared)], version.epoch, generation)
            waiting.answer.set_result(answer)
    return said.changed


async def _store_somehow(conn: AsyncConnection, group: list[Prepared], version: Version) -> Said:
    """The group's transaction, again and another way for what can be put right."""
    way = Way.COPY
    tries = 0
    while True:
        tries += 1
        try:
            return await store(conn, group, way, version)
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
