"""The HTTP that this gateway speaks to its control plane (``docs/wire.md``), and nothing else.

Invariants: every failure to get an answer is one exception, ``NoAnswer``; answers are bounded; the
token goes in a header and is never logged; the environment's proxies are not used.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

import aiohttp

from controlplane.domain.durations import instant, number
from gateway import trust
from gateway.config import ControlPlane
from gateway.short_requests import Connector, Endpoint, ask

ANSWER_BYTES = 32 * 2**20
SECONDS = 10.0
CONNECT_SECONDS = 5.0
LONGEST_WAIT_SECONDS = 600.0
"""A proxy on the way may name any time; a gateway that obeyed a wait of years would be mute."""
STREAM_SILENCE_SECONDS = 30.0
"""A little longer than the watch's own patience, and for the head of the answer too: a process that
is stopped, or a path that swallows packets, accepts a connection and never says a word on it."""
_JSON = {"Content-Type": "application/json"}
_GZIPPED = {"Content-Encoding": "gzip"}


class NoAnswer(Exception):
    """The control plane did not answer: whether it did what was asked is not known."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. ``retry_after_s``: what its header asks for, None without one, and at most
    ``LONGEST_WAIT_SECONDS``."""

    status: int
    body: bytes
    retry_after_s: float | None


class Contact:
    """One session. Use it as an async context manager."""

    def __init__(self, control_plane: ControlPlane, gateway: str) -> None:
        self._base = control_plane.url.rstrip("/") + "/api/v1"
        self._config = f"{self._base}/gateways/{quote(gateway, safe='')}/config"
        self._instances = f"{self._base}/gateways/{quote(gateway, safe='')}/instances"
        self._headers = {"Authorization": f"Bearer {control_plane.token}"}
        self._ca = control_plane.ca
        self._connector: Connector | None = None
        self._session: aiohttp.ClientSession | None = None
        self._endpoints: dict[tuple[str, str], Endpoint] = {}
        self.trouble = ""
        """Why the last request was not answered, or not well; empty when it was."""

    async def __aenter__(self) -> Contact:
        self._connector = Connector()
        self._session = aiohttp.ClientSession(
            connector=self._connector, headers=self._headers, trust_env=False
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def send_events(self, body: bytes, gzipped: bool) -> Answer:
        """POST one batch. Raises ``NoAnswer``."""
        return await self._ask("POST", f"{self._base}/events", _GZIPPED if gzipped else {}, body)

    async def send_status(self, boot_id: str, body: bytes) -> Answer:
        """PATCH one status report. Raises ``NoAnswer``."""
        return await self._ask("PATCH", f"{self._instances}/{boot_id}/status", {}, body)

    async def fetch(self, etag: str | None) -> Answer:
        """GET the snapshot, unless it is still one of these ETags. Raises ``NoAnswer``."""
        headers = {"If-None-Match": etag} if etag else {}
        return await self._ask("GET", self._config, headers, None)

    @asynccontextmanager
    async def watch(self, epoch: str, generation: int, hash_: str) -> AsyncIterator[Stream]:
        """Open the watch's stream. Raises ``NoAnswer``, then or while it is read."""
        query = {"watch": "1", "generation": str(generation), "hash": hash_, "epoch": epoch}
        # A stream has no end, so only the connection and its silence are timed.
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_SECONDS, sock_read=STREAM_SILENCE_SECONDS
        )
        headers = {"Accept": "text/event-stream"}
        with self._noting_trouble():
            response = await self._open.get(
                self._config,
                params=query,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                ssl=trust.context(self._ca) if self._ca else True,
            )
        self._heard(response.status)
        try:
            yield Stream(response)
        finally:
            response.close()

    @property
    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("enter the contact before using it")
        return self._session

    async def _ask(
        self, method: str, url: str, headers: dict[str, str], body: bytes | None
    ) -> Answer:
        if self._connector is None:
            raise RuntimeError("enter the contact before using it")
        endpoint = self._endpoints.get((method, url))
        if endpoint is None:  # three in the life of a process, the boot id being its own
            fixed = self._headers if body is None else self._headers | _JSON
            endpoint = self._endpoints[method, url] = Endpoint(method, url, fixed, self._ca)
        with self._noting_trouble():
            whole = await ask(
                self._connector,
                endpoint,
                headers,
                body,
                most_bytes=ANSWER_BYTES,
                total_s=SECONDS,
                connect_s=CONNECT_SECONDS,
            )
        self._heard(whole.status)
        return Answer(whole.status, whole.body, _retry_after(whole.headers))

    @contextmanager
    def _noting_trouble(self) -> Iterator[None]:
        try:
            with _no_answer():
                yield
        except NoAnswer as error:
            self.trouble = str(error)
            raise

    def _heard(self, status: int) -> None:
        self.trouble = f"it answers {status}" if status >= 400 else ""


class Stream:
    """An open answer that is read piece by piece."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.retry_after_s = _retry_after(response.headers)

    async def read(self) -> bytes:
        """The next bytes; empty at the end. Raises ``NoAnswer``."""
        with _no_answer():
            return await self._response.content.readany()

    def give_up(self, why: str) -> None:
        """Who reads gets ``NoAnswer``."""
        self._response.content.set_exception(TimeoutError(why))


@contextmanager
def _no_answer() -> Iterator[None]:
    """The one table from this transport's failures to ours."""
    try:
        yield
    except aiohttp.ClientConnectorCertificateError as error:
        raise NoAnswer(trust.told(error, "control_plane.ca_file")) from error
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise NoAnswer(f"{type(error).__name__}: {error}") from error


def _retry_after(headers: Mapping[str, str]) -> float | None:
    text = headers.get("Retry-After")
    if text is None:
        return None
    seconds = number(text)
    if seconds is None and (at := instant(text)) is not None:
        seconds = (at - datetime.now(UTC)).total_seconds()
    return None if seconds is None else min(max(0.0, seconds), LONGEST_WAIT_SECONDS)
