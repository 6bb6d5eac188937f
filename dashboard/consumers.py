"""The wall's websocket: a snapshot at once, then at most four frames a second.

Invariant: frames go only to somebody who is logged in now: the session and the person are read
anew every few seconds, and the socket is closed within 10 s of a log-out, a lost role or a changed
one. Origin and host are checked before this (``asgi``). Nothing that a client sends is trusted
beyond "send me everything again".
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import UTC, datetime
from importlib import import_module
from time import monotonic
from typing import Any

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.contrib.auth import SESSION_KEY, get_user

from controlplane.api.hot import lifespan
from dashboard import frames
from dashboard.board import Board
from dashboard.feed import APART_SECONDS, Feed, feed

PING_SECONDS = 1.0
CHECK_SECONDS = 4.0
LOGGED_OUT, ROLE_CHANGED, GOING_AWAY = 4401, 4403, 1012
_RESYNC = '{"type":"resync"}'

log = logging.getLogger(__name__)


class _Request:
    """What ``django.contrib.auth.get_user`` reads: a session, opened anew."""

    def __init__(self, session: Any) -> None:
        self.session = session


def _role_now(session_key: str) -> str | None:
    """The role of who is logged in under a session; None when nobody is."""
    store = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    if SESSION_KEY not in store:
        return None
    person = get_user(_Request(store))  # type: ignore[arg-type]
    return str(person.role) if person.is_authenticated and person.is_active else None


role_now = database_sync_to_async(_role_now)


class WallConsumer(AsyncWebsocketConsumer):
    """One viewer's socket."""

    apart_seconds = APART_SECONDS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tasks: list[asyncio.Task[None]] = []
        self._whole = asyncio.Event()
        self._role: str | None = None

    async def connect(self) -> None:
        """Accept who is logged in; the others learn by code 4401 that they are not."""
        key = self.scope["session"].session_key
        self._role = await role_now(key) if key else None
        await self.accept()
        if self._role is None:
            await self.close(LOGGED_OUT)
            return
        self._tasks = [
            asyncio.create_task(self._stream()),
            asyncio.create_task(self._watch_session(key)),
            asyncio.create_task(self._watch_stop()),
        ]

    async def disconnect(self, code: int) -> None:
        """End what this socket waits for."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """``{"type":"resync"}``: the next frame is a snapshot. Anything else is ignored."""
        if text_data is not None and text_data.replace(" ", "") == _RESYNC:
            self._whole.set()

    def _frame(self, source: Feed, sent: Board | None) -> str | None:
        """What this viewer needs of the newest board; None: nothing."""
        return source.frame(sent)

    async def _stream(self) -> None:
        source = feed()
        sent: Board | None = None
        spoke, said_lost = 0.0, False
        try:
            async with source.viewer() as newer:
                while True:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(PING_SECONDS):
                            await newer.wait()
                    newer.clear()
                    board = source.board
                    if board is None:
                        continue
                    if self._whole.is_set():
                        self._whole.clear()
                        sent = None
                    frame = self._frame(source, sent)
                    # A loss is said at once, and its end; what lasts, with every ping.
                    lost = source.lost
                    news = frame is not None or lost != said_lost
                    if not news and monotonic() - spoke < PING_SECONDS:
                        continue
                    now = datetime.now(UTC)
                    ping = frames.encode(frames.ping(board, now, lost=lost))
                    await self.send(frames.aged(frame, board, now) if frame else ping)
                    said_lost = lost and frame is None
                    sent, spoke = board, monotonic()
                    await asyncio.sleep(self.apart_seconds)
        except asyncio.CancelledError:
            raise
        except Exception:
            # A send to a socket that has just gone is no news; anything else must be seen.
            log.exception("the wall's stream ended")
            await self._close_quietly(GOING_AWAY)

    async def _watch_session(self, key: str) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                role = await role_now(key)
            except Exception as error:
                log.warning("a session was not checked (tried again): %s", error)
                continue
            if role != self._role:
                await self._close_quietly(LOGGED_OUT if role is None else ROLE_CHANGED)
                return

    async def _watch_stop(self) -> None:
        await lifespan.stopping.wait()
        await self._close_quietly(GOING_AWAY)

    async def _close_quietly(self, code: int) -> None:
        with contextlib.suppress(Exception):
            await self.close(code)


class NewsConsumer(WallConsumer):
    """The socket of every other live page: told at most once a second that something changed."""

    apart_seconds = 1.0

    def _frame(self, source: Feed, sent: Board | None) -> str | None:
        board = source.board
        if board is None or (sent and (sent.epoch, sent.version) == (board.epoch, board.version)):
            return None
        return frames.encode(frames.news(board))
