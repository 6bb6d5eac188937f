"""One attempt, from its first byte out to what it came to: everything that classify wants to know.

Invariants: nothing reaches the client before the first good event of a stream, so that a failure
up to there can be retried or rerouted; after it the provider's bytes are passed on as they come,
in constant memory; a stream's last piece is held back, so that its events are written first. Times
are monotonic seconds, durations seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType
from typing import Any, Protocol

import aiohttp
import msgspec
from msgspec import Struct

from controlplane.domain.classify import Fault
from gateway.clock import Clock
from gateway.event_stream import EventStream
from gateway.faults import (
    AWAITING,
    READING,
    AnswerTooLarge,
    MalformedStream,
    Progress,
    fault_of,
)
from gateway.long_answer import outline
from gateway.time_limits import TimeLimit
from gateway.upstream import Call, Response, Upstream

MAX_ANSWER = 32 * 2**20
MAX_ERROR = 256 * 1024
PIPED_FROM = 256 * 1024
"""Of an answer that nobody reads: a shorter one is kept whole, for what it may say of its usage."""
OUTLINED_FROM = 2**20
_FAULTS = (aiohttp.ClientError, OSError, TimeoutError, MalformedStream, AnswerTooLarge)
_EMPTY: Mapping[str, str] = MappingProxyType({})


class Out(Protocol):
    """The way to the client. ``sent`` counts the body's bytes."""

    sent: int

    def expect(self) -> None:
        """An attempt is on its way: make ready what of an answer is known before it comes."""

    async def write(self, headers: Mapping[str, str], data: bytes) -> None:
        """Send a piece of a stream; the first one sends the head before it."""


class ClientGone(Exception):
    """The client closed its connection while something was being written to it."""


class Limits(Struct, frozen=True, gc=False):
    """``provider_s``: the provider's own time for its whole answer, or a stream's first event.

    ``left_s``: the request's deadline, which may come before it.
    """

    provider_s: float
    idle_s: float
    left_s: float


@dataclass(slots=True)
class Seen:
    """What was seen of one attempt.

    ``stored``: the body is a thing that was asked for (a file, a batch), which may tell of errors
    and failures of its own; it says nothing about this call.
    """

    progress: Progress = field(default_factory=Progress)
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    body: bytes | None = None
    stream: EventStream | None = None
    last_piece: bytes = b""
    piped: bool = False
    stored: bool = False
    fault: Fault | None = None
    first_byte_s: float | None = None
    ended_s: float = 0.0
    client_gone: bool = False
    cancelled: asyncio.CancelledError | None = None
    response: Response | None = None

    def parsed(self) -> Any:
        """The body for the classifier: an object where it is JSON (of a long one its outline), else
        text."""
        if self.body is None:
            return None
        try:
            if len(self.body) > OUTLINED_FROM and self.body[:64].lstrip()[:1] == b"{":
                return outline(self.body)
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, RecursionError):
            return self.body.decode("utf-8", "replace")

    async def let_go(self) -> None:
        """Give the connection back to the pool if its last bytes are here, else close it."""
        response, self.response = self.response, None
        if response is None or response.content.is_eof():
            return  # at the end of its body a response gives its connection back by itself
        try:
            async with asyncio.timeout(0.05):
                while not response.content.is_eof():
                    await response.content.readany()
        except _FAULTS:
            pass
        finally:
            response.close()


