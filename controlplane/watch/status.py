"""What instances say they enforce: reports that arrive together are stored together.

Invariant: a report is answered after its commit; while one group is being committed the next one
gathers, so the number of statements and commits does not grow with the fleet. A lone report goes at
once; within a burst a group waits a moment for its neighbours. A group that fails is tried report
by report, so a bad one costs its neighbours nothing. The queue is bounded in number and in time:
a report that has waited for ``MOST_SECONDS`` is asked to come again, before its sender gives up.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID
from weakref import WeakKeyDictionary

import psycopg

from controlplane.errors import Busy
from controlplane.models.epochs import EpochRefused, renew
from controlplane.models.pool import pool
from controlplane.models.registry import forget_circuits
from controlplane.notify import observed_changed
from controlplane.watch.reports import Arrived, InstanceGone, store
from controlplane.wire.status import InstanceStatus, StatusReceipt

MOST_AT_ONCE = 100
MOST_WAITING = 5000
MOST_SECONDS = 3.0
GATHER_SECONDS = 0.01

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Waiting:
    arrived: Arrived
    answer: asyncio.Future[StatusReceipt]
    since: float


class _Writer:
    """One loop's queue, and the task that empties it."""

    def __init__(self) -> None:
        self._queue: deque[_Waiting] = deque()
        self._task: asyncio.Task[None] | None = None

    async def put(self, arrived: Arrived) -> StatusReceipt:
        if len(self._queue) >= MOST_WAITING:
            raise _busy()
        answer = asyncio.get_running_loop().create_future()
        waiting = _Waiting(arrived, answer, time.monotonic())
        self._queue.append(waiting)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._empty())
        return await waiting.answer

    async def _empty(self) -> None:
        while self._queue:
            group = self._next()
            if not group:
                return
            try:
                await _commit(group)
            except Exception as error:
                await self._one_by_one(group, error)
            if 0 < len(self._queue) < MOST_AT_ONCE:
                await asyncio.sleep(GATHER_SECONDS)

    def _next(self) -> list[_Waiting]:
        """The next group, after those whose senders are about to give up were told to come again.

        What they would say is said by their next report; storing it after they have gone would take
        the time of others, who then give up too.
        """
        group: list[_Waiting] = []
        oldest = time.monotonic() - MOST_SECONDS
        while self._queue and len(group) < MOST_AT_ONCE:
            waiting = self._queue.popleft()
            if waiting.answer.done():
                continue
            if waiting.since < oldest:
                waiting.answer.set_exception(_busy())
            else:
                group.append(waiting)
        return group

    async def _one_by_one(self, group: list[_Waiting], error: Exception) -> None:
        # What no report is to blame for would fail, and be waited for, once for each of them.
        blameless = isinstance(error, psycopg.OperationalError)
        apart = len(group) > 1 and isinstance(error, psycopg.Error) and not blameless
        if apart:
            log.warning("%d reports are stored one by one: %s", len(group), error)
        for waiting in group:
            try:
                if not apart:
                    raise error
                await _commit([waiting])
            except Exception as own:
                if not waiting.answer.done():
                    waiting.answer.set_exception(own)


def _busy() -> Busy:
    # Spread: those who are sent away together must not come back together.
    return Busy("Too many reports wait here.", retry_after_s=random.randint(1, 4))


_writers: WeakKeyDictionary[asyncio.AbstractEventLoop, _Writer] = WeakKeyDictionary()


async def accept_report(
    gateway_id: int, gateway: str, boot_id: UUID, report: InstanceStatus
) -> StatusReceipt:
    """Store a report and answer with the desired generation as it is now. Raises ``Busy``."""
    writer = _writers.setdefault(asyncio.get_running_loop(), _Writer())
    return await writer.put(Arrived(gateway_id, gateway, boot_id, report))


async def _commit(group: list[_Waiting]) -> None:
    """Store a group and answer it. The time of every verdict in it is the group's beginning."""
    async with (await pool()).connection() as conn:
        now = datetime.now(UTC)
        arrived = [one.arrived for one in group]
        try:
            stored = await store(conn, arrived, now)
        except InstanceGone:
            # This process remembers a row that was deleted since; the next try makes a new one.
            forget_circuits()
            stored = await store(conn, arrived, now)
        if stored.forgotten is not None:
            # The gateways hear of it by their watch, and with their next answer.
            try:
                await renew(conn, *stored.forgotten, now)
            except EpochRefused as error:
                log.warning("%s: %s", stored.forgotten[2], error)
    if stored.visible:
        await observed_changed()
    for waiting in group:
        if not waiting.answer.done():
            waiting.answer.set_result(stored.receipts[waiting.arrived.gateway_id])
