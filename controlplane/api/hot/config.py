"""``GET /api/v1/gateways/{name}/config``: the snapshot, plain or watched (docs/wire.md 2).

Invariant: a gateway reads its own name only; a stream ends when the process is to stop, when its
reader has gone, within 10 s of its token's end, and after a random 5 to 10 minutes, so that a fleet
does not come back all at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from datetime import UTC, datetime
from urllib.parse import parse_qs

from psycopg import AsyncConnection

from controlplane.api.hot import lifespan
from controlplane.api.hot.auth import Caller, authenticate, is_valid
from controlplane.api.hot.http import Receive, Scope, Send, answer, header
from controlplane.errors import InvalidInput, Problem
from controlplane.models.epochs import EpochRefused, renew
from controlplane.models.pool import pool
from controlplane.watch.heads import heads
from controlplane.watch.snapshot import Head, read_head
from controlplane.watch.stream import admitted, frames, latest
from controlplane.wire.events import MOST_TOLD

ROTATE_SECONDS = (300.0, 600.0)
# A reader that takes nothing for so long has gone, whatever TCP believes.
SEND_SECONDS = 20.0


async def config(scope: Scope, receive: Receive, send: Send) -> None:
    """A snapshot, 304, or a stream."""
    caller = await authenticate(scope)
    caller.must_be(scope["path_params"]["name"])
    watch, epoch, known = _query(scope)
    if watch:
        await _watch(caller, epoch, known, receive, send)
        return
    async with (await pool()).connection() as conn:
        head = await read_head(conn, caller.gateway_id, caller.gateway)
    etag = (b"etag", head.etag.encode())
    if _has(header(scope, b"if-none-match"), head.etag):
        await answer(send, 304, b"", headers=(etag,))
    else:
        await answer(send, 200, head.snapshot, headers=(etag,))


async def _watch(
    caller: Caller, epoch: str, known: tuple[int, str], receive: Receive, send: Send
) -> None:
    """A stream; ``Busy`` before anything is read when all places are taken."""
    with admitted(caller.gateway_id):
        # Shared: a fleet that comes back after a restart is a handful of readings, not a thousand.
        head = await latest(caller.gateway_id, caller.gateway)
        if epoch == head.epoch and known[0] > head.generation:
            # A shared reading may be of a moment ago, and what follows is for the whole fleet.
            async with (await pool()).connection() as conn:
                head = await read_head(conn, caller.gateway_id, caller.gateway)
                if epoch == head.epoch and known[0] > head.generation:
                    await _ahead(conn, caller, head, known[0])
        await _stream(caller, head, known, receive, send)


async def _ahead(conn: AsyncConnection, caller: Caller, head: Head, generation: int) -> None:
    """The gateway was told more than this database remembers: it was restored from a backup.

    A new epoch makes every gateway take what is desired now, and send its events again. Always
    raises: 410, or 429 when its word may not mint another one yet.
    """
    why = f"{caller.gateway} was told generation {generation}; this database has {head.generation}"
    try:
        await renew(conn, caller.gateway_id, head.epoch, why, datetime.now(UTC))
    except EpochRefused as error:
        raise Problem(
            str(error), code="epoch_claimed", status=429, retry_after_s=error.wait_s
        ) from error
    raise Problem(
        "This database is older than what you were told; fetch the plain snapshot and keep"
        " what runs until then.",
        code="ahead",
        status=410,
    )


def _has(if_none_match: str, etag: str) -> bool:
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag in tags or "*" in tags


def _query(scope: Scope) -> tuple[bool, str, tuple[int, str]]:
    """``watch``, and the epoch, generation and hash that the caller has."""
    try:
        query = parse_qs(scope.get("query_string", b"").decode("ascii"), max_num_fields=20)
    except ValueError as error:
        raise InvalidInput(f"The query cannot be read: {error}") from error
    generation = query.get("generation", ["0"])[-1]
    if not (generation.isascii() and generation.isdigit() and len(generation) <= 18):
        raise _wrong_generation("write a whole number")
    if int(generation) > MOST_TOLD:
        raise _wrong_generation(f"expected at most {MOST_TOLD}: nobody was ever told that")
    watch = query.get("watch", ["0"])[-1] in {"1", "true"}
    epoch = query.get("epoch", [""])[-1]
    return watch, epoch, (int(generation), query.get("hash", [""])[-1])


def _wrong_generation(message: str) -> InvalidInput:
    fault = {"field": "generation", "message": message}
    return InvalidInput(f"generation: {message}", errors=[fault])


async def _stream(
    caller: Caller, head: Head, known: tuple[int, str], receive: Receive, send: Send
) -> None:
    ended = asyncio.Event()
    watcher = asyncio.create_task(_end_when_gone(receive, ended))
    stopper = asyncio.create_task(_end_when_stopping(ended))
    try:
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [
                    (b"content-type", b"text/event-stream"),
                    (b"cache-control", b"no-store"),
                    (b"x-accel-buffering", b"no"),
                ],
            }
        )
        lasts_s = random.uniform(*ROTATE_SECONDS)
        sending = frames(
            caller.gateway_id,
            head,
            known=known,
            heads=heads,
            ended=ended,
            lasts_s=lasts_s,
            allowed=lambda: is_valid(caller),
        )
        async with contextlib.aclosing(sending):
            async for frame in sending:
                async with asyncio.timeout(SEND_SECONDS):
                    await send({"type": "http.response.body", "body": frame, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    except TimeoutError:
        # Nothing more can be said to a reader that does not read; the server closes it.
        return
    finally:
        watcher.cancel()
        stopper.cancel()


async def _end_when_gone(receive: Receive, ended: asyncio.Event) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        while (await receive())["type"] != "http.disconnect":
            pass
        ended.set()


async def _end_when_stopping(ended: asyncio.Event) -> None:
    await lifespan.stopping.wait()
    ended.set()