class Attempt:
    """Makes one call. Used once."""

    __slots__ = ("_began", "_call", "_clock", "_events", "_limits", "_out", "_upstream", "seen")

    def __init__(
        self, upstream: Upstream, call: Call, limits: Limits, out: Out, clock: Clock
    ) -> None:
        self._upstream = upstream
        self._call = call
        self._limits = limits
        self._out = out
        self._clock = clock
        self._began = clock.monotonic()
        self.seen = Seen()
        """What has been seen up to now."""
        self._events: EventStream | None = None

    async def run(self, passed_on: dict[str, str]) -> Seen:
        """Make the call. Raises nothing that a call can meet: a cancellation is in ``cancelled``,
        for after the record."""
        seen = self.seen
        self._upstream.take(self._call.provider.name)
        try:
            seconds = min(self._limits.provider_s, self._limits.left_s)
            with self._upstream.time_limits.within(seconds) as limit:
                await self._call_and_read(passed_on, limit)
        except asyncio.CancelledError as error:
            seen.cancelled = error
            seen.fault = fault_of(error, seen.progress, self_inflicted=True)
        except ClientGone:
            seen.client_gone = True
        except _FAULTS as error:
            seen.fault = fault_of(error, seen.progress)
        finally:
            self._upstream.give_back(self._call.provider.name)
            seen.ended_s = self._since()
        return seen

    async def _call_and_read(self, passed_on: dict[str, str], limit: TimeLimit) -> None:
        seen = self.seen
        unread = self._call.unread
        if unread is None or unread.rest is None:
            response = await self._upstream.post(
                self._call, passed_on, seen.progress, meanwhile=self._expect
            )
        else:
            response = await self._upload(passed_on, limit)
        try:
            seen.progress.phase = READING
            seen.status, seen.headers = response.status, response.headers
            streams = self._call.stream and response.status == 200
            if streams and response.content_type == "text/event-stream":
                # A stream's head says nothing yet; the provider still owes its first event.
                seen.progress.phase = AWAITING
                await self._stream(response, limit)
            elif self._call.unread is not None and response.status == 200:
                seen.stored = self._call.unread.method != "POST"
                await self._pipe(response, limit)
            else:
                seen.first_byte_s = self._since()
                most = MAX_ANSWER if response.status == 200 else MAX_ERROR
                seen.body = await _read(response, most)
        finally:
            if seen.response is None:
                response.close()

    def _expect(self) -> None:
        """The call is on its way, and its answer will find ready what does not depend on it."""
        self._out.expect()
        if self._call.stream:
            call = self._call
            self._events = EventStream(call.provider.name, hide_usage=call.hide_usage)

    async def _upload(self, passed_on: dict[str, str], limit: TimeLimit) -> Response:
        """Send a long body. Until it is all out the time is the caller's, then the provider's."""
        limits = self._limits
        limit.move(limits.left_s - self._since(), inf)

        def sent() -> None:
            limit.move(min(limits.provider_s, limits.left_s - self._since()), inf)

        self._expect()
        return await self._upstream.post(self._call, passed_on, self.seen.progress, sent)

    async def _stream(self, response: Response, limit: TimeLimit) -> None:
        seen = self.seen
        stream = seen.stream = self._events
        assert stream is not None
        held = await self._until_good(response, stream)
        if stream.progress.error is not None or not stream.progress.events:
            return
        seen.first_byte_s = self._since()
        seen.progress.phase = READING
        if not stream.done:
            limit.move(self._limits.left_s - seen.first_byte_s, self._limits.idle_s)
        await self._pass_on(response, stream, held, limit)

    async def _pipe(self, response: Response, limit: TimeLimit) -> None:
        """Pass a body on without looking at it, in constant memory once it is long."""
        seen, content, held = self.seen, response.content, b""
        seen.first_byte_s = self._since()
        # Events are waited for one by one: they go on as they come.
        least = 1 if response.content_type == "text/event-stream" else PIPED_FROM
        while not content.at_eof():
            held += await content.readany()
            limit.touch()
            if len(held) < least:
                continue
            if not seen.piped:
                seen.piped = True
                limit.move(self._limits.left_s - self._since(), self._limits.idle_s)
            limit.reading = False
            await self._out.write(seen.headers, held)
            limit.reading, held = True, b""
        if seen.piped:
            seen.last_piece = held
        else:
            seen.body = held

    async def _until_good(self, response: Response, stream: EventStream) -> bytes:
        """Read up to the first event; returns what is held for the client."""
        held = b""
        while not stream.progress.events:
            data = await response.content.readany()
            if not data:
                return held + stream.end()
            held += stream.feed(data)
        return held

    async def _pass_on(
        self, response: Response, stream: EventStream, piece: bytes, limit: TimeLimit
    ) -> None:
        seen, out, content = self.seen, self._out, response.content
        while not stream.done and stream.progress.error is None:
            if piece:
                limit.reading = False
                await out.write(seen.headers, piece)
                limit.reading = True
            data = await content.readany()
            limit.touch()
            if not data:
                piece = stream.end()
                break
            piece = stream.feed(data)
        seen.last_piece = piece
        if stream.done:
            seen.response = response

    def _since(self) -> float:
        return self._clock.monotonic() - self._began


async def _read(response: Response, most: int) -> bytes:
    """A whole body of at most ``most`` bytes."""
    content = response.content
    if content.is_eof():
        data = content.read_nowait()
        if len(data) > most:
            raise AnswerTooLarge(f"an answer of more than {most} bytes")
        return data
    parts = [await content.readany()]
    size = len(parts[0])
    while not content.at_eof():
        parts.append(await content.readany())
        size += len(parts[-1])
        if size > most:
            raise AnswerTooLarge(f"an answer of more than {most} bytes")
    return parts[0] if len(parts) == 1 else b"".join(parts)
