"""A report says what is so, when it is so, in order."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from aiohttp import web

from controlplane.wire.status import ConfigSource, InstanceStatus, SpoolStatus
from gateway import status
from gateway.checkpoint import Checkpoint
from gateway.clock import ClockOffset
from gateway.config import ControlPlane as Settings
from gateway.contact import Contact
from gateway.live import Live
from gateway.local_overrides import LocalOverrides, Store
from gateway.status import StatusSender
from gateway.watch import Watcher
from tests.gateway import build
from tests.gateway.control_plane import ControlPlane, serving
from tests.gateway.fake_clock import START, FakeClock, until


class Reporting:
    """A status sender at work on a fake clock, and its watcher, which nobody runs."""

    def __init__(self, double: ControlPlane, clock: FakeClock, directory: Path) -> None:
        self.double, self.clock, self.directory = double, clock, directory
        self.live: Live = build.live(clock)
        self.offset = ClockOffset()
        self.watcher: Watcher | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[StatusSender]:
        async with Contact(Settings(self.double.url, "t"), "demo") as contact:
            checkpoint = Checkpoint(self.directory / "0.json", "demo")
            self.watcher = Watcher(contact, self.live, checkpoint, self.clock, self.offset)
            store = Store(self.directory / "local")
            self.local = LocalOverrides(store, self.live.hold_local, self.clock)
            sender = StatusSender(
                contact,
                self.live,
                SpoolStatus,
                self.watcher,
                self.clock,
                self.offset,
                self.local,
                lambda: 1.0,
            )
            self.live.on_change = sender.changed
            task = asyncio.create_task(sender.run())
            try:
                yield sender
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def reports(self, count: int) -> None:
        await until(lambda: len(self.double.statuses) == count)


@pytest_asyncio.fixture
async def reporting(tmp_path: Path) -> AsyncIterator[Reporting]:
    async with serving(ControlPlane()) as double:
        yield Reporting(double, FakeClock(), tmp_path)


async def test_the_first_report_goes_at_once_and_then_one_every_ten_seconds(
    reporting: Reporting,
) -> None:
    async with reporting.running():
        await reporting.reports(1)
        await until(lambda: reporting.clock.next_wake == pytest.approx(10.0))
        await reporting.clock.advance(9.9)
        assert len(reporting.double.statuses) == 1
        await reporting.clock.advance(0.1)
        await reporting.reports(2)
        assert [report["seq"] for report in reporting.double.statuses] == [1, 2]


async def test_a_change_goes_at_once_and_many_together(reporting: Reporting) -> None:
    async with reporting.running():
        await reporting.reports(1)
        await until(lambda: reporting.clock.next_wake == pytest.approx(10.0))
        await reporting.clock.advance(1.0)
        reporting.live.on_change()
        await reporting.reports(2)
        for _ in range(20):
            reporting.live.on_change()
        await until(lambda: reporting.clock.next_wake == pytest.approx(0.05))
        await reporting.clock.advance(0.05)
        await reporting.reports(3)


async def test_a_report_reads_as_the_contract_says(reporting: Reporting) -> None:
    now = reporting.clock.monotonic()
    forced = build.override("o1", "ForceOpen", "north/large@east")
    got = build.received(3, overrides=[forced], policies=[build.policy("p1")])
    reporting.live.apply(got, "Stream", now, START)
    reporting.live.budgets("acme").earn(build.SOUTH, now)
    async with reporting.running():
        await reporting.reports(1)
    raw = {k: v for k, v in reporting.double.statuses[0].items() if k != "boot"}
    report = msgspec.json.decode(json.dumps(raw), type=InstanceStatus)
    assert (report.applied_generation, report.applied_hash) == (3, got.hash)
    assert (report.epoch, report.config_source, report.applied_at) == ("e1", "Stream", START)
    assert {i.kind for i in report.items} == {"Override", "Policy"}
    assert {c.provider for c in report.circuits} == {"north", "south"}
    assert {b.scope for b in report.budgets} == {"system/", "tenant/acme", "circuit/south/large"}


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set: the disk writes."""
    gate = threading.Event()
    real = Checkpoint.save

    def slow(self: Checkpoint, *args: object) -> None:
        assert gate.wait(10)
        real(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Checkpoint, "save", slow)
    return gate


