"""The shared reader: it reads for viewers only, survives a failed read, and wakes everybody."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from controlplane.notify import hub
from controlplane.reports.wall_rows import Now, Trail, Wall
from dashboard import feed as feed_module
from dashboard.feed import Feed

AT = datetime(2026, 11, 24, 14, 3, 22, tzinfo=UTC)


def empty(version: int) -> Wall:
    now = Now(
        at=AT, version=version, epoch="e", revision=0, gateways=[], instances=[], circuits=[],
        states=[], overrides=[], deliveries=[], budgets=[], balances=[],
    )  # fmt: skip
    return Wall(now, Trail(at=AT, since=AT, minutes=[], transitions=[], reasons=[], peak=None))


class Database:
    """Counts reads; fails while told to."""

    def __init__(self) -> None:
        self.reads = 0
        self.broken = False
        self.asked, self.failed = asyncio.Event(), asyncio.Event()
        self.answers = asyncio.Event()
        self.answers.set()

    async def read(self) -> Wall:
        self.reads += 1
        self.asked.set()
        if self.broken:
            self.failed.set()
            raise ConnectionError("gone")
        await self.answers.wait()
        return empty(self.reads)


async def woken(event: asyncio.Event) -> None:
    async with asyncio.timeout(10):
        await event.wait()
    event.clear()


async def test_nobody_looking_is_no_reading() -> None:
    database = Database()
    feed = Feed(database.read)
    async with feed.viewer() as event:
        await woken(event)
    seen = database.reads
    for _ in range(20):
        await asyncio.sleep(0)
    assert database.reads == seen
    assert feed.board is not None


async def test_two_viewers_share_each_read() -> None:
    database = Database()
    feed = Feed(database.read)
    async with feed.viewer() as first, feed.viewer() as second:
        await woken(first)
        await woken(second)
        assert database.reads == 1


async def test_a_failed_read_keeps_the_last_board_and_is_tried_again() -> None:
    database = Database()
    feed = Feed(database.read)
    async with feed.viewer() as event:
        await woken(event)
        board = feed.board
        database.broken = True
        await woken(database.failed)
        await woken(event)
        assert feed.board is board
        assert feed.lost
        database.broken = False
        while feed.lost:
            await woken(event)
        assert feed.board is not None
        assert feed.board.version == database.reads > 2


async def test_a_later_viewer_starts_the_reading_again() -> None:
    database = Database()
    feed = Feed(database.read)
    for _ in range(2):
        async with feed.viewer() as event:
            await woken(event)
    assert database.reads == 2


async def test_a_read_that_hangs_is_told_soon_once_listen_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(feed_module, "monotonic", lambda: now)
    database = Database()
    database.answers.clear()
    feed = Feed(database.read)
    async with feed.viewer() as event:
        await woken(database.asked)
        monkeypatch.setattr(hub, "listening", True)
        now += 1.0
        assert not feed.lost, "a slow read is not yet a loss"
        now += 3.1
        assert feed.lost
        now -= 3.5
        assert not feed.lost
        monkeypatch.setattr(hub, "listening", False)
        assert feed.lost
        database.answers.set()
        await woken(event)
        assert not feed.lost


async def test_a_slow_trail_does_not_hold_the_present_back(monkeypatch: pytest.MonkeyPatch) -> None:
    quick, now = asyncio.Event(), 100.0
    quick.set()
    trails = presents = 0

    async def read_now() -> Now:
        nonlocal presents
        presents += 1
        return empty(presents).now

    async def read_trail() -> Trail:
        nonlocal trails
        trails += 1
        await quick.wait()
        return empty(0).trail

    monkeypatch.setattr(feed_module.wall, "read_now", read_now)
    monkeypatch.setattr(feed_module.wall, "read_trail", read_trail)
    monkeypatch.setattr(feed_module, "monotonic", lambda: now)
    feed = Feed()
    async with feed.viewer() as event:
        await woken(event)
        quick.clear()
        now += 60
        for _ in range(3):
            await woken(event)
        assert not feed.lost
        assert presents >= 4
        assert trails == 2, "no second reading is begun while one runs"


async def test_a_trail_that_fails_is_a_loss_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken, now = False, 100.0

    async def read_now() -> Now:
        return empty(1).now

    async def read_trail() -> Trail:
        if broken:
            raise ConnectionError("gone")
        return empty(0).trail

    monkeypatch.setattr(feed_module.wall, "read_now", read_now)
    monkeypatch.setattr(feed_module.wall, "read_trail", read_trail)
    monkeypatch.setattr(feed_module, "monotonic", lambda: now)
    feed = Feed()
    async with feed.viewer() as event:
        await woken(event)
        broken = True
        now += 60
        while not feed.lost:
            await woken(event)
        broken = False
        while feed.lost:
            await woken(event)
