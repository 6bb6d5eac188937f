"""The client side: one call to a provider, watched as it goes.

Invariants: no call waits for a connection: without a free place the target is refused (gate
``concurrency``); no environment variable, cookie, redirect or retry of the library changes what is
sent; when the caller's task is cancelled the connection is closed at once. Seconds.

Connections, TLS, names and the parsing of answers are aiohttp's; its session is not used, because
what it does for each request (a request, a response, two header maps, a payload, a task) took 80 of
the 340 us of a plain call (measured), the sending and the reading not counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping

import aiohttp
from aiohttp import StreamReader
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection
from aiohttp.http import RawResponseMessage
from aiohttp.http_exceptions import HttpProcessingError
from msgspec import Struct
from multidict import istr
from yarl import URL

from gateway import trust, upload
from gateway.config import Config, Key, Provider
from gateway.connections import Connector, cut, is_all_sent
from gateway.faults import AWAITING, NoConnection, Progress
from gateway.opaque import Unread
from gateway.outgoing import Outgoing
from gateway.time_limits import TimeLimits

log = logging.getLogger(__name__)

KEEP_ALIVE_S = 15.0
_MOST_URLS = 1000
_MOST_ANNOUNCEMENTS = 1000
"""1xx heads before an answer. One a second says for a quarter of an hour that it is at work."""
_ONE_WRITE = 64 * 1024
"""A shorter body is sent together with its head; a longer one is not worth the copy."""
_CONTENT_TYPE = istr("content-type")
# Usage has to be read on the way through, so nothing may be compressed.
_FIXED = b"content-type: application/json\r\naccept-encoding: identity\r\n"
# Of the caller's headers these few go on; its key, cookies and SDK marks do not.
_PASSED_ON = tuple(
    istr(name) for name in ("openai-beta", "openai-organization", "openai-project", "user-agent")
)


class Call(Struct, frozen=True, gc=False):
    """One attempt as it is sent, to ``path`` below the provider's base URL.

    Every attempt to a provider has the same ``idempotency_key``.
    """

    path: str
    provider: Provider
    key: Key | None
    body: bytes
    stream: bool
    hide_usage: bool
    idempotency_key: str
    unread: Unread | None = None


class Upstream:
    """The connections of one worker to every provider."""

    def __init__(self, config: Config) -> None:
        self.providers = {provider.name: provider for provider in config.providers}
        self._places: dict[tuple[str, str], _Place] = {}
        # No Counter: it is written to by way of Python.
        self._in_flight: defaultdict[str, int] = defaultdict(int)
        self._certificates: Counter[str] = Counter()
        self._calls = 0
        self._connector: Connector | None = None

    async def start(self) -> None:
        """Make the connection pool; needs the running loop."""
        loop = asyncio.get_running_loop()
        self.time_limits, self.outgoing = TimeLimits(loop), Outgoing(loop)
        for ca in {provider.ca for provider in self.providers.values() if provider.ca}:
            trust.context(ca)  # reads the host's store, for which no call should wait
        self._connector = Connector(limit=0, keepalive_timeout=KEEP_ALIVE_S, ttl_dns_cache=30)

    async def close(self) -> None:
        """Close every connection."""
        if self._connector is not None:
            await self._connector.close()

    def in_flight(self, provider: str) -> int:
        """This worker's calls to the provider that are not over."""
        return self._in_flight[provider]

    def take(self, provider: str) -> None:
        """Take a place for a call; ``give_back`` must follow."""
        self._in_flight[provider] += 1
        self._calls += 1
        self.outgoing.alone = self._calls == 1

    def give_back(self, provider: str) -> None:
        """The call is over."""
        self._in_flight[provider] -= 1
        self._calls -= 1
        self.outgoing.alone = self._calls == 0

    async def post(
        self,
        call: Call,
        passed_on: dict[str, str],
        progress: Progress,
        sent: Callable[[], None] | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> Response:
        """Send a call; returns once its headers have come. The caller closes the response.

        ``sent`` is for a call with ``unread.rest``: the last of it is out. ``meanwhile`` is for
        every other one: called once it is on its way, for what would else wait for the answer.
        """
        assert self._connector is not None
        place = self._place(call)
        head = place.head(call, passed_on)
        connection = self._connector.kept(place.connection_key)
        if connection is not None:
            progress.reused = True
        else:
            connection = await self._connected(self._connector, call.provider, place, progress)
        progress.phase = AWAITING
        try:
            protocol, transport = connection.protocol, connection.transport
            if protocol is None or transport is None or transport.is_closing():
                raise aiohttp.ClientConnectionResetError("the connection was closed before its use")
            if sent is not None and call.unread is not None:
                protocol.set_response_params(read_until_eof=True)
                self.outgoing.flush()
                head_of = _head_of(protocol, place)
                return Response(
                    connection,
                    *await upload.send(protocol, head, call.body, call.unread, head_of, sent),
                )
            if len(call.body) < _ONE_WRITE:
                self.outgoing.send(transport, head + call.body)
            else:
                self.outgoing.flush()
                transport.write(head)
                transport.write(call.body)
            # In this turn of the loop nothing can be answered yet.
            protocol.set_response_params(read_until_eof=True)
            if meanwhile is not None:
                meanwhile()
            answer = await _head_of(protocol, place)
            if self.outgoing.holds(transport):
                # It is no answer to this call, and the connection must not go to the next one.
                raise aiohttp.ClientConnectionResetError("an answer came before the question")
            return Response(connection, *answer)
        except BaseException:
            cut(connection)
            raise

    async def _connected(
        self, connector: Connector, provider: Provider, place: _Place, progress: Progress
    ) -> Connection:
        """A new connection within the provider's time for it. Raises ``NoConnection`` after it.

        The attempt's own limit runs on around this one, and may come first.
        """
        try:
            with self.time_limits.within(provider.connect_seconds):
                return await connector.clean(place, progress)
        except TimeoutError as error:
            told = f"no connection within {provider.connect_seconds:g} s"
            raise NoConnection(f"{told} ({progress.phase})") from error
        except aiohttp.ClientConnectorCertificateError as error:
            self._tell(provider.name, error)
            raise

    def _tell(self, provider: str, error: aiohttp.ClientConnectorCertificateError) -> None:
        """Into the log: the 1st, 2nd, 4th, 8th … time, as it is so until a person mends it."""
        self._certificates[provider] += 1
        times = self._certificates[provider]
        if times & (times - 1) == 0:
            key = f"the ca_file of [[providers]] {provider}"
            log.error("try %d: %s", times, trust.told(error, key))

    def _place(self, call: Call) -> _Place:
        key = (call.provider.name, call.path)
        place = self._places.get(key)
        if place is None:
            place = _Place(URL(f"{call.provider.base_url}/{call.path}"), call.provider.ca)
            # Paths come from callers: remember the usual ones, not all that can be made up.
            if call.unread is None and len(self._places) < _MOST_URLS:
                self._places[key] = place
        return place


class Response:
    """A provider's answer whose head has come.

    At the end of its body the connection goes back to the pool by itself.
    """

    __slots__ = ("_connection", "content", "headers", "status")

    def __init__(
        self, connection: Connection, message: RawResponseMessage, content: StreamReader
    ) -> None:
        self._connection: Connection | None = connection
        self.status = message.code
        self.headers: Mapping[str, str] = message.headers
        self.content = content
        content.on_eof(self._give_back)

    @property
    def content_type(self) -> str:
        """Without its parameters, in lower case."""
        return self.headers.get(_CONTENT_TYPE, "").partition(";")[0].strip().lower()

    def close(self) -> None:
        """Close the connection, unless it has been given back."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self.content.set_exception(aiohttp.ClientConnectionError("Connection closed"))
            cut(connection)

    def _give_back(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        transport = connection.transport
        if transport is not None and not is_all_sent(transport):
            cut(connection)  # answered before it had read the whole request
        else:
            connection.release()


async def _head_of(
    protocol: ResponseHandler, place: _Place
) -> tuple[RawResponseMessage, StreamReader]:
    """The answer's head and the body to come; what only announces it (1xx) is skipped."""
    try:
        for _ in range(_MOST_ANNOUNCEMENTS):
            message, content = await protocol.read()
            if not 100 <= message.code <= 199 or message.code == 101:
                return message, content
    except HttpProcessingError as error:
        raise aiohttp.ClientResponseError(
            place.request_info,
            (),
            status=error.code,
            message=error.message,
            headers=error.headers,
        ) from error
    text = f"{_MOST_ANNOUNCEMENTS} announcements and no answer"
    raise aiohttp.ClientResponseError(place.request_info, (), message=text)


def headers_passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    """The few headers of the caller that a provider gets to see."""
    return {name: headers[name] for name in _PASSED_ON if name in headers}


class _Place(aiohttp.ClientRequest):
    """Where calls go: what the connector asks, and the part of a head that is always the same.

    One for all calls to a URL; nothing is ever sent by the library itself.
    """

    def __init__(self, url: URL, ca: str) -> None:
        loop = asyncio.get_running_loop()
        super().__init__("POST", url, loop=loop, ssl=trust.context(ca) if ca else True)
        self._key = super().connection_key
        host = self.headers["host"]
        self._begin = f"POST {url.raw_path_qs} HTTP/1.1\r\nHost: {host}\r\n".encode() + _FIXED
        self._heads: dict[tuple[bool, str], bytes] = {}

    @property
    def connection_key(self) -> ConnectionKey:
        """Worked out once: each call asks for it."""
        return self._key

    def head(self, call: Call, passed_on: Mapping[str, str]) -> bytes:
        """The head of one call. Raises ``ValueError`` for a header that would end its line."""
        if call.unread is not None:
            own_headers = {"host": self.headers["host"], "idempotency-key": call.idempotency_key}
            if call.key is not None:
                own_headers["authorization"] = f"Bearer {call.key.secret}"
            path = self.url.raw_path
            return upload.head_of(call.unread, path, own_headers, passed_on, len(call.body))
        own = f"idempotency-key: {call.idempotency_key}\r\ncontent-length: {len(call.body)}\r\n"
        for name, value in passed_on.items():
            own += f"{name}: {value}\r\n"
        if own.count("\n") != 2 + len(passed_on) or own.count("\r") != 2 + len(passed_on):
            raise ValueError("a header with a line break cannot be sent")
        return b"%b%b\r\n" % (self._fixed(call.key, call.stream), own.encode("utf-8", "ignore"))

    def _fixed(self, key: Key | None, stream: bool) -> bytes:
        secret = "" if key is None else key.secret
        head = self._heads.get((stream, secret))
        if head is None:
            accept = "text/event-stream" if stream else "application/json"
            lines = f"accept: {accept}\r\n"
            if key is not None:
                lines += f"authorization: Bearer {key.secret}\r\n"
            head = self._heads[stream, secret] = self._begin + lines.encode()
        return head
