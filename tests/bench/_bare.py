"""``python -m tests.bench._bare``: pass requests through to one upstream and do nothing else.

The same server, client and event loop as the gateway, so that what the gateway costs more is what
it does and not what it is made of.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import socket
from typing import Any

import aiohttp
from aiohttp import web
from yarl import URL

from gateway.loop import run


class Bare:
    """One handler: whatever comes is sent to ``url``, whatever comes back is handed on."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = URL(url)
        self._session = session

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Pass one request through; a stream chunk by chunk."""
        if request.method == "GET":
            return web.Response(text="ready")
        headers = {
            "content-type": "application/json",
            "accept-encoding": "identity",
            "authorization": "Bearer bare",
        }
        body = await request.read()
        async with self._session.post(self._url, data=body, headers=headers) as answer:
            kind = answer.headers["content-type"]
            if "content-length" in answer.headers:
                data = await answer.read()
                return web.Response(status=answer.status, body=data, headers={"content-type": kind})
            out = web.StreamResponse(status=answer.status, headers={"content-type": kind})
            await out.prepare(request)
            async for data in answer.content.iter_any():
                await out.write(data)
            await out.write_eof()
            return out


async def serve(port: int, url: str) -> None:
    """Serve until SIGTERM."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)

    def request_of(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> Any:
        return web.BaseRequest(message, payload, protocol, writer, task, loop)

    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
    )
    async with session:
        server = web.Server(
            Bare(url, session).handle,
            request_factory=request_of,
            handler_cancellation=True,
            access_log=None,
        )
        runner = web.ServerRunner(server, shutdown_timeout=1)
        await runner.setup()
        listener = socket.create_server(("127.0.0.1", port), backlog=1024)
        await web.SockSite(runner, listener).start()
        await stop.wait()
        await runner.cleanup()


def main() -> None:
    """Read the options and serve."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench._bare")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--upstream", required=True, help="URL of the upstream's chat completions")
    options = parser.parse_args()
    run(serve(options.port, options.upstream))


if __name__ == "__main__":
    main()
