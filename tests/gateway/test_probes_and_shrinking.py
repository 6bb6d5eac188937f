"""A probe is obeyed once; a snapshot that would wipe what runs is held back and said."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from controlplane.domain.gate import Refusal
from gateway import snapshot
from gateway.checkpoint import Checkpoint
from gateway.clock import ClockOffset
from gateway.config import ControlPlane as Settings
from gateway.contact import Contact
from gateway.live import Live
from gateway.watch import Watcher
from tests.gateway import build
from tests.gateway.build import DOWN, EAST, SOUTH
from tests.gateway.control_plane import ControlPlane, serving
from tests.gateway.fake_clock import FakeClock, until


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def apply(live: Live, clock: FakeClock, **spec: Any) -> dict[str, Any]:
    got = build.received(**spec)
    return {i.uid: i for i in live.apply(got, "Stream", clock.monotonic(), clock.wall())}


def fail(live: Live, clock: FakeClock, circuit: Any) -> None:
    while not isinstance(permit := live.admit(circuit, clock.monotonic()), Refusal):
        live.record(circuit, permit, DOWN, clock.monotonic())


def state_of(live: Live, clock: FakeClock, circuit: Any) -> str:
    found = {(c.provider, c.model, c.region): c for c in live.circuit_statuses(clock.monotonic())}
    return str(found[tuple(circuit)].state)


def test_an_open_breaker_tries_again_at_once_and_only_once(clock: FakeClock) -> None:
    live = build.live(clock)
    fail(live, clock, EAST)
    items = apply(live, clock, generation=2, probes=[build.probe("q1", "north/")])
    assert (items["q1"].kind, items["q1"].verdict) == ("Probe", "Applied")
    assert items["q1"].message == "1 open breakers went to HalfOpen"
    assert state_of(live, clock, EAST) == "HalfOpen"
    fail(live, clock, EAST)
    assert state_of(live, clock, EAST) == "Open"
    again = apply(live, clock, generation=3, probes=[build.probe("q1", "north/")])
    assert again["q1"] == items["q1"]
    assert state_of(live, clock, EAST) == "Open"


def test_what_an_override_holds_open_stays_so(clock: FakeClock) -> None:
    live = build.live(clock)
    fail(live, clock, EAST)
    forced = build.override("o1", "ForceOpen", "north/large@east")
    items = apply(live, clock, overrides=[forced], probes=[build.probe("q1")])
    assert items["q1"].message == "no breaker here was open"
    assert state_of(live, clock, EAST) == "Open"


def test_a_probe_that_comes_too_late_is_refused(clock: FakeClock) -> None:
    live = build.live(clock)
    fail(live, clock, EAST)
    items = apply(live, clock, probes=[build.probe("q1", "north/", seconds=-1)])
    assert (items["q1"].verdict, items["q1"].reason) == ("Rejected", "ExpiredOnArrival")
    assert state_of(live, clock, EAST) == "Open"


def many(count: int) -> list[Any]:
    return [build.policy(f"p{n}", f"north/m{n}") for n in range(count)]


@pytest.mark.parametrize(
    ("before", "after", "epoch", "may_shrink", "refused"),
    [
        (10, 4, "e2", False, True),
        (10, 4, "e2", True, False),
        (10, 4, "e1", False, False),
        (10, 5, "e2", False, False),
        (6, 2, "e2", False, False),
        (0, 0, "e2", False, False),
    ],
)
def test_another_epoch_may_not_wipe_what_runs_without_a_word(
    clock: FakeClock, before: int, after: int, epoch: str, may_shrink: bool, refused: bool
) -> None:
    live = build.live(clock)
    apply(live, clock, policies=many(before))
    got = build.received(1, epoch, may_shrink=may_shrink, policies=many(after))
    if not refused:
        snapshot.check_shrink(got, live.in_force)
        return
    with pytest.raises(snapshot.SnapshotRefused, match="may shrink") as caught:
        snapshot.check_shrink(got, live.in_force)
    assert caught.value.for_good


@asynccontextmanager
async def watching(tmp_path: Path, clock: FakeClock) -> AsyncIterator[tuple[Watcher, Any]]:
    async with serving(ControlPlane()) as double, Contact(Settings(double.url, "t"), "demo") as to:
        live = build.live(clock)
        checkpoint = Checkpoint(tmp_path / "0.json", "demo")
        watcher = Watcher(to, live, checkpoint, clock, ClockOffset(), lambda: 1.0)
        task = asyncio.create_task(watcher.run())
        await until(lambda: double.streams == 1)
        try:
            yield watcher, double
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_refused_snapshot_is_not_asked_for_again(tmp_path: Path, clock: FakeClock) -> None:
    async with watching(tmp_path, clock) as (watcher, double):
        await double.send_snapshot(build.snapshot_bytes(3, policies=many(10)))
        await until(lambda: watcher._live.in_force.generation == 3)
        wiped = build.received(1, "e2", policies=many(1))
        await double.send_snapshot(build.snapshot_bytes(1, "e2", policies=many(1)))
        await until(lambda: watcher.refused is not None)
        assert watcher._live.in_force.generation == 3
        fetched = len(double.etags)
        await double.bookmark(epoch="e2", generation=1, hash=wiped.hash)
        double.end_streams()
        await clock.advance_until(lambda: len(double.queries) == 2)
        assert (double.queries[1]["generation"], double.queries[1]["epoch"]) == ("1", "e2")
        assert double.queries[1]["hash"] == wiped.hash
        # The slow poll goes on, and says that it has this one.
        assert all(wiped.hash in (etag or "") for etag in double.etags[fetched:])
        confirmed = build.snapshot_bytes(2, "e2", may_shrink=True, policies=many(1))
        await until(lambda: double.streams == 1)
        await double.send_snapshot(confirmed)
        await until(lambda: watcher._live.in_force.epoch == "e2")
        assert watcher.refused is None


def test_south_serves_while_north_is_probed(clock: FakeClock) -> None:
    live = build.live(clock)
    fail(live, clock, SOUTH)
    apply(live, clock, probes=[build.probe("q1", "north/")])
    assert state_of(live, clock, SOUTH) == "Open"
