"""Talk to the ASGI application in this process: the whole door, without a socket.

Invariant: a request goes through `controlplane.asgi.application` as a server would send it, and its
body is given only when the application asks for it (`Answer.body_read` says whether it did).
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

import msgspec

from controlplane.asgi import application

_CHUNK = 64 * 1024


@dataclass(frozen=True)
class Answer:
    """One response."""

    status: int
    headers: dict[str, str]
    body: bytes
    body_read: int

    def json(self) -> Any:
        """The decoded body."""
        return msgspec.json.decode(self.body)


async def call(
    method: str,
    path: str,
    *,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
    query: str = "",
) -> Answer:
    """Send one request and collect the answer. ``body_read``: bytes that were taken of the body."""
    given = {"host": "localhost"} | (headers or {})
    scope: MutableMapping[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in given.items()],
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 80),
    }
    at = 0
    ended = False
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        nonlocal at, ended
        if ended:
            return {"type": "http.disconnect"}
        chunk = body[at : at + _CHUNK]
        at += len(chunk)
        ended = at >= len(body)
        return {"type": "http.request", "body": chunk, "more_body": not ended}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await application(scope, receive, send)
    return Answer(
        status=sent[0]["status"],
        headers={k.decode(): v.decode() for k, v in sent[0]["headers"]},
        body=b"".join(m.get("body", b"") for m in sent[1:]),
        body_read=at,
    )
