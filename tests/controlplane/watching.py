"""A reader of the watch, in this process: frames as they are sent, a connection that can be cut."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, MutableMapping
from dataclasses import dataclass
from typing import Any

import msgspec

from controlplane.asgi import application

PATIENCE = 5.0


@dataclass(frozen=True)
class Frame:
    """One server-sent event."""

    id: int
    event: str
    data: Any


class Reader:
    """One open watch."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.task: asyncio.Task[None] | None = None
        self._frames: asyncio.Queue[Frame | None] = asyncio.Queue()
        self._gone = asyncio.Event()
        self._started = asyncio.Event()
        self.body = b""

    async def receive(self) -> MutableMapping[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {k.decode(): v.decode() for k, v in message["headers"]}
            self._started.set()
        elif self.headers["content-type"] != "text/event-stream":
            self.body += message["body"]
        elif message["body"]:
            self._frames.put_nowait(_frame(message["body"].decode()))
        else:
            self._frames.put_nowait(None)

    async def next(self, timeout: float = PATIENCE) -> Frame | None:
        """The next frame; None at the end of the stream."""
        async with asyncio.timeout(timeout):
            return await self._frames.get()

    async def silent(self, seconds: float) -> bool:
        """True when nothing comes for so long."""
        try:
            await self.next(seconds)
        except TimeoutError:
            return True
        return False

    def hang_up(self) -> None:
        """The reader goes away."""
        self._gone.set()

    async def started(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await self._started.wait()


def _frame(text: str) -> Frame:
    assert text.endswith("\n\n")
    lines = dict(line.split(": ", 1) for line in text.strip().split("\n"))
    return Frame(int(lines["id"]), lines["event"], msgspec.json.decode(lines["data"]))


@contextlib.asynccontextmanager
async def watch(gateway: str, token: str, query: str = "") -> AsyncIterator[Reader]:
    """Open a watch and end it at the end of the block."""
    reader = Reader()
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "path": f"/api/v1/gateways/{gateway}/config",
        "raw_path": f"/api/v1/gateways/{gateway}/config".encode(),
        "query_string": f"watch=1{query}".encode(),
        "headers": [(b"host", b"localhost"), (b"authorization", f"Bearer {token}".encode())],
    }
    reader.task = asyncio.create_task(application(scope, reader.receive, reader.send))
    try:
        await reader.started()
        yield reader
    finally:
        reader.hang_up()
        async with asyncio.timeout(PATIENCE):
            await reader.task
