"""Find the events of a batch that cannot be stored, so that they cost it nothing but themselves.

Invariant: an event is blamed on evidence only: the fault is one of a value, or another event of the
same kind is stored the same way. A fault that may be ours alone (a release, a missing column, a
right) blames none; the batch is answered as failed, stays in its gateway's spool and comes again.
So it does when the search takes too long; what was proven by then is not tried again.
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
_MOST_PROVEN = 10_000

# How often rows of each table were committed by this process, and how often they had been when an
# event first failed: if more have been since, it is not for want of a table.
_stored: Counter[str] = Counter()
_doubted: dict[UUID, int] = {}
# Why an event of a gateway is to blame, from searches that were not finished.
_proven: dict[tuple[int, UUID], str] = {}


class Unfinished(Exception):
    """The search has taken its time; the batch is to come again, and it goes on."""


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
        gateway_id: int,
        batch: ReadBatch,
        rehearse: Rehearse,
        *,
        clock: Callable[[], float] = time.monotonic,
        longest_s: float | None = None,
    ) -> None:
        self._gateway_id = gateway_id
        self._batch = batch
        self._rehearse = rehearse
        self._clock = clock
        self._until = clock() + (LONGEST_S if longest_s is None else longest_s)
        self._kept: dict[int, AnyEvent] = {}
        self._faults: dict[int, Exception] = {}

    async def run(self, fault: Exception) -> ReadBatch:
        """The batch with what can be stored, the rest as dead letters.

        ``fault`` is what storing it whole has raised. Raises a fault that blames no event,
        ``Unfinished``, and whatever ``rehearse`` raises without an event.
        """
        await self._rehearse(replace(self._batch, events={}))
        known = {
            place: _proven[key]
            for place in self._batch.events
            if (key := self._key(place)) in _proven
        }
        places = [place for place in self._batch.events if place not in known]
        try:
            if known and places:
                await self._sift(places)
            elif len(places) == 1:
                self._faults[places[0]] = fault
            else:
                await self._halves(places)
        except Unfinished:
            self._remember()
            raise
        for place, found in self._faults.items():
            if not self._blames(found, self._batch.events[place]):
                raise found
        reasons = known | {place: _reason(found) for place, found in self._faults.items()}
        letters = [self._batch.letter(place, why) for place, why in reasons.items()]
        unread = sorted([*self._batch.unread, *letters], key=lambda letter: letter.index)
        return replace(self._batch, events=self._kept, unread=unread)

    def _key(self, place: int) -> tuple[int, UUID]:
        return self._gateway_id, self._batch.events[place].id

    def _remember(self) -> None:
        """Only what is to blame by what this search has seen: the next one may find us mended."""
        for place, found in self._faults.items():
            if self._blames(found, self._batch.events[place]):
                while len(_proven) >= _MOST_PROVEN:
                    del _proven[next(iter(_proven))]
                _proven[self._key(place)] = _reason(found)

    async def _halves(self, places: Sequence[int]) -> None:
        middle = len(places) // 2
        await self._sift(places[:middle])
        await self._sift(places[middle:])

    async def _sift(self, places: Sequence[int]) -> None:
        """Keep what can be stored together with what is kept already."""
        if not places:
            return
        if self._clock() >= self._until:
            raise Unfinished(f"{len(self._faults)} events cannot be stored, and the search goes on")
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


def _reason(fault: Exception) -> str:
    """What the sender is told; a fault of our own stands in the log."""
    said = fault.diag.message_primary if isinstance(fault, psycopg.Error) else None
    return f"cannot be stored: {said or type(fault).__name__}"
