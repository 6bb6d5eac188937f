"""What instances say they enforce: reports that arrive together are stored together.

Invariant: a report is answered after its commit; while one group is being committed the next one
gathers, so the number of statements and commits does not grow with the fleet. A lone report goes at
once; within a burst a group waits a moment for its neighbours. A group that fails is tried report
by report, so a bad one costs its neighbours nothing. The queue is bounded.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID
from weakref import WeakKeyDictionary

import psycopg

from controlplane.errors import Busy
from controlplane.models.epochs import renew
from controlplane.models.pool import pool
from controlplane.notify import observed_changed
from controlplane.watch.reports import Arrived, store
from controlplane.wire.status import InstanceStatus, StatusReceipt

MOST_AT_ONCE = 100
MOST_WAITING = 5000
GATHER_SECONDS = 0.01

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Waiting:
    arrived: Arrived
    answer: asyncio.Future[StatusReceipt]


class _Writer:
    """One loop's queue, and the task that empties it."""

    def __init__(self) -> None:
        self._queue: deque[_Waiting] = deque()
        self._task: asyncio.Task[None] | None = None

    async def put(self, arrived: Arrived) -> StatusReceipt:
        if len(self._queue) >= MOST_WAITING:
            raise Busy("Too many reports wait here.", retry_after_s=2)
        waiting = _Waiting(arrived, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._empty())
        return await waiting.answer

    async def _empty(self) -> None:
        while self._queue:
            count = min(MOST_AT_ONCE, len(self._queue))
            group = [self._queue.popleft() for _ in range(count)]
            try:
                await _commit(group)
            except Exception as error:
                await self._one_by_one(group, error)
            if 0 < len(self._queue) < MOST_AT_ONCE:
                await asyncio.sleep(GATHER_SECONDS)

    async def _one_by_one(self, group: list[_Waiting], error: Exception) -> None:
        alone = len(group) == 1
        if not alone and isinstance(error, psycopg.Error):
            log.warning("%d reports are stored one by one: %s", len(group), error)
        for waiting in group:
            try:
                if alone or not isinstance(error, psycopg.Error):
                    raise error
                await _commit([waiting])
            except Exception as own:
                if not waiting.answer.done():
                    waiting.answer.set_exception(own)


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
        stored = await store(conn, [one.arrived for one in group], now)
        if stored.forgotten is not None:
            # The gateways hear of it by their watch, and with their next answer.
            await renew(conn, *stored.forgotten, now)
    if stored.visible:
        await observed_changed()
    for waiting in group:
        if not waiting.answer.done():
            waiting.answer.set_result(stored.receipts[waiting.arrived.gateway_id])
