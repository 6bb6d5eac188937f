"""What other control planes got wrong, by its number in our list of 25: the gateway's side.

docs/pitfalls.md lists all 25 with every test of each.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from controlplane.domain.gate import Refusal
from gateway.agent import Agent
from gateway.checkpoint import Checkpoint
from gateway.watch import BACKOFF
from tests.gateway import build
from tests.gateway.build import DOWN, SOUTH
from tests.gateway.control_plane import ControlPlane, serving
from tests.gateway.fake_clock import FakeClock, until
from tests.gateway.test_agent import now
from tests.gateway.test_watch import Watching, watching

__all__ = ["watching"]


async def test_pitfall_02_what_was_refused_does_not_come_into_force_at_a_restart(
    watching: Watching,
) -> None:
    async with watching.running() as watcher:
        await watching.streaming()
        runs = [build.policy(f"p{n}", f"north/m{n}") for n in range(10)]
        await watching.double.send_snapshot(build.snapshot_bytes(3, policies=runs))
        await until(lambda: watching.generation == 3 and watcher.settled.is_set())
        await watching.double.send_snapshot(build.snapshot_bytes(1, "e2", policies=runs[:1]))
        await until(lambda: watcher.refused is not None)
    saved = watching.checkpoint.load()
    assert saved is not None
    booted = build.snapshot.read(saved.raw, "demo")
    assert (booted.epoch, booted.generation, len(booted.policies)) == ("e1", 3, 10)


async def test_pitfall_02_a_rejected_item_is_still_called_rejected_after_a_restart(
    tmp_path: Path,
) -> None:
    bad = build.altered(
        build.snapshot_bytes(2, policies=[build.policy("p", "north/"), build.policy("q")]),
        lambda message: message["spec"]["policies"][0]["breaker"].update(open_seconds=-1),
    )
    async with serving(ControlPlane()) as double:
        settings = build.config(tmp_path, double.url)
        async with Agent(settings, host="h"):
            await until(lambda: double.streams)
            await double.send_snapshot(bad)
            await until(lambda: double.statuses[-1].get("applied_generation") == 2)
            told = {i["uid"]: i for i in double.statuses[-1]["items"]}
    assert (told["p"]["verdict"], told["q"]["verdict"]) == ("Rejected", "Applied")
    assert "open_seconds" in told["p"]["field_path"]
    async with Agent(settings, host="h") as agent:
        again = {i.uid: i for i in agent.live.items()}
        assert (again["p"].verdict, again["q"].verdict) == ("Rejected", "Applied")
        assert again["p"].field_path == told["p"]["field_path"]


async def test_pitfall_02_the_last_good_form_of_what_is_rejected_outlives_restarts(
    tmp_path: Path,
) -> None:
    """The newest snapshot holds the rejected forms alone; what runs must come back all the same."""

    def spoil(message: dict[str, Any]) -> None:
        message["spec"]["policies"][0]["breaker"].update(open_seconds=-1)
        message["spec"]["budgets"][0]["bucket"].update(window_seconds="soon")
        message["spec"]["routes"][0]["targets"][0].update(provider="nobody")

    def snapshot(generation: int) -> bytes:
        return build.snapshot_bytes(
            generation,
            policies=[build.policy("p", "south/", generation, consecutive_failures=2)],
            budgets=[build.budget("b", "tenant", generation=generation, max_attempts=2)],
            routes=[build.route("r", "extra", SOUTH)],
        )

    async with serving(ControlPlane()) as double:
        settings = build.config(tmp_path, double.url)
        async with Agent(settings, host="h") as agent:
            await until(lambda: double.streams)
            await double.send_snapshot(snapshot(2))
            for generation in (3, 4):
                await double.send_snapshot(build.altered(snapshot(generation), spoil))
            await until(lambda: double.statuses[-1].get("applied_generation") == 4)
            before = agent.live.max_attempts("anyone"), agent.live.routes()
            assert agent.live.route("extra") is not None
    for _ in range(2):
        async with Agent(settings, host="h") as agent:
            assert {i.uid: i.verdict for i in agent.live.items()} == dict.fromkeys(
                ("p", "b", "r"), "Rejected"
            )
            assert (agent.live.max_attempts("anyone"), agent.live.routes()) == before
            for _ in range(2):
                permit = agent.live.admit(SOUTH, now(agent))
                assert not isinstance(permit, Refusal)
                agent.live.record(SOUTH, permit, DOWN, now(agent))
            states = {c.provider: c.state for c in agent.live.circuit_statuses(now(agent))}
            assert states["south"] == "Open"


async def test_pitfall_02_an_extension_that_cannot_be_read_is_rejected_and_lifts_nothing(
    tmp_path: Path,
) -> None:
    """A newer control plane extends in a form that this gateway does not know."""
    clock = FakeClock()
    forced = build.override("o", "ForceOpen", "south/", 60, allow_last_healthy=True)
    first = build.snapshot_bytes(2, overrides=[forced])

    def newer(message: dict[str, Any]) -> None:
        message["spec"]["overrides"][0].update(
            mode={"shed": 0.5}, generation=2, expires_at="2026-11-30T04:10:00Z"
        )

    second = build.altered(build.snapshot_bytes(3, overrides=[forced]), newer)

    def held(agent: Agent) -> tuple[set[str], set[tuple[int, str, str]]]:
        agent.live.tick(clock.monotonic())
        modes = {c.mode for c in agent.live.circuit_statuses(clock.monotonic())}
        return modes, {(i.generation, i.verdict, i.reason) for i in agent.live.items()}

    still = ({"ForceOpen", "Auto"}, {(1, "Applied", ""), (2, "Rejected", "SchemaInvalid")})
    async with serving(ControlPlane()) as double:
        double.clock = clock.wall
        settings = build.config(tmp_path, double.url)
        async with Agent(settings, host="h", clock=clock) as agent:
            await until(lambda: double.streams)
            await double.send_snapshot(first)
            await until(lambda: agent.live.in_force.generation == 2)
            await double.send_snapshot(second)
            await until(lambda: Checkpoint(_saved(tmp_path), "demo").load() is not None)
            await until(lambda: agent.live.in_force.generation == 3)
            assert held(agent) == still
            await until(lambda: b'"shed"' in _saved(tmp_path).read_bytes())
    clock.step(30)
    async with Agent(settings, host="h", clock=clock) as agent:
        assert held(agent) == still
        clock.step(31)
        assert held(agent)[0] == {"Auto"}


def _saved(folder: Path) -> Path:
    return folder / "checkpoint" / "0.json"


async def test_pitfall_03_killed_and_started_alone_it_holds_and_ends_the_override(
    tmp_path: Path,
) -> None:
    """No goodbye, no control plane: the disk alone says what is forced and until when."""
    clock = FakeClock()
    settings = build.config(tmp_path, "http://127.0.0.1:9")
    forced = build.override("o1", "ForceOpen", "south/", seconds=60, allow_last_healthy=True)
    raw = build.snapshot_bytes(2, overrides=[forced])
    Checkpoint(tmp_path / "checkpoint" / "0.json", "demo").save(raw, clock.wall(), 0.0)
    clock.step(20)
    async with Agent(settings, host="h", clock=clock) as agent:
        assert isinstance(agent.live.admit(SOUTH, clock.monotonic()), Refusal)
        await clock.advance(39.5)
        assert isinstance(agent.live.admit(SOUTH, clock.monotonic()), Refusal)
        await clock.advance(1.0)
        assert {c.mode for c in agent.live.circuit_statuses(clock.monotonic())} == {"Auto"}


async def test_pitfall_12_a_stream_that_speaks_but_never_tells_is_found_out(
    watching: Watching,
) -> None:
    """Connected but deaf: bytes keep coming, the news does not."""
    async with watching.running() as watcher:
        await watching.streaming()
        await watching.double.bookmark(epoch="", generation=0)
        await until(lambda: watcher.streaming)

        async def alive() -> None:
            await watching.double.send(b": alive\n")
            await until(lambda: watcher._reading_since == watching.clock.monotonic())

        # The first poll was set before there was a stream; it is the slow one that has to find it.
        await watching.clock.advance(10)
        await until(lambda: watching.double.etags)
        await alive()
        watching.double.snapshot = build.snapshot_bytes(9)
        for _ in range(5):
            await watching.clock.advance(15)
            await alive()
        await until(lambda: watching.generation == 9)


async def test_pitfall_13_the_poll_only_moves_forward_and_the_stream_comes_back(
    watching: Watching,
) -> None:
    watching.double.watch_script.extend(web.Response(status=503) for _ in range(3))
    watching.double.snapshot = build.snapshot_bytes(4)
    async with watching.running() as watcher:
        await watching.clock.advance_until(lambda: watching.generation == 4)
        assert watching.live.in_force.source == "Poll"
        await watching.clock.advance_until(lambda: watching.double.streams == 1)
        await watching.double.send_snapshot(build.snapshot_bytes(5))
        await until(lambda: watching.generation == 5)
        assert (watcher.streaming, watching.live.in_force.source) == (True, "Stream")
        # The poll goes on beside it; an older answer of some cache changes nothing.
        polls = len(watching.double.etags)
        watching.double.snapshot = build.snapshot_bytes(4)
        # A poll that was under way just now begins its wait late, so not a fixed number of rounds.
        for _ in range(40):
            if len(watching.double.etags) > polls:
                break
            await watching.clock.advance(15)
            await watching.double.send(b": alive\n")
            await asyncio.sleep(0.02)
        await until(lambda: len(watching.double.etags) > polls)
        assert watching.generation == 5
        assert watcher.streaming


@pytest.mark.parametrize("failures", range(1, 9))
def test_pitfall_19_reconnects_are_spread_over_the_whole_wait(failures: int) -> None:
    """Full jitter: from nothing up to a doubling wait of at most eight seconds."""
    longest = min(8.0, 0.5 * 2 ** (failures - 1))
    assert BACKOFF.wait(failures, 0.0, None) == 0
    assert BACKOFF.wait(failures, 0.5, None) == pytest.approx(longest / 2)
    assert BACKOFF.wait(failures, 1.0, None) == pytest.approx(longest)


async def test_pitfall_19_a_watch_that_fails_comes_back_by_its_own_draw(
    watching: Watching,
) -> None:
    watching.draw = 0.25
    watching.double.watch_script.extend(web.Response(status=503) for _ in range(3))
    async with watching.running():
        await watching.clock.advance_until(lambda: watching.double.streams)
    waits = [wait for wait in watching.clock.asked if wait <= 0.5]
    assert waits == pytest.approx([0.125, 0.25, 0.5])