async def test_what_is_reported_is_on_the_disk_before(
    reporting: Reporting, disk: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "SETTLE_S", 3600.0)
    async with reporting.running():
        await reporting.reports(1)
        assert reporting.watcher is not None
        reporting.watcher._offer(build.snapshot_bytes(2), "Stream")
        assert reporting.live.in_force.generation == 2
        await reporting.clock.advance(60)
        await asyncio.sleep(0.05)
        assert len(reporting.double.statuses) == 1
        disk.set()
        await reporting.reports(2)
        told = reporting.double.statuses[1]
        assert (told["applied_generation"], told["checkpointed_generation"]) == (2, 2)
        assert (reporting.directory / "0.json").exists()


async def test_while_the_disk_stalls_it_says_what_is_enforced_and_what_is_not_saved(
    reporting: Reporting, disk: threading.Event
) -> None:
    async with reporting.running():
        await reporting.reports(1)
        assert reporting.double.statuses[0]["checkpointed_generation"] == 0
        assert reporting.watcher is not None
        reporting.watcher._offer(build.snapshot_bytes(2), "Stream")
        await reporting.clock.advance_until(lambda: len(reporting.double.statuses) == 2)
        # What comes next is enforced too, without waiting for what came before it.
        reporting.watcher._offer(build.snapshot_bytes(3), "Stream")
        await reporting.clock.advance_until(lambda: len(reporting.double.statuses) == 3)
        told = [(s["applied_generation"], s["checkpointed_generation"]) for s in _last(reporting)]
        assert told == [(2, 0), (3, 0)]
        disk.set()
        await until(reporting.watcher.settled.is_set)
        await reporting.clock.advance_until(lambda: len(reporting.double.statuses) == 4)
        assert reporting.double.statuses[3]["checkpointed_generation"] == 3


def _last(reporting: Reporting) -> list[dict[str, Any]]:
    return reporting.double.statuses[1:]


async def test_a_failed_report_goes_again_with_the_first_word_on_the_stream(
    reporting: Reporting,
) -> None:
    reporting.double.status_script.extend(web.Response(status=500) for _ in range(5))
    async with reporting.running():
        for wait in (0.5, 1.0, 2.0, 4.0):
            await until(lambda wait=wait: reporting.clock.next_wake == pytest.approx(wait))
            await reporting.clock.advance(wait)
        await until(lambda: reporting.clock.next_wake == pytest.approx(8.0))
        # What is true now has to be told; a change alone is no sign that anybody listens again.
        reporting.live.on_change()
        await reporting.clock.advance(1.0)
        await asyncio.sleep(0.02)
        assert reporting.double.statuses == []
        assert reporting.watcher is not None
        reporting.watcher.alive.set()
        await reporting.reports(1)


async def test_a_wait_that_was_asked_for_is_kept_whatever_is_heard(reporting: Reporting) -> None:
    busy = web.Response(status=503, headers={"Retry-After": "12"})
    reporting.double.status_script.append(busy)
    async with reporting.running():
        await until(lambda: reporting.clock.next_wake == pytest.approx(12.0))
        assert reporting.watcher is not None
        reporting.watcher.alive.set()
        reporting.live.on_change()
        await asyncio.sleep(0.02)
        await reporting.clock.advance(11.9)
        assert reporting.double.statuses == []
        await reporting.clock.advance(0.1)
        await reporting.reports(1)


