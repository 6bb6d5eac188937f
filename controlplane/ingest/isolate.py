"""Find the events of a batch that cannot be stored, so that they cost it nothing but themselves.

Invariant: an event is blamed on evidence only: the fault is one of a value, or another event of the
same kind is stored the same way. A fault that may be ours alone (a release, a missing column, a
right) blames none; the batch is answered as failed, stays in its gateway's spool and comes again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from uuid import UUID

import psycopg

from controlplane.ingest.append import NoPartition
from controlplane.ingest.facts import Moved
from controlplane.ingest.read import ReadBatch
from controlplane.ingest.receipts import InstanceGone, OlderDatabase
from controlplane.ingest.rows import TABLE_OF
from controlplane.models.pool import AWAY
from controlplane.wire.events import AnyEvent

Rehearse = Callable[[ReadBatch], Awaitable[object]]
"""Do all that storing a batch does, and keep nothing of it. Raises what storing it would."""

# A gateway waits ten seconds for an answer, and a lane of this process waits for us.
LONGEST_S = 4.0
_MOST_DOUBTED = 1000
_OF_VALUES = (
    psycopg.DataError,
    psycopg.errors.CheckViolation,
    psycopg.errors.ProgramLimitExceeded,
    ArithmeticError,
)
# What says nothing of an event: it will pass, or another step of ours is to follow.
_PASSING = (*AWAY, MemoryError, Moved, NoPartition, InstanceGone, OlderDatabase)
_NOT_TRIED = "not tried: too many events of this batch cannot be stored"

# How often rows of each table were committed by this process, and how often they had been when an
# event first failed: if more have been since, it is not for want of a table.
_stored: Counter[str] = Counter()
_doubted: dict[UUID, int] = {}


def stored(tables: Iterable[str]) -> None:
    """Rows of these tables have just been committed."""
    _stored.update(tables)


def passes(fault: Exception) -> bool:
    """True for what no event can be to blame for: Postgres is away, full, busy, a standby."""
    # By its class alone it is one of those; it is said of a row that no index can hold.
    limit = isinstance(fault, psycopg.errors.ProgramLimitExceeded)
    return isinstance(fault, _PASSING) and not limit


class Sieve:
    """Parts one batch that cannot be stored whole. ``clock`` is monotonic, in seconds."""

    def __init__(
        self,
        batch: ReadBatch,
        rehearse: Rehearse,
        *,
        clock: Callable[[], float] = time.monotonic,
        longest_s: float = LONGEST_S,
    ) -> None:
        self._batch = batch
        self._rehearse = rehearse
        self._clock = clock
        self._until = clock() + longest_s
        self._kept: dict[int, AnyEvent] = {}
        self._faults: dict[int, Exception | None] = {}

    async def run(self, fault: Exception) -> ReadBatch:
        """The batch with what can be stored, the rest as dead letters.

        ``fault`` is what storing it whole has raised. Raises a fault that blames no event, and
        whatever ``rehearse`` raises without an event.
        """
        await self._rehearse(replace(self._batch, events={}))
        places = list(self._batch.events)
        if len(places) == 1:
            self._faults[places[0]] = fault
        else:
            await self._halves(places)
        for place, found in self._faults.items():
            if found is not None and not self._blames(found, self._batch.events[place]):
                raise found
        letters = [self._batch.letter(n, _reason(why)) for n, why in self._faults.items()]
        unread = sorted([*self._batch.unread, *letters], key=lambda letter: letter.index)
        return replace(self._batch, events=self._kept, unread=unread)

    async def _halves(self, places: Sequence[int]) -> None:
        middle = len(places) // 2
        await self._sift(places[:middle])
        await self._sift(places[middle:])

    async def _sift(self, places: Sequence[int]) -> None:
        """Keep what can be stored together with what is kept already."""
        if self._clock() >= self._until:
            self._faults |= dict.fromkeys(places)
            return
        more = self._kept | {place: self._batch.events[place] for place in places}
        try:
            await self._rehearse(replace(self._batch, events=more))
        except Exception as fault:
            if passes(fault):
                raise
            if len(places) == 1:
                self._faults[places[0]] = fault
            else:
                await self._halves(places)
        else:
            self._kept = more

    def _blames(self, fault: Exception, event: AnyEvent) -> bool:
        table = TABLE_OF[type(event)]
        if isinstance(fault, _OF_VALUES):
            return True
        if any(TABLE_OF[type(other)] == table for other in self._kept.values()):
            return True
        if len(_doubted) >= _MOST_DOUBTED:
            del _doubted[next(iter(_doubted))]
        return _stored[table] > _doubted.setdefault(event.id, _stored[table])


def _reason(fault: Exception | None) -> str:
    """What the sender is told; a fault of our own stands in the log."""
    if fault is None:
        return _NOT_TRIED
    said = fault.diag.message_primary if isinstance(fault, psycopg.Error) else None
    return f"cannot be stored: {said or type(fault).__name__}"
