"""One serving process: the agent, the connections to providers, the HTTP server on a given socket.

Invariant: it serves as soon as the disk's configuration is in force, waiting for nobody; when told
to stop it takes no new connection, lets requests in flight end for at most ``drain_seconds``, then
says goodbye.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import random
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from gateway import collector, server_log
from gateway.agent import Agent
from gateway.caller_connection import CallerConnection
from gateway.clock import Clock, SystemClock
from gateway.config import Config
from gateway.exchange import Path
from gateway.proxy import Proxy
from gateway.upstream import Upstream

IDLE_CONNECTION_S = 75.0
BACKLOG = 1024


@asynccontextmanager
async def serving(
    config: Config,
    listener: socket.socket,
    index: int = 0,
    *,
    clock: Clock | None = None,
    draw: Callable[[], float] = random,
) -> AsyncIterator[Agent]:
    """Serve on ``listener`` inside the block; drain and say goodbye at its end."""
    clock = clock or SystemClock()
    async with Agent(config, index, clock=clock) as agent:
        upstream = Upstream(config)
        await upstream.start()
        upstream.outgoing.write_first(agent.spool)
        proxy = Proxy(Path(config, agent.live, upstream, agent.spool, clock, draw))
        runner = web.ServerRunner(
            _server(proxy, config.limits.body_bytes),
            shutdown_timeout=config.gateway.drain_seconds,
        )
        await runner.setup()
        try:
            await web.SockSite(runner, listener, backlog=BACKLOG).start()
            yield agent
        finally:
            proxy.draining = True
            await runner.cleanup()
            proxy.close()
            await upstream.close()


async def serve(config: Config, listener: socket.socket, index: int, stop: asyncio.Event) -> None:
    """Serve until ``stop`` is set."""
    async with serving(config, listener, index):
        collector.settle()
        await stop.wait()


def _server(proxy: Proxy, body_bytes: int) -> web.Server:
    """aiohttp's low-level server: our handler does the routing, without its application layer.

    ``handler_cancellation``: a caller that goes away cancels its handler, and so the upstream call.
    """
    loop = asyncio.get_running_loop()

    def request_of(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> Any:
        return web.BaseRequest(
            message, payload, protocol, writer, task, loop, client_max_size=body_bytes
        )

    return _Server(
        proxy.handle,
        request_factory=request_of,
        handler_cancellation=True,
        access_log=None,
        logger=server_log.log,
        keepalive_timeout=IDLE_CONNECTION_S,
    )


class _Server(web.Server):
    def __call__(self) -> RequestHandler:
        return CallerConnection(self, loop=self._loop, **self._kwargs)
