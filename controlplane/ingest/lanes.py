"""Grouped commits: batches that arrive together share a transaction.

Invariant: at most ``LANES`` groups are under way at once, so that one is decoded while Postgres
works on the other; who comes meanwhile is the next group.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from weakref import WeakKeyDictionary

from psycopg import AsyncConnection

from controlplane.errors import Busy
from controlplane.ingest.commit import Answer, Waiting, commit, fail
from controlplane.ingest.prepare import Arrived
from controlplane.models.pool import AWAY, pool

LANES = 2
# With less than this waiting, one lane alone makes larger groups at less cost (docs/benchmarks.md).
_SECOND_LANE_EVENTS = 300
# A group of so many events need not wait for more.
_LARGE_EVENTS = 1000
_LONGEST_GATHER_S = 0.02
# A group is at most so many batches, and no batch is added to one that has so many events.
MOST_BATCHES = 64
MOST_EVENTS = 2500
log = logging.getLogger(__name__)


class Committer:
    """The groups of one event loop."""

    def __init__(self) -> None:
        self._waiting: deque[Waiting] = deque()
        self._events = 0
        self._open = 0
        self._under_way = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._enough = asyncio.Event()
        # How many batches a lane that gathers waits for; None while no lane does.
        self._wanted: int | None = None

    async def store(self, arrived: Arrived) -> Answer:
        """Store a batch with whatever comes beside it; ``Busy`` when it was not stored."""
        waiting = Waiting(arrived, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._events += len(arrived.batch.events)
        if self._wanted is not None and self._has(self._wanted):
            self._enough.set()
        self._open_lane_if_due()
        answer = waiting.answer
        del waiting
        try:
            return await answer
        finally:
            # An error's traceback holds this frame, and the answer holds the error: without this
            # circle a batch that was not stored is gone at once, not when the collector comes.
            del answer

    def _has(self, batches: int) -> bool:
        return len(self._waiting) >= batches or self._events >= _LARGE_EVENTS

    def _is_due(self) -> bool:
        # Not while the other lane gathers: they are its.
        return bool(self._waiting) and (self._wanted is None or self._has(MOST_BATCHES))

    def _open_lane_if_due(self) -> None:
        worth = _SECOND_LANE_EVENTS if self._wanted is None else _LARGE_EVENTS
        if self._waiting and (not self._open or (self._open < LANES and self._events >= worth)):
            self._open += 1
            task = asyncio.create_task(self._lane())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _lane(self) -> None:
        try:
            await self._work()
        finally:
            self._open -= 1  # not by the task's callback: a batch that comes before needs a lane

    async def _work(self) -> None:
        """Commit group after group on one connection; a new one after a fault."""
        while self._is_due():
            group: list[Waiting] = []
            most = MOST_BATCHES
            try:
                async with (await pool()).connection() as conn:
                    while self._is_due():
                        group = self._next_group(most)
                        if group:
                            self._open_lane_if_due()
                            most = await self._gather(group, await self._timed(conn, group))
            except AWAY as error:
                group = group or self._next_group(MOST_BATCHES)
                log.warning("%d batches were not stored: %s", len(group), str(error))
                # Without its cause, whose traceback holds the group.
                fail(group, Busy("Postgres is away; send the same batch again.", retry_after_s=2))
            except Exception as error:
                group = group or self._next_group(MOST_BATCHES)
                log.exception("a group of %d batches was not stored", len(group))
                fail(group, error)
            except BaseException:
                fail([*group, *self._waiting], Busy("The server is stopping.", retry_after_s=1))
                raise

    async def _timed(self, conn: AsyncConnection, group: list[Waiting]) -> float:
        began = time.monotonic()
        self._under_way += len(group)
        try:
            await commit(conn, group)
        finally:
            self._under_way -= len(group)
        return time.monotonic() - began

    async def _gather(self, answered: list[Waiting], took_s: float) -> int:
        """Let in those who have just been answered and send again; how many make the next group.

        Else a few go at once and the rest a moment later, for ever. Who is alone never waits, and
        nobody longer than the group before has taken.
        """
        may_come = len(answered) + len(self._waiting)
        senders = may_come + self._under_way
        events = sum(len(one.arrived.batch.events) for one in answered)
        # As much for either lane as is worth its while, or all for one.
        both = events * senders >= LANES * _SECOND_LANE_EVENTS * len(answered)
        most = -(-senders // LANES) if both else MOST_BATCHES
        fair = min(may_come, most)
        if self._wanted is not None or self._has(fair):
            return most
        self._wanted = fair
        self._enough.clear()
        longest_s = min(took_s, _LONGEST_GATHER_S)
        timer = asyncio.get_running_loop().call_later(longest_s, self._enough.set)
        try:
            await self._enough.wait()
        finally:
            timer.cancel()
            self._wanted = None
        return most

    def _next_group(self, most: int) -> list[Waiting]:
        group: list[Waiting] = []
        keys: set[tuple[object, ...]] = set()
        events = 0
        while self._waiting and len(group) < most and events < MOST_EVENTS:
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
    loop = asyncio.get_running_loop()
    found = _committers.get(loop)
    if found is None:
        found = _committers[loop] = Committer()
    return found
