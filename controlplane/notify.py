"""Who must wake up after a commit: one LISTEN connection a web process, fanned out in memory.

Invariant: a notification is a hint and never the truth. Its payload is the topic alone; whoever is
woken reads Postgres by version, and polls it by itself about once a second in case a hint was lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Literal, get_args

import psycopg
from django.db import connection

from controlplane.models.pool import conninfo, pool

Topic = Literal["desired", "observed"]

CHANNEL = "switchgear"
DEBOUNCE_SECONDS = 0.1
_CHECK_SECONDS = 10.0
_RECONNECT_SECONDS = 0.5
_NOTIFY = f"SELECT pg_notify('{CHANNEL}', %s)"

log = logging.getLogger(__name__)


def _drop_pooled() -> None:
    """Postgres has ended our connection, so those of Django's pool are most likely dead too.

    Whoever asks for one finds the dead out one by one, with growing waits between: after a burst
    had filled the pool, requests were answered 503 for 20 s although Postgres was there.
    """
    held = getattr(connection, "pool", None)
    if held is not None and not held.closed:
        held.drain()


def desired_changed() -> None:
    """Wake the readers of desired state when the caller's Django transaction commits.

    Raises ``RuntimeError`` outside a transaction: a hint before the commit wakes nobody to
    anything new.
    """
    if not connection.in_atomic_block:
        raise RuntimeError("desired_changed() belongs inside the transaction that changed it")
    with connection.cursor() as cursor:
        cursor.execute(_NOTIFY, ("desired",))


async def observed_changed() -> None:
    """Wake the readers of observed state; call it after the commit. Never waits for Postgres.

    At most one notification in ``DEBOUNCE_SECONDS`` leaves this process, on a connection of its
    own: within an ingest transaction it would cost most of the commit rate (design 8).
    """
    _observed.ask()


class _Debounced:
    """Sends one topic now, and once more after the pause if it was asked for meanwhile."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._wanted = False
        self._task: asyncio.Task[None] | None = None

    def ask(self) -> None:
        self._wanted = True
        task = self._task
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            self._task = asyncio.create_task(self._send())

    async def _send(self) -> None:
        while self._wanted:
            self._wanted = False
            try:
                async with (await pool()).connection() as own:
                    await own.execute(_NOTIFY, (self._topic,))
            except Exception as error:
                log.warning("%s was not notified (readers poll): %s", self._topic, error)
            await asyncio.sleep(DEBOUNCE_SECONDS)

    async def stop(self) -> None:
        """Send no more: whoever would be woken finds it by polling."""
        task, self._task = self._task, None
        if task is not None and task.get_loop() is asyncio.get_running_loop():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


_observed = _Debounced("observed")


async def stop_notifying() -> None:
    """Before the pool is closed: a late notification would open it again."""
    await _observed.stop()


class Wakeups:
    """One reader's wake-ups: any number that come while it is busy are one."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def wake(self) -> None:
        """Make the current or the next ``wait`` return at once."""
        self._event.set()

    async def wait(self, timeout: float) -> bool:
        """True when woken, False after ``timeout`` seconds. Read Postgres after either."""
        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            return False
        # Cleared before the reader reads: what changes from here on wakes it again.
        self._event.clear()
        return True


class Hub:
    """This process's fan-out. ``start`` is run by the lifespan; without it nobody is woken."""

    def __init__(self) -> None:
        self._readers: dict[str, set[Wakeups]] = {topic: set() for topic in get_args(Topic)}
        self.listening = False
        """True while Postgres is known to be there: it is the one connection that is always open,
        so its loss is how this process first hears that Postgres has gone."""

    @contextlib.asynccontextmanager
    async def subscribe(self, topic: Topic) -> AsyncIterator[Wakeups]:
        """``async with hub.subscribe("desired") as wakeups: await wakeups.wait(1.0)``."""
        wakeups = Wakeups()
        readers = self._readers[topic]
        readers.add(wakeups)
        try:
            yield wakeups
        finally:
            readers.discard(wakeups)

    def count(self, topic: Topic) -> int:
        """How many readers a topic has now."""
        return len(self._readers[topic])

    async def start(self) -> Callable[[], Awaitable[None]]:
        """Begin to listen; returns the coroutine function that ends it."""
        task = asyncio.create_task(self._listen())

        async def stop() -> None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            self.listening = False

        return stop

    async def _listen(self) -> None:
        while True:
            try:
                await self._listen_once()
            except (psycopg.Error, OSError) as error:
                log.warning("LISTEN was lost (readers poll): %s", error)
            except Exception:
                log.exception("LISTEN failed (readers poll)")
            if self.listening:
                self.listening = False
                # Whoever shows data finds out now, not at its next poll, that there is no more.
                self._wake_all()
                _drop_pooled()
            await asyncio.sleep(_RECONNECT_SECONDS)

    async def _listen_once(self) -> None:
        async with await psycopg.AsyncConnection.connect(conninfo(), autocommit=True) as own:
            await own.execute(f"LISTEN {CHANNEL}")
            self.listening = True
            while True:
                # After a gap, and after each check, anything may have been missed.
                self._wake_all()
                async for notification in own.notifies(timeout=_CHECK_SECONDS):
                    for wakeups in self._readers.get(notification.payload, ()):
                        wakeups.wake()
                # A half-open connection is silent for ever; a question finds it out.
                async with asyncio.timeout(_CHECK_SECONDS):
                    await own.execute("SELECT 1")

    def _wake_all(self) -> None:
        for readers in self._readers.values():
            for wakeups in readers:
                wakeups.wake()


hub = Hub()
