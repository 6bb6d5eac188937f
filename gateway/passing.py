"""Reads a request of which only the route is needed, and no more of its body than that takes.

Which route: ``x-switchgear-route``, else a form's ``model``, else the only one that there is. A
request without a model of its own (a file, a stored answer, a batch) goes to that route's first
target alone: what it names is known to one provider.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import NamedTuple

from aiohttp import web
from multidict import istr

from gateway.attempt import ClientGone
from gateway.callers import Refused, label
from gateway.config import Config, Route
from gateway.live import Live
from gateway.opaque import HEAD_BYTES, Opaque, Unread, form_model
from gateway.operations import Operation

ROUTE = istr("x-switchgear-route")
METHODS = ("GET", "POST", "DELETE")
_CONTENT_TYPE, _LENGTH = istr("content-type"), istr("content-length")
_PATH = re.compile(r"/v1/((?:[A-Za-z0-9_:~.-]{1,200}/){0,5}[A-Za-z0-9_:~.-]{1,200})")
_PIECE = 64 * 1024


class Passed(NamedTuple):
    """A request to pass on."""

    operation: Operation
    asked: Opaque
    route: Route


def passes(request: web.BaseRequest) -> bool:
    """True when this is to be passed on unread: its path may be sent on, and its body is no JSON
    (or its route is named, so that nothing has to be read)."""
    if request.method not in METHODS or _path(request.path) is None:
        return False
    if request.method != "POST" or ROUTE in request.headers:
        return True
    content_type = request.headers.get(_CONTENT_TYPE, "").lower()
    return content_type.startswith("multipart/")


async def read(request: web.BaseRequest, config: Config, live: Live) -> Passed:
    """Read it as far as needed. Raises ``Refused``."""
    path = _path(request.path)
    assert path is not None
    content_type = request.headers.get(_CONTENT_TYPE, "")
    if not content_type.isascii() or not content_type.isprintable():
        raise Refused(400, "content-type", "content-type: printable ASCII only")
    head, whole = await _head(request, config.limits.body_seconds)
    form = form_model(content_type, head)
    route = _route(request, form[0] if form else None, live)
    rest_length = _rest_length(request, len(head))
    if form is not None and form[0] != route.name:
        form = None  # the route is named beside it: what the form says is the caller's own
    unread = Unread(
        method=request.method,
        query=request.rel_url.raw_query_string,
        content_type=content_type,
        rest=None if whole else _once(request),
        rest_length=0 if whole else rest_length,
    )
    asked = Opaque(
        method=request.method,
        head=head,
        size=len(head) if whole else config.limits.repeatable_bytes + 1,
        field=None if form is None else form[1],
    )
    if form is None:
        route = replace(route, targets=route.targets[:1])
    repeatable = request.method == "GET"
    return Passed(Operation(path, lambda _: repeatable, unread=unread), asked, route)


def _path(path: str) -> str | None:
    found = _PATH.fullmatch(path)
    if found is None or not {".", ".."}.isdisjoint(found[1].split("/")):
        return None
    return found[1]


def _route(request: web.BaseRequest, model: str | None, live: Live) -> Route:
    named = request.headers.get(ROUTE) or model
    if named is None:
        names = live.routes()
        if len(names) != 1:
            text = "name a route of this gateway in the header x-switchgear-route"
            raise Refused(400, ROUTE, text)
        named = names[0]
    route = live.route(named)
    if route is None:
        shown = named[:200] if label(named[:200]) else "(unprintable)"
        raise Refused(404, ROUTE, f"this gateway has no route named {shown!r}")
    return route


async def _head(request: web.BaseRequest, seconds: float) -> tuple[bytes, bool]:
    """The body's begin, and whether that is all of it."""
    content = request.content
    if request.headers.get("expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
    parts, size = [], 0
    try:
        async with asyncio.timeout(seconds):
            while size < HEAD_BYTES and not content.at_eof():
                part = await content.read(min(_PIECE, HEAD_BYTES - size))
                parts.append(part)
                size += len(part)
    except TimeoutError:
        raise Refused(408, "body", f"the body took more than {seconds:g} s to come") from None
    return b"".join(parts), content.at_eof()


def _rest_length(request: web.BaseRequest, read: int) -> int | None:
    length = request.headers.get(_LENGTH, "")
    # What aiohttp unpacks on the way has another length than its header says.
    if not length.isdigit() or "content-encoding" in request.headers:
        return None
    return max(0, int(length) - read)


def _once(request: web.BaseRequest) -> Callable[[], AsyncGenerator[bytes, None]]:
    begun = False

    async def pieces() -> AsyncGenerator[bytes, None]:
        nonlocal begun
        if begun:
            raise RuntimeError("the rest of this body has been sent already")
        begun = True
        try:
            async for piece in request.content.iter_chunked(_PIECE):
                yield piece
        except (ConnectionError, web.RequestPayloadError) as error:
            raise ClientGone from error

    return pieces
