"""Plain ASGI for the hot paths: read a bounded body, answer JSON, answer a problem.

Invariant: a body is never read beyond its bound, and every ``Problem`` raised below becomes a
problem document; anything else is a 500 that is logged and says nothing of the inside.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from controlplane.errors import Busy, Problem, TooLarge
from controlplane.models.pool import AWAY

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Handler = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger(__name__)


class Disconnected(Exception):
    """The caller went away before its body was whole."""


def header(scope: Scope, name: bytes) -> str:
    """The first header of that name (lower case), or ''."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value.decode("latin-1"))
    return ""


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The whole body; ``TooLarge`` as soon as it is known to be over ``limit`` bytes."""
    declared = header(scope, b"content-length")
    if declared.isdigit() and int(declared) > limit:
        raise TooLarge(f"The body has {declared} bytes; at most {limit} are read.")
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise TooLarge(f"The body has more than {limit} bytes.")
        parts.append(chunk)
        if not message.get("more_body"):
            return b"".join(parts)


async def answer(
    send: Send,
    status: int,
    body: bytes,
    *,
    content_type: bytes = b"application/json",
    headers: tuple[tuple[bytes, bytes], ...] = (),
) -> None:
    """Send one whole response."""
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", content_type),
                (b"content-length", str(len(body)).encode()),
                (b"cache-control", b"no-store"),
                (b"x-content-type-options", b"nosniff"),
                *headers,
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})


async def answer_json(send: Send, value: object, status: int = 200) -> None:
    """Send a msgspec-encodable value."""
    await answer(send, status, msgspec.json.encode(value))


async def answer_problem(send: Send, problem: Problem) -> None:
    """Send a problem document, with ``Retry-After`` where it has one."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    if problem.retry_after_s is not None:
        headers = ((b"retry-after", str(problem.retry_after_s).encode()),)
    await answer(
        send,
        problem.status,
        msgspec.json.encode(problem.body()),
        content_type=b"application/problem+json",
        headers=headers,
    )


def guarded(handler: Handler) -> Handler:
    """Wrap a hot handler: problems become answers, surprises become a logged 500."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watched_send(message: MutableMapping[str, Any]) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await handler(scope, receive, watched_send)
        except Disconnected:
            return
        except Problem as problem:
            if started:
                raise
            await answer_problem(send, problem)
        except AWAY as error:
            # Postgres is away or a lock is held too long: the caller keeps what it has and waits.
            log.warning("%s %s: %s", scope["method"], scope["path"], error)
            if started:
                raise
            await answer_problem(send, Busy("Postgres does not answer.", retry_after_s=1))
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if started:
                raise
            await answer_problem(
                send,
                Problem("Something failed here; the log says what.", code="internal", status=500),
            )

    return run
