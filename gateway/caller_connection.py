"""One connection of a caller: its requests one after another, each served by the same task.

aiohttp's own loop makes a task for each request, which costs two more turns of the event loop and
the keeping of a task's state. Here the connection's task serves its requests itself.

Invariants: what is out of the ordinary (bytes that are no HTTP, an upgrade) is left to aiohttp's
loop, which then keeps the connection; an answer has left before the next request is begun; a caller
that goes away cancels what is being served for it; nothing of a request is held while the next one
is waited for.
"""

from __future__ import annotations

import asyncio

from aiohttp import StreamReader, web
from aiohttp.http_exceptions import ContentEncodingError, LineTooLong
from aiohttp.http_parser import RawRequestMessage
from aiohttp.http_writer import StreamWriter
from aiohttp.web_protocol import RequestHandler

from gateway import answers
from gateway.flow import OnlyWhenPaused

CANCELLED_S = 1.0
"""How long what was cancelled may take to tell what became of it."""
_UNREADABLE: dict[type, str] = {
    LineTooLong: "its first line or one of its headers is longer than 8190 bytes",
    ContentEncodingError: "its content-encoding is not known here",
}


class CallerConnection(OnlyWhenPaused, RequestHandler):
    """Made by the server for each connection that it accepts."""

    async def start(self) -> None:
        """Serve requests until the connection ends."""
        while not self._force_close:
            if not self._messages:
                self._waiter = self._loop.create_future()
                try:
                    await self._waiter
                finally:
                    self._waiter = None
            if not self._ordinary():
                await super().start()
                return
            if not await self._serve():
                break
            self._expect_another()
            if self._messages:
                await asyncio.sleep(0)  # what was answered leaves first (``outgoing``)
        if not self._force_close:
            await asyncio.sleep(0)  # the last answer leaves before the connection is closed
            self._task_handler = None
            if self.transport is not None:
                self.transport.close()

    def _ordinary(self) -> bool:
        """True when the next message is a request and the connection stays HTTP."""
        return type(self._messages[0][0]) is RawRequestMessage and not self._upgraded

    async def _serve(self) -> bool:
        """Answer the next request; False when the connection is not to be used again."""
        message, body = self._messages.popleft()
        assert self._parser is not None
        self._parser.message_consumed()
        if self._buffer_paused and len(self._messages) <= self._msg_queue_resume_size:
            self._resume_reading_if_drained()
        assert self._manager is not None
        self._manager.requests_count += 1
        assert self._request_factory is not None
        assert self._request_handler is not None
        task = self._task_handler or asyncio.current_task()
        writer = StreamWriter(self, self._loop)
        request = self._request_factory(message, body, self, writer, task)  # type: ignore[arg-type]
        self._request_in_progress = True
        try:
            self._current_request = request
            try:
                response = await self._request_handler(request)
            finally:
                self._current_request = None
            await response.prepare(request)
            await response.write_eof()
            self._done()
            self._keepalive = bool(response.keep_alive)
            if not body.is_eof():
                await self._read_off(body)
        except ConnectionError:
            return False
        except asyncio.CancelledError:
            self.force_close()
            raise
        except Exception as error:
            self.log_exception("Unhandled exception", exc_info=error)
            self.force_close()
        except BaseException:
            self.force_close()
            raise
        finally:
            self._done()
            request._task = None  # type: ignore[assignment]  # else a circle, if it failed
        return self._keepalive and not self._close and not self._force_close

    def _done(self) -> None:
        self._request_in_progress = False
        waiter, self._handler_waiter = self._handler_waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def _read_off(self, body: StreamReader) -> None:
        """Read what is left of a body that was answered early, so that the caller gets its answer
        before the connection is closed under what it still sends."""
        if not self._force_close:
            try:
                async with asyncio.timeout(self._lingering_time):
                    while not body.is_eof():
                        await body.readany()
            except TimeoutError:
                pass
        if not body.is_eof() and not self._force_close:
            self.close()

    def _expect_another(self) -> None:
        """Close the connection if no request comes in time."""
        close_at = self._loop.time() + self._keepalive_timeout
        self._next_keepalive_close_time = close_at
        if self._keepalive_handle is None:
            self._keepalive_handle = self._loop.call_at(close_at, self._process_keepalive)

    async def shutdown(self, timeout: float | None = 15.0) -> None:
        """Give the request in flight its time to end, then cancel it, and see it end.

        aiohttp waits for that time once more before it cancels. By then the parent has killed the
        worker, and with it goes what it would have told of the request and of itself.
        """
        task = self._task_handler
        if self._request_in_progress and task is not None:
            self._force_close = True
            await asyncio.wait((task,), timeout=timeout)
            task.cancel()  # before the connection closes, or it would be the caller that left
        await super().shutdown(CANCELLED_S)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """In aiohttp's loop too an answer has left before anything else is done."""
        finished = await super().finish_response(request, resp, start_time)
        await asyncio.sleep(0)
        return finished

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What is no HTTP that can be read never reaches the proxy; its answer has the API's shape
        all the same, and does not quote what came."""
        told = super().handle_error(request, status, exc, message)
        if status >= 500:
            text, kind, code = "the gateway failed", "server_error", "gateway_fault"
        else:
            reason = _UNREADABLE.get(type(exc), "it is not HTTP that can be read")
            text, kind = f"the request was refused: {reason}", "invalid_request_error"
            code = "unreadable_request"
        answer = answers.error(told.status, text, kind=kind, code=code)
        answer.force_close()
        return answer
