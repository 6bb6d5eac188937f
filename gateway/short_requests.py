"""Short requests to one server on kept connections: one write, and an answer that is read whole.

Connections, TLS, names and the parsing of answers are aiohttp's; its session is not used, because
what it does for each request took half of the processor time of a status report (measured), which
every instance sends every ten seconds and at every change.

Invariants: an answer is bounded in time and bytes; a connection on which something went wrong, or
was left unread, is not used again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import aiohttp
from aiohttp import ClientTimeout
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from gateway import trust
from gateway.connections import Handler, cut, is_all_sent

KEEP_ALIVE_S = 30.0
"""Longer than the pause between two reports, shorter than what servers and proxies keep (60 s)."""


class Whole(NamedTuple):
    """An answer that has come to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Connector(aiohttp.TCPConnector):
    """aiohttp's, with connections that are read as the request path reads its own."""

    def __init__(self, **options: Any) -> None:
        super().__init__(keepalive_timeout=KEEP_ALIVE_S, **options)
        handler: type[ResponseHandler] = Handler
        self._factory = partial(handler, loop=self._loop)


class Endpoint(aiohttp.ClientRequest):
    """Where requests of one kind go, and the part of their head that is always the same.

    What the connector asks for; nothing is ever sent by the library itself. ``ca``: PEM text of
    authorities that are trusted beside the host's.
    """

    def __init__(self, method: str, url: str, headers: Mapping[str, str], ca: str = "") -> None:
        loop = asyncio.get_running_loop()
        super().__init__(method, URL(url), loop=loop, ssl=trust.context(ca) if ca else True)
        self._key = super().connection_key
        lines = {"Host": self.headers["host"], **headers}
        self._begin = f"{method} {self.url.raw_path_qs} HTTP/1.1\r\n" + _lines(lines)

    @property
    def connection_key(self) -> ConnectionKey:
        """Worked out once: each request asks for it."""
        return self._key

    def head(self, headers: Mapping[str, str], length: int | None) -> bytes:
        """The head of one request with so long a body, None without one. Raises ``ValueError``."""
        more = "" if length is None else f"Content-Length: {length}\r\n"
        return f"{self._begin}{_lines(headers)}{more}\r\n".encode("latin-1")


async def ask(
    connector: Connector,
    endpoint: Endpoint,
    headers: Mapping[str, str],
    body: bytes | None,
    *,
    most_bytes: int,
    total_s: float,
    connect_s: float,
) -> Whole:
    """Send one request. Raises ``aiohttp.ClientError``, ``TimeoutError`` or ``OSError``."""
    head = endpoint.head(headers, None if body is None else len(body))
    async with asyncio.timeout(total_s):
        connection = await _connection(connector, endpoint, connect_s)
        try:
            return await _asked(connection, head + (body or b""), most_bytes)
        except HttpProcessingError as error:
            cut(connection)
            raise aiohttp.ClientPayloadError(f"not HTTP: {error.message}") from error
        except BaseException:
            cut(connection)
            raise


async def _connection(connector: Connector, endpoint: Endpoint, connect_s: float) -> Connection:
    """A connection on which nothing waits that would be taken for the answer."""
    timeout = ClientTimeout(total=None, sock_connect=connect_s)
    while True:
        connection = await connector.connect(endpoint, [], timeout)
        if connection.protocol is None or not connection.protocol.should_close:
            return connection
        connection.close()


async def _asked(connection: Connection, request: bytes, most_bytes: int) -> Whole:
    protocol, transport = connection.protocol, connection.transport
    if protocol is None or transport is None or transport.is_closing():
        raise aiohttp.ClientConnectionResetError("the connection was closed before its use")
    protocol.set_response_params(read_until_eof=True)
    transport.write(request)
    while True:
        message, content = await protocol.read()
        if not 100 <= message.code <= 199 or message.code == 101:
            break
    pieces, size = [], 0
    while piece := await content.readany():
        size += len(piece)
        if size > most_bytes:
            raise aiohttp.ClientPayloadError(f"the answer is longer than {most_bytes} bytes")
        pieces.append(piece)
    if not is_all_sent(transport):
        cut(connection)  # answered before it had read the whole request
    else:
        connection.release()
    return Whole(message.code, message.headers, b"".join(pieces))


def _lines(headers: Mapping[str, str]) -> str:
    """Header lines. Raises ``ValueError`` for one that would end its line."""
    for name, value in headers.items():
        if "\n" in value or "\r" in value or "\0" in value:
            raise ValueError(f"{name} has a line break and cannot be sent")
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())
