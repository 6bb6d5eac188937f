"""Grouped commits: batches that arrive together share a transaction.

Invariants: a batch is answered after the commit that holds it, and by its own fate: what is wrong
with one batch never costs another one its place. At most ``LANES`` groups are under way at once,
so that one is decoded while Postgres works on the other; who comes meanwhile is the next group.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from weakref import WeakKeyDictionary

import psycopg
from psycopg import AsyncConnection

from controlplane.errors import Busy
from controlplane.ingest.append import NoPartition, Way
from controlplane.ingest.costs import price_book
from controlplane.ingest.partitions import ensure_days
from controlplane.ingest.prepare import Arrived, Prepared, prepare
from controlplane.ingest.receipts import InstanceGone, Key, OlderDatabase, Stored, key_of
from controlplane.ingest.store import store
from controlplane.models.epochs import renew
from controlplane.models.pool import AWAY, pool
from controlplane.models.registry import forget_circuits
from controlplane.notify import observed_changed

LANES = 2
# With less than this waiting, one lane alone makes larger groups at less cost.
_SECOND_LANE_EVENTS = 1000
_GATHER_S = 0.001
# A group is at most so many batches, and no batch is added to one that has so many events.
MOST_BATCHES = 64
MOST_EVENTS = 2500
_TRIES = 4
_RETRYABLE = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.LockNotAvailable,
)
_FACTS = """
SELECT g.id, r.epoch::text, r.value, COALESCE(c.generation, 0)
FROM revision r
CROSS JOIN unnest(%s::int[]) AS g(id)
LEFT JOIN gateway_config c ON c.gateway_id = g.id
"""
_epoch = ""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a receipt says, of the batch and of the control plane."""

    stored: Stored
    epoch: str
    generation: int


@dataclass(slots=True)
class _Waiting:
    arrived: Arrived
    answer: asyncio.Future[Answer]


@dataclass(frozen=True, slots=True)
class _Facts:
    epoch: str
    revision: int
    generations: dict[int, int]


