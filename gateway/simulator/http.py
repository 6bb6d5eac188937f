"""A lean HTTP/1.1 server over one asyncio protocol: what a simulator needs and no more.

Written instead of using aiohttp's server because the simulator must cost far less than the gateway
that is measured against it, and because a fault such as a cut body needs the bare transport.

Invariant: one request of a connection is served at a time; when the peer goes away its handler is
cancelled at once. Only ``Content-Length`` bodies of at most 64 MiB are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import cast

MAX_HEAD = 64 * 1024
MAX_BODY = 64 * 1024 * 1024
REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    411: "Length Required",
    413: "Content Too Large",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


@dataclass(frozen=True, slots=True)
class Request:
    """One request, read whole. Header names are lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Quick = Callable[[Request], bytes | None]
Serve = Callable[[Request, "Connection"], Awaitable[None]]


def head(status: int, headers: dict[str, str]) -> bytes:
    """A response's first lines. Without ``content-length`` the body is to be sent in chunks."""
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Unknown')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if "content-length" not in headers:
        lines.append("transfer-encoding: chunked")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def response(status: int, body: bytes, headers: dict[str, str] | None = None) -> bytes:
    """A whole JSON response."""
    fields = {"content-type": "application/json", **(headers or {})}
    return head(status, {**fields, "content-length": str(len(body))}) + body


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body; of no data: its end."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class BadRequest(Exception):
    """The bytes are not a request that this server reads."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Connection(asyncio.Protocol):
    """One client connection. ``quick`` may answer at once; else ``serve`` runs as a task."""

    def __init__(self, quick: Quick, serve: Serve) -> None:
        self._quick = quick
        self._serve = serve
        self._buffer = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._room.set()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio's in everything but their type.
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._room.set()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._task is None:
            self._advance()

    async def write(self, data: bytes) -> None:
        """Send, waiting while the peer does not read."""
        self.transport.write(data)
        await self._room.wait()

    def abort(self) -> None:
        """Break the connection off with nothing more said."""
        self.transport.abort()

    def _advance(self) -> None:
        while not self.transport.is_closing():
            try:
                request = self._take()
            except BadRequest as error:
                self.transport.write(response(error.status, b"{}", {"connection": "close"}))
                self.transport.close()
                return
            if request is None:
                return
            answer = self._quick(request)
            if answer is None:
                self._task = asyncio.get_running_loop().create_task(self._run(request))
                return
            self.transport.write(answer)

    async def _run(self, request: Request) -> None:
        try:
            await self._serve(request, self)
        finally:
            self._task = None
        self._advance()

    def _take(self) -> Request | None:
        """The next whole request in the buffer, None while it is incomplete."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MAX_HEAD:
                raise BadRequest(431)
            return None
        first, *lines = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        method, _, rest = first.partition(" ")
        path, _, _ = rest.partition(" ")
        if not path or "transfer-encoding" in headers:
            raise BadRequest(400 if not path else 411)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MAX_BODY:
            raise BadRequest(413)
        whole = end + 4 + int(length)
        if len(self._buffer) < whole:
            return None
        body = bytes(self._buffer[end + 4 : whole])
        del self._buffer[:whole]
        return Request(method, path, headers, body)
