"""Start and end of a web process.

Invariant: whatever waits for ever (config watches, wall sockets) also waits on ``stopping``, so
that a SIGTERM ends every stream at once and the process with it.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable

from controlplane.api.hot import collector
from controlplane.api.hot.http import Receive, Send
from controlplane.models.pool import close_pool, pool
from controlplane.notify import stop_notifying

stopping = asyncio.Event()
# Background work of this process: called at start, each returns the coroutine that ends it.
ON_START: list[Callable[[], Awaitable[Callable[[], Awaitable[None]]]]] = []


def _stop_streams_on_sigterm() -> None:
    """Set ``stopping`` when SIGTERM or SIGINT arrives, then do what was to be done.

    The server sends ``lifespan.shutdown`` only after every connection has ended, which an open
    stream would never do by itself; so the signal is heard here first.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        before = signal.getsignal(number)

        def heard(signum: int, frame: object, before: object = before) -> None:
            loop.call_soon_threadsafe(stopping.set)
            if callable(before):
                before(signum, frame)

        signal.signal(number, heard)


async def lifespan(receive: Receive, send: Send) -> None:
    """The ASGI lifespan protocol."""
    ends: list[Callable[[], Awaitable[None]]] = []
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            stopping.clear()
            _stop_streams_on_sigterm()
            await pool()
            for start in ON_START:
                ends.append(await start())
            collector.settle()
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            stopping.set()
            for end in reversed(ends):
                await end()
            await stop_notifying()
            await close_pool()
            await send({"type": "lifespan.shutdown.complete"})
            return