@pytest.mark.parametrize("source", ["Stream", "DiskCache"])
async def test_a_deadline_that_was_armed_wrongly_is_put_right_by_the_next_answer(
    reporting: Reporting, source: ConfigSource
) -> None:
    """A snapshot that came late before any answer did, and one off the disk of a host whose clock
    is slow: both would hold on for 20 s too long."""
    clock, live, forced = (
        reporting.clock,
        reporting.live,
        build.override("o", "ForceOpen", "south/"),
    )
    clock.step(20 if source == "Stream" else 0)
    now = clock.monotonic()
    live.apply(build.received(2, overrides=[forced]), source, now, clock.wall())
    assert forced.expires_at == START + timedelta(seconds=300)
    ahead = timedelta(seconds=0 if source == "Stream" else 20)
    reporting.double.clock = lambda: clock.wall() + ahead
    async with reporting.running():
        await until(lambda: reporting.offset.offset_s is not None)
        clock.step(279.5)
        live.tick(clock.monotonic())
        assert [c.mode for c in live.circuit_statuses(now) if c.provider == "south"] == [
            "ForceOpen"
        ]
        clock.step(1.0)
        live.tick(clock.monotonic())
        assert {c.mode for c in live.circuit_statuses(now)} == {"Auto"}
        # What has ended stays so, whatever is said of the time afterwards.
        live.retime(START, clock.monotonic(), 0.0)
        assert {c.mode for c in live.circuit_statuses(now)} == {"Auto"}


@pytest.mark.parametrize("ends", ["while it is down", "before it is heard"])
async def test_what_a_wrong_clock_has_ended_after_a_restart_is_in_force_again(
    reporting: Reporting, ends: str
) -> None:
    """The host's clock is an hour ahead; what is unchanged, nobody sends anew."""
    clock, live = reporting.clock, reporting.live
    forced = build.override("o", "ForceOpen", "south/", seconds=3700)
    now, wrong = clock.monotonic(), timedelta(hours=1, seconds=200 if ends[0] == "w" else 0)
    live.apply(build.received(2, overrides=[forced]), "DiskCache", now, clock.wall() + wrong)
    clock.step(150)
    live.tick(clock.monotonic())
    assert {c.mode for c in live.circuit_statuses(now)} == {"Auto"}
    said = {item.reason for item in live.items()}
    assert said == ({"ExpiredOnArrival"} if ends[0] == "w" else {""})
    reporting.double.clock = clock.wall
    async with reporting.running():
        await until(lambda: reporting.offset.offset_s is not None)
    assert "ForceOpen" in {c.mode for c in live.circuit_statuses(now)}
    assert [(item.verdict, item.reason) for item in live.items()] == [("Applied", "")]
    clock.step(3700 - 150 - 0.5)
    live.tick(clock.monotonic())
    assert "ForceOpen" in {c.mode for c in live.circuit_statuses(now)}
    clock.step(1.0)
    live.tick(clock.monotonic())
    assert {c.mode for c in live.circuit_statuses(now)} == {"Auto"}


async def test_the_clocks_are_compared_with_every_answer(reporting: Reporting) -> None:
    async with reporting.running():
        await reporting.reports(1)
        await until(lambda: reporting.offset.offset_s is not None)


def test_the_shortest_round_trip_is_believed() -> None:
    offset = ClockOffset()
    assert offset.offset_s is None
    offset.measured(START, START + timedelta(seconds=5), 4.0, 1000.0)
    offset.measured(START, START + timedelta(seconds=2.05), 0.1, 1000.0)
    assert offset.offset_s == pytest.approx(2.0)
    assert offset.server_time(1010.0) == START + timedelta(seconds=12)
    assert offset.corrected(START) == START + timedelta(seconds=2)
    for _ in range(8):
        offset.measured(START, START + timedelta(seconds=1.5), 1.0, 1000.0)
    assert offset.offset_s == pytest.approx(1.0)


@pytest.mark.parametrize(("slept_s", "ahead_s"), [(60.0, 0.0), (0.0, 60.0), (0.0, -60.0)])
def test_a_sample_from_before_a_clock_was_set_is_not_believed(
    slept_s: float, ahead_s: float
) -> None:
    """However short its round trip. While the machine slept, its monotonic clock stood still."""
    offset = ClockOffset()
    for n in range(3):
        at = START + timedelta(seconds=n)
        offset.measured(at, at + timedelta(seconds=0.001), 0.002, 1000.0 + n)
    at = START + timedelta(seconds=10 + slept_s)
    server = at + timedelta(seconds=ahead_s)
    offset.measured(at, server + timedelta(seconds=0.2), 0.4, 1010.0)
    assert offset.offset_s == pytest.approx(ahead_s)
    assert offset.server_time(1010.0) == server
