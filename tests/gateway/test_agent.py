"""A whole agent against a small control plane: boot, enforce, report, die, come back."""

from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio
from aiohttp import web

from controlplane.domain.gate import Refusal
from gateway.agent import Agent
from gateway.outbox import Identity
from gateway.spool import Bounds, Spool
from tests.gateway import build
from tests.gateway.build import SOUTH, attempt
from tests.gateway.control_plane import ControlPlane, serving
from tests.gateway.fake_clock import FakeClock, until


@pytest_asyncio.fixture
async def double() -> AsyncIterator[ControlPlane]:
    async with serving(ControlPlane()) as running:
        yield running


def forced(**more: object) -> object:
    return build.override("o1", "ForceOpen", "south/", **more)


def told(agent: Agent) -> bytes:
    """A snapshot of this moment: forced for a minute."""
    wall = agent._clock.wall()
    item = forced(expires_at=wall + build.timedelta(seconds=60))
    return build.snapshot_bytes(2, server_time=wall, overrides=[item])


def now(agent: Agent) -> float:
    return agent._clock.monotonic()


def waiting(spool: Path) -> list[Path]:
    """The files of a slot's spools that the control plane does not have."""
    return [path for path in spool.glob("*/*") if path.suffix in (".open", ".batch")]


async def test_it_registers_reports_its_boot_and_says_goodbye(
    double: ControlPlane, tmp_path: Path
) -> None:
    async with Agent(build.config(tmp_path, double.url), 2, host="h") as agent:
        await until(lambda: double.statuses and double.batches and double.streams)
        first = double.statuses[0]
        assert (first["boot"], first["slot"], first["seq"]) == (str(agent.live.boot_id), "h/2", 1)
        assert {c["state"] for c in first["circuits"]} == {"Closed"}
        assert {e["cause"] for e in double.batches[0]["events"]} == {"Boot"}
        agent.spool.append(attempt())
    assert double.statuses[-1]["goodbye"] is True
    assert [s["seq"] for s in double.statuses] == list(range(1, len(double.statuses) + 1))
    assert double.batches[-1]["events"][-1]["kind"] == "attempt"
    assert not waiting(tmp_path / "spool" / "2")


async def test_an_override_is_enforced_and_reported_soon_after_it_arrives(
    double: ControlPlane, tmp_path: Path
) -> None:
    async with Agent(build.config(tmp_path, double.url), host="h") as agent:
        await until(lambda: double.streams and double.statuses)
        double.generation = 2
        await double.send_snapshot(told(agent))
        await until(lambda: double.statuses[-1].get("applied_generation") == 2)
        report = double.statuses[-1]
        assert (tmp_path / "checkpoint" / "0.json").exists()
        assert [(i["uid"], i["verdict"]) for i in report["items"]] == [("o1", "Applied")]
        assert report["config_source"] == "Stream"
        assert {c["mode"] for c in report["circuits"] if c["provider"] == "south"} == {"ForceOpen"}
        assert report["clock"]["rtt_s"] is not None
        assert isinstance(agent.live.admit(SOUTH, now(agent)), Refusal)
        await until(lambda: "first_effect_at" in double.statuses[-1]["items"][0])


async def test_a_restart_serves_from_the_disk_before_anybody_answers(tmp_path: Path) -> None:
    async with serving(ControlPlane()) as double:
        settings = build.config(tmp_path, double.url)
        async with Agent(settings, host="h") as agent:
            await until(lambda: double.streams)
            await double.send_snapshot(told(agent))
            await until(lambda: double.statuses[-1].get("applied_generation") == 2)
    # Nobody listens there any more.
    async with Agent(settings, host="h") as agent:
        assert agent.live.in_force.source == "DiskCache"
        assert agent.live.in_force.generation == 2
        assert isinstance(agent.live.admit(SOUTH, now(agent)), Refusal)


async def test_with_the_control_plane_dead_an_override_ends_on_time(tmp_path: Path) -> None:
    clock = FakeClock()
    settings = build.config(tmp_path, "http://127.0.0.1:9")
    async with Agent(settings, host="h", clock=clock) as agent:
        got = build.received(2, overrides=[forced(seconds=30)])
        agent.live.apply(got, "Stream", clock.monotonic(), clock.wall())
        await clock.advance(29.5)
        assert isinstance(agent.live.admit(SOUTH, clock.monotonic()), Refusal)
        await clock.advance(1.0)
        assert {c.mode for c in agent.live.circuit_statuses(clock.monotonic())} == {"Auto"}


