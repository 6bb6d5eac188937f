"""The HTTP that this gateway speaks to its control plane (``docs/wire.md``), and nothing else.

Invariants: every failure to get an answer is one exception, ``NoAnswer``; answers are bounded; the
token goes in a header and is never logged; the environment's proxies are not used.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

import aiohttp

from controlplane.domain.durations import instant, number
from gateway.config import ControlPlane

ANSWER_BYTES = 32 * 2**20
SECONDS = 10.0
CONNECT_SECONDS = 5.0
STREAM_SILENCE_SECONDS = 30.0
"""A little longer than the watch's own patience, and for the head of the answer too: a process that
is stopped, or a path that swallows packets, accepts a connection and never says a word on it."""


class NoAnswer(Exception):
    """The control plane did not answer: whether it did what was asked is not known."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. ``retry_after_s`` is what its header asks for, None without one."""

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
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Contact:
        self._session = aiohttp.ClientSession(
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=SECONDS, sock_connect=CONNECT_SECONDS),
            trust_env=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def send_events(self, body: bytes, gzipped: bool) -> Answer:
        """POST one batch. Raises ``NoAnswer``."""
        headers = {"Content-Type": "application/json"}
        if gzipped:
            headers["Content-Encoding"] = "gzip"
        return await self._ask("POST", f"{self._base}/events", headers, body)

    async def send_status(self, boot_id: str, body: bytes) -> Answer:
        """PATCH one status report. Raises ``NoAnswer``."""
        headers = {"Content-Type": "application/json"}
        return await self._ask("PATCH", f"{self._instances}/{boot_id}/status", headers, body)

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
        with _no_answer():
            response = await self._open.get(
                self._config,
                params=query,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
            )
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
        with _no_answer():
            async with self._open.request(
                method, url, headers=headers, data=body, allow_redirects=False
            ) as response:
                return Answer(response.status, await _bounded(response), _retry_after(response))


class Stream:
    """An open answer that is read piece by piece."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.retry_after_s = _retry_after(response)

    async def read(self) -> bytes:
        """The next bytes; empty at the end. Raises ``NoAnswer``."""
        with _no_answer():
            return await self._response.content.readany()


@contextmanager
def _no_answer() -> Iterator[None]:
    """The one table from this transport's failures to ours."""
    try:
        yield
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise NoAnswer(f"{type(error).__name__}: {error}") from error


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    pieces, size = [], 0
    async for piece in response.content.iter_chunked(2**16):
        size += len(piece)
        if size > ANSWER_BYTES:
            raise NoAnswer(f"the answer is longer than {ANSWER_BYTES} bytes")
        pieces.append(piece)
    return b"".join(pieces)


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    text = response.headers.get("Retry-After", "")
    seconds = number(text)
    if seconds is None and (at := instant(text)) is not None:
        seconds = (at - datetime.now(UTC)).total_seconds()
    return None if seconds is None else max(0.0, seconds)
