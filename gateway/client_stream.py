"""A streamed answer on its way to the caller.

Invariant: ``sent`` counts what the caller may have seen of the body; the head goes out with the
first piece, never before. A stream that failed in the middle is not ended properly: the caller gets
an error event and then a connection that breaks off, so that no client takes it for whole.
"""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from controlplane.domain.request_plan import Stop
from gateway import answers
from gateway.attempt import ClientGone, Seen
from gateway.outgoing import Outgoing
from gateway.raw_answer import RawAnswer, fits


class _Answer(web.StreamResponse):
    """For HTTP/1.0. The head goes out with the first piece: one send instead of two."""

    _send_headers_immediately = False

    def __init__(self, headers: Mapping[str, str], outgoing: Outgoing) -> None:
        super().__init__(headers=headers)
        self._outgoing = outgoing

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send a piece of a stream."""
        self._outgoing.flush()
        await super().write(data)

    async def write_eof(self, data: bytes = b"") -> None:
        """Send what is left."""
        self._outgoing.flush()
        await super().write_eof(data)


class ClientStream:
    """The way to one caller. ``head`` makes the answer's headers from the provider's."""

    __slots__ = ("_head", "_outgoing", "_raw", "_request", "_response", "sent")

    def __init__(self, request: web.BaseRequest, head: answers.Head, outgoing: Outgoing) -> None:
        self._request = request
        self._outgoing = outgoing
        self._head = head
        self._raw: RawAnswer | None = None
        self._response: web.StreamResponse | None = None
        self.sent = 0

    @property
    def started(self) -> bool:
        """True once the head is out."""
        return self._response is not None

    @property
    def connected(self) -> bool:
        """False when the caller has closed its connection."""
        transport = self._request.transport
        return transport is not None and not transport.is_closing()

    def expect(self) -> None:
        """An attempt is on its way: make what its answer's head will say of us."""
        if not self.started and fits(self._request, 200):
            self._raw = RawAnswer(self._head.own_lines(), self._outgoing)

    async def write(self, headers: Mapping[str, str], data: bytes) -> None:
        """Send a piece; waits while the caller does not read. Raises ``ClientGone``."""
        try:
            response = self._response or await self._begin(headers)
            self.sent += len(data)
            await response.write(data)
        except ConnectionError as error:
            raise ClientGone from error

    async def _begin(self, headers: Mapping[str, str]) -> web.StreamResponse:
        response: web.StreamResponse
        if fits(self._request, 200):
            response = self._raw_answer(headers, None)
        else:
            response = _Answer(self._head.good(headers), self._outgoing)
        self._response = response
        await response.prepare(self._request)
        return response

    def _raw_answer(self, headers: Mapping[str, str], body: bytes | None) -> RawAnswer:
        raw, self._raw = self._raw, None
        assert raw is not None
        raw.of(answers.lines_passed_on(headers), body)
        return raw

    def abandon(self) -> None:
        """Close the connection if something of an answer is on its way that will have no end."""
        if self._response is not None and self._request.transport is not None:
            self._outgoing.flush()
            self._request.transport.abort()

    def whole(self, seen: Seen) -> web.StreamResponse:
        """A good answer that is not a stream, to be written by the server."""
        if fits(self._request, seen.status):
            return self._raw_answer(seen.headers, seen.body or b"")
        headers = self._head.good(seen.headers)
        return web.Response(status=seen.status or 200, body=seen.body, headers=headers)

    async def finish(self, seen: Seen) -> web.StreamResponse:
        """Send what was held back and end the answer."""
        try:
            response = self._response or await self._begin(seen.headers)
            self.sent += len(seen.last_piece)
            await response.write_eof(seen.last_piece)
        except ConnectionError:
            pass  # the events are written; there is nobody left to tell
        finally:
            await seen.let_go()
        assert self._response is not None
        return self._response

    async def break_off(self, seen: Seen, stop: Stop) -> web.StreamResponse:
        """Say what happened, then close the connection without the end of the body.

        A caller that does not read can be told nothing, and nothing is kept for it.
        """
        assert self._response is not None
        transport = self._request.transport
        if transport is not None and self._request.protocol.writing_paused:
            await seen.let_go()
            self._outgoing.flush()
            transport.abort()
            return self._response
        piece = seen.last_piece
        if not seen.piped and (seen.stream is None or seen.stream.progress.error is None):
            text = f"the stream broke off after its output had begun: {stop.reason}"
            piece += b"data: " + answers.error_body(text, "upstream_error", stop.reason) + b"\n\n"
        try:
            await self.write(seen.headers, piece)
        except ClientGone:
            pass
        finally:
            await seen.let_go()
        self._outgoing.flush()
        if self._request.transport is not None:
            self._request.transport.close()
        return self._response
