"""One viewer's stream against a connection that takes its time: newest only, never too many."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dashboard import consumers
from dashboard.board import Board
from dashboard.consumers import NewsConsumer, WallConsumer
from dashboard.feed import APART_SECONDS, Feed
from tests.dashboard.test_frames import apply

START = datetime(2026, 11, 24, 14, 3, 22, tzinfo=UTC)


def board(version: int) -> Board:
    return Board(
        at=START + timedelta(seconds=version), version=version, epoch="e", density="roomy",
        strip={"open": str(version)}, titles={}, gateways={}, cards={}, attention=(), healthy=(),
    )  # fmt: skip


class Line:
    """A connection whose other end reads only while it is open."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.taken: list[dict[str, Any]] = []
        self.asked = asyncio.Event()
        self.came = asyncio.Event()

    async def send(self, text: str) -> None:
        self.asked.set()
        await self.open.wait()
        self.taken.append(json.loads(text))
        self.came.set()


class Source(Feed):
    """A feed whose boards come from the test."""

    async def _run(self) -> None:
        await asyncio.Event().wait()

    def show(self, shown: Board) -> None:
        self.board = shown
        for event in self._viewers:
            event.set()


async def until(line: Line, count: int) -> None:
    async with asyncio.timeout(20):
        while len(line.taken) < count:
            line.came.clear()
            await line.came.wait()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that the stream makes, which take no time here."""
    made: list[float] = []
    sleep = asyncio.sleep

    async def short(seconds: float) -> None:
        made.append(seconds)
        await sleep(0)

    monkeypatch.setattr(consumers.asyncio, "sleep", short)
    return made


def streaming(
    kind: type[WallConsumer], line: Line, monkeypatch: pytest.MonkeyPatch
) -> tuple[Source, asyncio.Task[None]]:
    source = Source()
    source.board = board(1)
    monkeypatch.setattr(consumers, "feed", lambda: source)
    consumer = kind()
    monkeypatch.setattr(consumer, "send", line.send)
    return source, asyncio.create_task(consumer._stream())


async def test_a_tab_that_does_not_read_gets_the_newest_and_nothing_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = Line()
    source, task = streaming(WallConsumer, line, monkeypatch)
    await line.asked.wait()
    for version in range(2, 400):
        source.show(board(version))
        await asyncio.sleep(0)
    assert line.taken == []
    line.open.set()
    await until(line, 2)
    task.cancel()
    assert [(frame["type"], frame["version"]) for frame in line.taken[:2]] == [
        ("snapshot", 1),
        ("patch", 399),
    ]
    shown: dict[str, Any] = {}
    for frame in line.taken:
        apply(shown, frame)
    assert shown["strip"] == {"open": "399"}


async def test_between_two_frames_there_is_a_quarter_of_a_second(
    monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    line = Line()
    line.open.set()
    source, task = streaming(WallConsumer, line, monkeypatch)
    for version in range(2, 30):
        source.show(board(version))
        await until(line, version)
    task.cancel()
    # One pause after each frame, none shorter than at four frames a second.
    assert min(pauses) >= APART_SECONDS == 0.25
    assert len(pauses) >= len(line.taken) - 1


async def test_news_comes_once_for_a_commit_and_at_most_once_a_second(
    monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    line = Line()
    line.open.set()
    source, task = streaming(NewsConsumer, line, monkeypatch)
    await until(line, 1)
    source.show(board(2))
    source.show(board(3))
    await until(line, 2)
    task.cancel()
    assert [frame["version"] for frame in line.taken if frame["type"] == "news"] == [1, 3]
    assert min(pauses) == 1.0
