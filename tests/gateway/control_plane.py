"""A control plane of a few lines on a real socket, which answers as a test tells it to."""

import asyncio
import gzip
import json
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from aiohttp import web


class ControlPlane:
    """What it heard, and what it is to say next."""

    def __init__(self) -> None:
        self.url = ""
        self.batches: list[dict[str, Any]] = []
        self.raw: list[bytes] = []
        self.statuses: list[dict[str, Any]] = []
        self.queries: list[dict[str, str]] = []
        self.etags: list[str | None] = []
        self.tokens: set[str] = set()
        self.script: deque[web.Response | None] = deque()
        """Answers to the next batches; None hangs up without one. Then receipts."""
        self.watch_script: deque[web.Response] = deque()
        """Answers to the next requests for a stream instead of one."""
        self.status_script: deque[web.Response] = deque()
        """Answers to the next status reports instead of receipts."""
        self.snapshot: bytes = b""
        self.epoch, self.generation, self.instances = "e1", 0, 1
        self.clock: Callable[[], datetime] = lambda: datetime.now(UTC)
        self._streams: list[tuple[web.StreamResponse, asyncio.Event]] = []

    @property
    def streams(self) -> int:
        return len(self._streams)

    async def send(self, frame: bytes) -> None:
        """To every open stream."""
        for response, _ in self._streams:
            await response.write(frame)

    async def send_snapshot(self, snapshot: bytes) -> None:
        await self.send(b"id: 1\nevent: snapshot\ndata: " + snapshot + b"\n\n")

    async def bookmark(self, **more: Any) -> None:
        seen = {
            "epoch": self.epoch,
            "revision": 1,
            "generation": self.generation,
            "hash": "h",
            "server_time": self.clock().isoformat(),
            "instances": self.instances,
        }
        await self.send(f"event: bookmark\ndata: {json.dumps(seen | more)}\n\n".encode())

    def end_streams(self) -> None:
        for _, over in self._streams:
            over.set()
        self._streams.clear()

    async def events(self, request: web.Request) -> web.Response:
        # aiohttp has unpacked a gzipped body before we see it.
        self.tokens.add(request.headers.get("Authorization", ""))
        raw = await request.read()
        self.raw.append(raw)
        batch = json.loads(raw)
        if self.script:
            answer = self.script.popleft()
            if answer is None:
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            if answer.status != 200:
                return answer
        self.batches.append(batch)
        return web.json_response(self.receipt(batch["seq"]))

    def receipt(self, seq: int) -> dict[str, Any]:
        return {
            "seq": seq,
            "epoch": self.epoch,
            "contiguous": seq,
            "generation": self.generation,
            "server_time": self.clock().isoformat(),
        }

    async def status(self, request: web.Request) -> web.Response:
        if self.status_script:
            return self.status_script.popleft()
        self.statuses.append(await request.json() | {"boot": request.match_info["boot"]})
        return web.json_response(
            {
                "generation": self.generation,
                "hash": "h",
                "epoch": self.epoch,
                "server_time": self.clock().isoformat(),
                "instances": self.instances,
            }
        )

    async def config(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            self.etags.append(request.headers.get("If-None-Match"))
            return web.Response(body=self.snapshot) if self.snapshot else web.Response(status=503)
        self.queries.append(dict(request.query))
        if self.watch_script:
            return self.watch_script.popleft()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        over = asyncio.Event()
        self._streams.append((response, over))
        await over.wait()
        return response


@asynccontextmanager
async def serving(
    double: ControlPlane, context: ssl.SSLContext | None = None
) -> AsyncIterator[ControlPlane]:
    """Run it on a free port of the loopback, with a ``context`` behind TLS as ``localhost``."""
    app = web.Application(client_max_size=64 * 2**20)
    app.router.add_post("/api/v1/events", double.events)
    app.router.add_get("/api/v1/gateways/demo/config", double.config)
    app.router.add_patch("/api/v1/gateways/demo/instances/{boot}/status", double.status)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    double.url = f"https://localhost:{port}" if context else f"http://127.0.0.1:{port}"
    try:
        yield double
    finally:
        double.end_streams()
        await runner.cleanup()


def zipped(body: bytes) -> bool:
    """True when this is gzip."""
    try:
        gzip.decompress(body)
    except OSError:
        return False
    return True
