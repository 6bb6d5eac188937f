"""The parent of N serving processes: binds the port once, starts, watches and restarts them.

Invariants: the port stays bound while any worker is replaced; every worker gets the text of the
configuration that the parent checked, through its standard input, which stays open as a lifeline:
when the parent dies, however it dies, the workers see its end and drain. Workers are started anew
(never forked with threads).
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process

from gateway.config import Config
from gateway.worker import BACKLOG

log = logging.getLogger(__name__)

BACKOFF_S, LONGEST_BACKOFF_S = 0.5, 10.0
STEADY_S = 30.0
"""A worker that lived this long starts again at once if it dies."""
GRACE_S = 5.0
"""Beyond the drain: for the goodbye and the last batch."""


class CannotBind(Exception):
    """The port cannot be had; the text says why."""


def bind(config: Config) -> socket.socket:
    """Bind the listener's address and listen. Raises ``CannotBind``."""
    host, port = config.gateway.host, config.gateway.port
    listener = None
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # Listening from here on: a second gateway on this port fails at once, and callers that
        # come while a worker starts wait in the queue instead of being refused.
        listener.listen(BACKLOG)
    except OSError as error:
        if listener is not None:
            listener.close()
        text = f"cannot listen on {host}:{port}: {error.strerror}; set gateway.port"
        raise CannotBind(text) from error
    listener.setblocking(False)
    return listener


class Workers:
    """Keeps ``count`` workers alive until stopped."""

    def __init__(self, config: Config, text: str, listener: socket.socket, count: int) -> None:
        self._config = config
        self._text = text.encode()
        self._listener = listener
        self._count = count
        self._stop = asyncio.Event()
        self._running: dict[int, Process] = {}

    def stop(self) -> None:
        """Ask every worker to drain, and start none again."""
        self._stop.set()
        # Else new callers would wait in a queue that nobody empties any more.
        self._listener.close()
        for process in self._running.values():
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)

    async def run(self) -> None:
        """Return when all workers are gone after ``stop``."""
        await asyncio.gather(*(self._keep(index) for index in range(self._count)))

    async def _keep(self, index: int) -> None:
        pause = BACKOFF_S
        loop = asyncio.get_running_loop()
        while not self._stop.is_set():
            began = loop.time()
            status = await self._once(index)
            if self._stop.is_set():
                return
            if loop.time() - began >= STEADY_S:
                pause = BACKOFF_S
            log.warning("worker %d ended with status %s; again in %.1f s", index, status, pause)
            try:
                await asyncio.wait_for(self._stop.wait(), pause)
            except TimeoutError:
                pause = min(LONGEST_BACKOFF_S, pause * 2)

    async def _once(self, index: int) -> int:
        """Start a worker and wait for its end; returns its status."""
        descriptor = self._listener.fileno()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "gateway",
            *("--worker", str(index), "--fd", str(descriptor), "--bytes", str(len(self._text))),
            stdin=PIPE,
            pass_fds=(descriptor,),
        )
        self._running[index] = process
        assert process.stdin is not None
        try:
            process.stdin.write(self._text)
            await process.stdin.drain()
        except ConnectionError:
            pass  # it died at once; its status says so
        if self._stop.is_set():
            process.send_signal(signal.SIGTERM)
        ended = asyncio.create_task(process.wait())
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait((ended, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not ended.done():
            await self._wait_or_kill(process, ended)
        process.stdin.close()
        return await ended

    async def _wait_or_kill(self, process: Process, ended: asyncio.Task[int]) -> None:
        longest = self._config.gateway.drain_seconds + GRACE_S
        done, _ = await asyncio.wait((ended,), timeout=longest)
        if not done:
            log.warning("worker %d did not end within %.0f s and is killed", process.pid, longest)
            process.kill()


async def supervise(config: Config, text: str, listener: socket.socket, count: int) -> None:
    """Keep the workers running until SIGTERM or SIGINT, then drain them."""
    workers = Workers(config, text, listener, count)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, workers.stop)
    await workers.run()