async def test_a_dead_workers_spool_is_sent_under_its_own_boot(
    double: ControlPlane, tmp_path: Path
) -> None:
    dead = Identity(uuid4(), "h/7", "demo")
    left = Spool(tmp_path / "spool", 7, dead, FakeClock())
    left.append(attempt())
    left.begin(attempt())
    left.close()
    async with Agent(build.config(tmp_path, double.url), host="h"):
        spooled = tmp_path / "spool" / "7"
        await until(lambda: not waiting(spooled))
        await until(lambda: len([b for b in double.batches if b["slot"] == "h/7"]) == 2)
    old = [batch for batch in double.batches if batch["slot"] == "h/7"]
    assert [(b["instance"], b["seq"]) for b in old] == [(str(dead.instance), n) for n in (1, 2)]
    assert [e["reason"] for b in old for e in b["events"]] == ["ok", "gateway_died"]


async def test_a_spool_that_is_too_small_reports_what_it_dropped_by_kind(
    double: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.agent.Bounds", partial(Bounds, events=10, disk=20_000))
    double.script.extend(web.Response(status=503) for _ in range(1000))
    async with Agent(build.config(tmp_path, double.url), host="h") as agent:
        await until(lambda: double.statuses and double.raw)
        for number in range(100):
            agent.spool.append(attempt())
            agent.spool.append(build.refusal()) if number % 4 == 0 else None
        lost = dict(agent.spool.dropped)
        assert set(lost) >= {"attempt", "refusal"}
        assert agent._status is not None
        agent._status.changed()
        await until(lambda: double.statuses[-1].get("spool", {}).get("dropped"))
        told = double.statuses[-1]["spool"]
        assert told["dropped_by_kind"] == lost
        assert told["dropped"] == sum(lost.values())
        double.script.clear()
        # What is left comes, and the numbers show the hole. All of it is accounted for.
        await until(lambda: not len(agent.spool.outbox) and not agent.spool.pending)
    kinds = Counter(e["kind"] for b in double.batches for e in b["events"])
    assert kinds["attempt"] + lost["attempt"] == 100
    assert kinds["refusal"] + lost["refusal"] == 25
    seqs = sorted({batch["seq"] for batch in double.batches})
    assert len(seqs) < seqs[-1]


async def test_what_was_lost_of_a_dead_workers_spool_is_told_after_it_is_gone(
    double: ControlPlane, tmp_path: Path
) -> None:
    left = Spool(tmp_path / "spool", 7, Identity(uuid4(), "h/7", "demo"), FakeClock())
    left.append(attempt())
    left.close()
    double.script.extend(web.Response(status=422) for _ in range(2))
    async with Agent(build.config(tmp_path, double.url), host="h") as agent:
        await until(lambda: list((tmp_path / "spool" / "7").glob("*/*.aside")))
        await until(lambda: not agent._adopted and not double.script)
        assert agent._status is not None
        agent._status.changed()
        reports = len(double.statuses)
        await until(lambda: len(double.statuses) > reports)
        assert double.statuses[-1]["spool"]["dropped_by_kind"]["attempt"] == 1


async def test_a_generation_heard_of_in_a_receipt_is_fetched(
    double: ControlPlane, tmp_path: Path
) -> None:
    async with Agent(build.config(tmp_path, double.url), host="h") as agent:
        await until(lambda: double.streams and double.statuses and double.batches)
        double.snapshot = build.snapshot_bytes(5)
        double.generation = 5
        agent.spool.append(attempt())
        await until(lambda: agent.live.in_force.generation == 5)


async def test_a_part_that_fails_is_started_again(
    double: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gateway.live import Live

    ticks: list[float] = []

    def breaks(self: Live, at: float) -> None:
        ticks.append(at)
        raise ZeroDivisionError

    monkeypatch.setattr(Live, "tick", breaks)
    clock = FakeClock()
    async with Agent(build.config(tmp_path), host="h", clock=clock):
        await clock.advance(10)
    assert len(ticks) == 5


async def test_without_a_control_plane_it_works_and_its_spool_is_bounded(tmp_path: Path) -> None:
    settings = build.config(tmp_path)
    async with Agent(settings, host="h") as agent:
        assert agent.live.in_force.source == "Bootstrap"
        assert not isinstance(agent.live.admit(SOUTH, now(agent)), Refusal)
        for _ in range(100):
            agent.spool.append(attempt())
        assert agent.spool.status().events == 103
    # What was not sent stays for a later control plane.
    assert list((tmp_path / "spool" / "0").glob("*/*.batch"))
