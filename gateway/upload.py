"""Sends a body that is passed on unread, piece by piece, and hears an answer that comes before its
end.

Invariants: no more of the body is in memory than one piece and what the connection buffers; a
connection whose request is not whole is never used for another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

import aiohttp
from aiohttp.client_proto import ResponseHandler

from gateway.opaque import Unread

T = TypeVar("T")


def head_of(
    unread: Unread, path: str, own: Mapping[str, str], passed_on: Mapping[str, str], begun: int
) -> bytes:
    """The head of a call to ``path``, of whose body ``begun`` bytes are at hand.

    Raises ``ValueError`` for a header that would end its line.
    """
    headers = {"accept": "*/*", "accept-encoding": "identity", **own, **passed_on}
    if unread.content_type:
        headers["content-type"] = unread.content_type
    if unread.rest_length is None:
        headers["transfer-encoding"] = "chunked"
    elif begun + unread.rest_length or unread.method == "POST":
        headers["content-length"] = str(begun + unread.rest_length)
    query = f"?{unread.query}" if unread.query else ""
    lines = [f"{unread.method} {path}{query} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if any("\n" in line or "\r" in line for line in lines):
        raise ValueError("a header with a line break cannot be sent")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "ignore")


async def send(
    protocol: ResponseHandler,
    head: bytes,
    begin: bytes,
    unread: Unread,
    answer: Coroutine[Any, Any, T],
    sent: Callable[[], None],
) -> T:
    """Send head, begin and rest, calling ``sent`` when all is out; returns the answer.

    Raises what ``rest`` or ``answer`` raise. A provider that answers in the middle is not sent what
    is left.
    """
    try:
        async with asyncio.TaskGroup() as both:
            answered = both.create_task(answer)
            sending = both.create_task(_pieces(protocol, head, begin, unread, sent))
            answered.add_done_callback(lambda _: sending.cancel())
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    if sending.cancelled():
        protocol.force_close()
    return answered.result()


async def _pieces(
    protocol: ResponseHandler, head: bytes, begin: bytes, unread: Unread, sent: Callable[[], None]
) -> None:
    """Waits while the provider does not read."""
    transport = protocol.transport
    if transport is None or unread.rest is None:
        raise aiohttp.ClientConnectionResetError("the connection was closed before its use")
    left = unread.rest_length
    transport.write(head + _framed(begin, left))
    async with aclosing(unread.rest()) as pieces:
        async for piece in pieces:
            await protocol._drain_helper()
            transport.write(_framed(piece, left))
            left = None if left is None else left - len(piece)
    if left:
        raise aiohttp.ClientConnectionResetError("the caller sent less than it announced")
    if left is None:
        transport.write(b"0\r\n\r\n")
    await protocol._drain_helper()
    sent()


def _framed(piece: bytes, left: int | None) -> bytes:
    """As it is when the length is known, else as a chunk; an empty chunk would be the last."""
    if left is not None or not piece:
        return piece
    return b"%x\r\n%b\r\n" % (len(piece), piece)