class Committer:
    """The groups of one event loop."""

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()
        self._events = 0
        self._open = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def store(self, arrived: Arrived) -> Answer:
        """Store a batch with whatever comes beside it; ``Busy`` when it was not stored."""
        waiting = _Waiting(arrived, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._events += len(arrived.batch.events)
        if not self._open or (self._open < LANES and self._events >= _SECOND_LANE_EVENTS):
            self._open += 1
            task = asyncio.create_task(self._lane())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        answer = waiting.answer
        del waiting
        try:
            return await answer
        finally:
            # An error's traceback holds this frame, and the answer holds the error: without this
            # circle a batch that was not stored is gone at once, not when the collector comes.
            del answer

    async def _lane(self) -> None:
        try:
            await self._work()
        finally:
            self._open -= 1  # not by the task's callback: a batch that comes before needs a lane

    async def _work(self) -> None:
        """Commit group after group on one connection; a new one after a fault."""
        while self._waiting:
            group: list[_Waiting] = []
            try:
                async with (await pool()).connection() as conn:
                    while self._waiting:
                        await self._gather(len(group))
                        group = self._next_group()
                        if group:
                            await _commit(conn, group)
            except AWAY as error:
                group = group or self._next_group()
                log.warning("%d batches were not stored: %s", len(group), str(error))
                # Without its cause, whose traceback holds the group.
                _fail(group, Busy("Postgres is away; send the same batch again.", retry_after_s=2))
            except Exception as error:
                group = group or self._next_group()
                log.exception("a group of %d batches was not stored", len(group))
                _fail(group, error)
            except BaseException:
                _fail([*group, *self._waiting], Busy("The server is stopping.", retry_after_s=1))
                raise

    async def _gather(self, before: int) -> None:
        """Let in those whom the group ``before`` has just answered, if they send small batches."""
        # Else two halves of them take turns, in groups of half the size. Who is alone never waits.
        waiting = -1
        while before > 1 and waiting < len(self._waiting) and self._events < _SECOND_LANE_EVENTS:
            waiting = len(self._waiting)
            await asyncio.sleep(_GATHER_S)

    def _next_group(self) -> list[_Waiting]:
        group: list[_Waiting] = []
        keys: set[tuple[object, ...]] = set()
        events = 0
        while self._waiting and len(group) < MOST_BATCHES and events < MOST_EVENTS:
            batch = self._waiting[0].arrived.batch
            key = (self._waiting[0].arrived.gateway_id, batch.instance, batch.seq)
            if key in keys:
                # A repeat is answered from the receipt that this group is about to write.
                break
            keys.add(key)
            events += len(batch.events)
            group.append(self._waiting.popleft())
        self._events -= events
        return group


_committers: WeakKeyDictionary[asyncio.AbstractEventLoop, Committer] = WeakKeyDictionary()


def committer() -> Committer:
    """The running loop's."""
    return _committers.setdefault(asyncio.get_running_loop(), Committer())


def _fail(group: Sequence[_Waiting], error: Exception) -> None:
    for one in group:
        if not one.answer.done():
            one.answer.set_exception(error)


async def _commit(conn: AsyncConnection, group: list[_Waiting]) -> None:
    for _ in range(_TRIES):
        facts = await _facts(conn, group)
        if (why := _ahead(group, facts)) is None:
            try:
                prepared = await _prepare(conn, group, facts)
                if await _store_parted(conn, prepared, facts):
                    await observed_changed()
                return
            except OlderDatabase as error:
                why = str(error)
        # First the epoch, then the batch: a death between them must not lose the finding.
        log.warning("a new epoch: %s", why)
        await renew(conn, facts.epoch, why, datetime.now(UTC))
    _fail(group, Busy("The database's epoch changes; send the same batch again.", retry_after_s=1))


def _ahead(group: Sequence[_Waiting], facts: _Facts) -> str | None:
    """Why this database must be older than what a gateway of its epoch was told; None if not."""
    for one in group:
        batch, known = one.arrived.batch, facts.generations.get(one.arrived.gateway_id)
        if known is not None and batch.epoch == facts.epoch and batch.generation > known:
            return (
                f"instance {batch.instance} ({batch.slot}) was told generation"
                f" {batch.generation}; this database has {known}"
            )
    return None


async def _facts(conn: AsyncConnection, group: Sequence[_Waiting]) -> _Facts:
    global _epoch
    gateways = sorted({one.arrived.gateway_id for one in group})
    rows = await (await conn.execute(_FACTS, (gateways,))).fetchall()
    assert rows, "the revision row is missing: run manage.py migrate"
    epoch, revision = rows[0][1], rows[0][2]
    if epoch != _epoch:
        # Another database (a restored backup): ids that this process remembers may be wrong.
        forget_circuits()
        _epoch = epoch
    return _Facts(epoch, revision, {row[0]: row[3] for row in rows})


async def _prepare(
    conn: AsyncConnection, group: Sequence[_Waiting], facts: _Facts
) -> list[tuple[_Waiting, Prepared]]:
    book = await price_book(conn, (facts.epoch, facts.revision))
    prepared = []
    for place, one in enumerate(group):
        try:
            prepared.append((one, await prepare(conn, one.arrived, place, book)))
        except psycopg.errors.ForeignKeyViolation as error:
            # The gateway was deleted since its token was read; the next try is told so.
            _fail([one], _deleted(error))
        except AWAY:
            raise
        except Exception as error:
            log.exception("a batch of gateway %d was not prepared", one.arrived.gateway_id)
            _fail([one], error)
    return prepared


def _deleted(error: Exception) -> Busy:
    return _busy("The gateway is being deleted.", 5, error)


def _busy(why: str, retry_after_s: int, cause: Exception) -> Busy:
    busy = Busy(why, retry_after_s=retry_after_s)
    busy.__cause__ = cause
    return busy


async def _store_parted(
    conn: AsyncConnection, group: list[tuple[_Waiting, Prepared]], facts: _Facts
) -> bool:
    """Store a group; if that fails for what is in it, each batch alone. Answers every one."""
    if not group:
        return False
    try:
        parts = [prepared for _, prepared in group]
        said, changed = await _store_somehow(conn, parts, facts.epoch)
    except (psycopg.DataError, psycopg.IntegrityError, InstanceGone, NoPartition) as error:
        if len(group) > 1:
            return any([await _store_parted(conn, [one], facts) for one in group])
        if isinstance(error, InstanceGone):
            # Its gateway was deleted, with all that this process remembers of it.
            forget_circuits()
            error = _deleted(error)
        else:
            log.exception("a batch was not stored")
        _fail([group[0][0]], error)
        return False
    for waiting, prepared in group:
        if not waiting.answer.done():
            generation = facts.generations.get(waiting.arrived.gateway_id, 0)
            answer = Answer(said[key_of(prepared)], facts.epoch, generation)
            waiting.answer.set_result(answer)
    return changed


async def _store_somehow(
    conn: AsyncConnection, group: list[Prepared], epoch: str
) -> tuple[dict[Key, Stored], bool]:
    """The group's transaction, again and another way for what can be put right."""
    way = Way.COPY
    tries = 0
    while True:
        tries += 1
        try:
            return await store(conn, group, way, epoch)
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
