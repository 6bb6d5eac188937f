"""The client side: one call to a provider, watched as it goes.

Invariants: no call waits for a connection: without a free place the target is refused (gate
``concurrency``); no environment variable, cookie, redirect or retry of the library changes what is
sent; when the caller's task is cancelled the connection is closed at once. Seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import aiohttp
from aiohttp import ClientResponse, ClientTimeout
from multidict import istr
from yarl import URL

from controlplane.domain.classify import Phase
from gateway.config import Config, Key, Provider
from gateway.faults import Progress

# All limits are kept by the attempt itself, which knows whose they are.
_NO_TIMEOUT = ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None)
KEEP_ALIVE_S = 15.0
_MOST_URLS = 1000
Signal = Callable[[aiohttp.ClientSession, SimpleNamespace, Any], Awaitable[None]]
# Of the caller's headers these few go on; its key, cookies and SDK marks do not.
_PASSED_ON = tuple(
    istr(name) for name in ("openai-beta", "openai-organization", "openai-project", "user-agent")
)


@dataclass(frozen=True, slots=True)
class Call:
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
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S, ttl_dns_cache=30)
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=_NO_TIMEOUT,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            trace_configs=[_watching()],
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
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
        return await self._session.post(
            self._url(call),
            data=call.body,
            headers=headers,
            allow_redirects=False,
            trace_request_ctx=progress,
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


def _watching() -> aiohttp.TraceConfig:
    """Signals that keep the call's ``Progress`` up to date."""

    def to(phase: Phase, *, reused: bool = False) -> Signal:
        async def signal(_: aiohttp.ClientSession, context: SimpleNamespace, __: Any) -> None:
            progress: Progress = context.trace_request_ctx
            progress.phase, progress.reused = phase, reused

        return signal

    trace = aiohttp.TraceConfig()
    trace.on_dns_resolvehost_start.append(to(Phase.RESOLVING))
    trace.on_dns_resolvehost_end.append(to(Phase.CONNECTING))
    trace.on_connection_create_end.append(to(Phase.AWAITING_HEADERS))
    trace.on_connection_reuseconn.append(to(Phase.AWAITING_HEADERS, reused=True))
    return trace
