"""The client side: one call to a provider, watched as it goes.

Invariants: no call waits for a connection: without a free place the target is refused (gate
``concurrency``); no environment variable, cookie, redirect or retry of the library changes what is
sent; when the caller's task is cancelled the connection is closed at once. Seconds.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import NamedTuple

import aiohttp
from aiohttp import ClientResponse, ClientTimeout
from aiohttp.abc import ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.tracing import Trace
from multidict import istr
from yarl import URL

from controlplane.domain.classify import Phase
from gateway.config import Config, Key, Provider
from gateway.faults import Progress
from gateway.time_limits import TimeLimits

# All limits are kept by the attempt itself, which knows whose they are.
_NO_TIMEOUT = ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None)
KEEP_ALIVE_S = 15.0
_MOST_URLS = 1000
# Of the caller's headers these few go on; its key, cookies and SDK marks do not.
_PASSED_ON = tuple(
    istr(name) for name in ("openai-beta", "openai-organization", "openai-project", "user-agent")
)


_PROGRESS: ContextVar[Progress] = ContextVar("progress")


class Call(NamedTuple):
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


class Upstream:
    """The connections of one worker to every provider."""

    def __init__(self, config: Config) -> None:
        self.providers = {provider.name: provider for provider in config.providers}
        self._urls: dict[tuple[str, str], URL] = {}
        self._in_flight: Counter[str] = Counter()
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Make the connection pool; needs the running loop."""
        self.time_limits = TimeLimits(asyncio.get_running_loop())
        connector = _Connector(limit=0, keepalive_timeout=KEEP_ALIVE_S, ttl_dns_cache=30)
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=_NO_TIMEOUT,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            request_class=_Request,
        )

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()

    def in_flight(self, provider: str) -> int:
        """This worker's calls to the provider that are not over."""
        return self._in_flight[provider]

    def take(self, provider: str) -> None:
        """Take a place for a call; ``give_back`` must follow."""
        self._in_flight[provider] += 1

    def give_back(self, provider: str) -> None:
        """The call is over."""
        self._in_flight[provider] -= 1

    async def post(
        self, call: Call, passed_on: dict[str, str], progress: Progress
    ) -> ClientResponse:
        """Send a call; returns once its headers have come. The caller closes the response."""
        assert self._session is not None
        headers = {
            **passed_on,
            "content-type": "application/json",
            "accept": "text/event-stream" if call.stream else "application/json",
            # Usage has to be read on the way through, so nothing may be compressed.
            "accept-encoding": "identity",
            "idempotency-key": call.idempotency_key,
        }
        if call.key is not None:
            headers["authorization"] = f"Bearer {call.key.secret}"
        _PROGRESS.set(progress)
        return await self._session.post(
            self._url(call),
            data=call.body,
            headers=headers,
            allow_redirects=False,
        )

    def _url(self, call: Call) -> URL:
        key = (call.provider.name, call.path)
        url = self._urls.get(key)
        if url is None:
            url = URL(f"{call.provider.base_url}/{call.path}")
            # Paths come from callers: remember the usual ones, not all that can be made up.
            if len(self._urls) < _MOST_URLS:
                self._urls[key] = url
        return url


def headers_passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    """The few headers of the caller that a provider gets to see."""
    return {name: headers[name] for name in _PASSED_ON if name in headers}


class _Request(aiohttp.ClientRequest):
    """Sends the headers that it is given and none of the library's own."""

    def update_auto_headers(self, skip_auto_headers: Iterable[str] | None) -> None:
        return


class _Connector(aiohttp.TCPConnector):
    """Keeps the call's ``Progress`` up to date.

    aiohttp's own trace signals would tell the same, at 17 % of the processor time of a request
    (measured), because they also tell of everything else.
    """

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: ClientTimeout
    ) -> Connection:
        progress = _PROGRESS.get()
        progress.reused = True
        connection = await super().connect(req, traces, timeout)
        progress.phase = Phase.AWAITING_HEADERS
        return connection

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: ClientTimeout
    ) -> ResponseHandler:
        _PROGRESS.get().reused = False
        return await super()._create_connection(req, traces, timeout)

    async def _resolve_host(
        self, host: str, port: int, traces: Sequence[Trace] | None = None
    ) -> list[ResolveResult]:
        progress = _PROGRESS.get()
        progress.phase = Phase.RESOLVING
        found = await super()._resolve_host(host, port, traces)
        progress.phase = Phase.CONNECTING
        return found
