"""The connections to providers: made, kept for the next call, and given up.

Invariants: a call gets a connection on which nothing waits to be read; a connection that is given
up is gone at once, whether or not the provider reads.
"""

from __future__ import annotations

import asyncio
import fcntl
import re
import termios
from collections.abc import Sequence
from contextvars import ContextVar
from functools import partial
from time import monotonic
from typing import Any

import aiohttp
from aiohttp import ClientTimeout
from aiohttp.abc import ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection
from aiohttp.helpers import _EXC_SENTINEL as _NO_CAUSE
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.tracing import Trace

from controlplane.domain.classify import Phase
from gateway.faults import NotHTTP, Progress
from gateway.flow import OnlyWhenPaused

# All limits are kept by the attempt itself, which knows whose they are.
_NO_TIMEOUT = ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None)

_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]{1,18})\r\n", re.IGNORECASE)

_PROGRESS: ContextVar[Progress] = ContextVar("progress")


def cut(connection: Connection) -> None:
    """Close a connection now. What was not sent yet is dropped: ``close`` alone would keep it, and
    the connection, until the provider has read it, which one that hangs never does. With TLS it
    would also wait for the provider's own goodbye, half a minute, while that goes on writing."""
    transport = connection.transport
    if transport is not None and (transport.get_write_buffer_size() or _is_tls(transport)):
        transport.abort()
    connection.close()


def is_all_sent(transport: asyncio.Transport) -> bool:
    """False while something of what was written has not left this process.

    TLS hands its bytes on to a transport of its own, which nobody else can see: there the kernel is
    asked what the peer has not acknowledged yet, and no answer counts as no.
    """
    if transport.get_write_buffer_size():
        return False
    if not _is_tls(transport):
        return True
    unsent = bytearray(4)
    try:
        fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, unsent)
    except (OSError, ValueError):
        return False
    return not any(unsent)


def _is_tls(transport: asyncio.Transport) -> bool:
    return transport.get_extra_info("sslcontext") is not None


class Handler(OnlyWhenPaused, ResponseHandler):
    """One connection to a provider."""

    _piece = b""

    def data_received(self, data: bytes) -> None:
        """Read on. The piece is kept for what its end may do to its begin."""
        self._piece = data
        super().data_received(data)
        self._piece = b""

    def set_exception(self, exc: Any, exc_cause: Any = _NO_CAUSE) -> None:
        """Also tells who reads the body when what came is no HTTP: aiohttp does not, and the reader
        would wait for its time to be over.

        What is no HTTP may stand behind a whole answer (a body after a 204, one that is longer than
        its length). In one piece with it, aiohttp would drop the answer too: it is read by itself,
        and the connection is not used again.
        """
        piece, self._piece = self._piece, b""
        if isinstance(exc, HttpProcessingError) and 0 < (end := _end_of_answer(piece)) < len(piece):
            self.set_response_params(read_until_eof=True)
            super().data_received(piece[:end])  # comes here again if the answer is at fault
            self.force_close()
            return
        super().set_exception(exc, exc_cause)
        body = self._payload
        if isinstance(exc, HttpProcessingError) and body is not None and not body.is_eof():
            body.set_exception(NotHTTP(exc.message))


def _end_of_answer(piece: bytes) -> int:
    """Where the first answer of a piece ends by its own word; 0 when that is not seen here."""
    begin = 0
    while (end := piece.find(b"\r\n\r\n", begin) + 4) > 3:
        status = piece[begin:end].split(b" ", 2)[1:2]
        if not status or status[0][:1] != b"1":
            break
        begin = end
    else:
        return 0
    if status and status[0][:3] in (b"204", b"304"):
        return end
    length = _LENGTH.search(piece, begin, end)
    return end + int(length[1]) if length else 0


class Connector(aiohttp.TCPConnector):
    """Keeps the call's ``Progress`` up to date while it makes a connection.

    aiohttp's own trace signals would tell the same, at 17 % of the processor time of a request
    (measured), because they also tell of everything else.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._factory = partial(self._connected)

    async def clean(self, request: aiohttp.ClientRequest, progress: Progress) -> Connection:
        """A connection on which nothing waits to be read, where ``kept`` has none at hand.

        What a provider sent unasked after its last answer (a 408 for being idle, one answer too
        many) would be taken for the answer to this call, which may be another tenant's.
        """
        _PROGRESS.set(progress)
        while True:
            progress.reused = True  # until a new one is made
            connection = await self.connect(request, [], _NO_TIMEOUT)
            protocol = connection.protocol
            if not progress.reused or protocol is None or not protocol.should_close:
                return connection
            connection.close()

    def kept(self, key: ConnectionKey) -> Connection | None:
        """The connection that was used last, if it can be used again.

        The last one and not the first: its memory is warm, and those beyond the need are left to
        grow old. What else there may be to do is left to ``connect``, with its two coroutines.
        """
        waiting = self._conns.get(key)
        if not waiting:
            return None
        protocol, since = waiting[-1]
        longest = self._keepalive_timeout
        fresh = longest is not None and monotonic() - since <= longest
        if not fresh or not protocol.is_connected() or protocol.should_close:
            return None
        waiting.pop()
        if not waiting:
            del self._conns[key]
        self._acquired.add(protocol)
        return Connection(self, key, protocol, self._loop)

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: ClientTimeout
    ) -> ResponseHandler:
        progress = _PROGRESS.get()
        progress.reused, progress.secure = False, req.is_ssl()
        return await super()._create_connection(req, traces, timeout)

    def _connected(self) -> ResponseHandler:
        """There is a connection: its protocol. With TLS the handshake is still to come."""
        progress = _PROGRESS.get()
        if progress.secure:
            progress.phase = Phase.TLS
        handler: type[ResponseHandler] = Handler
        return handler(loop=self._loop)

    async def _resolve_host(
        self, host: str, port: int, traces: Sequence[Trace] | None = None
    ) -> list[ResolveResult]:
        progress = _PROGRESS.get()
        progress.phase = Phase.RESOLVING
        found = await super()._resolve_host(host, port, traces)
        progress.phase = Phase.CONNECTING
        return found
