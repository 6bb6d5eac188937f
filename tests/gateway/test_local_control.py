"""Break-glass on the gateway's host: real sockets, the real command, and the same rules."""

import asyncio
import json
import os
import stat
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from controlplane.domain.gate import Gate, Refusal
from gateway import command
from gateway.agent import Agent
from gateway.local_overrides import LocalOverrides, Record, Refused, Store
from tests.gateway import build
from tests.gateway.build import EAST, SOUTH
from tests.gateway.control_plane import ControlPlane, serving
from tests.gateway.fake_clock import START, FakeClock, until


@pytest_asyncio.fixture
async def agent(tmp_path: Path) -> AsyncIterator[Agent]:
    async with Agent(build.config(tmp_path), host="h") as running:
        yield running


async def run(tmp_path: Path, capsys: Any, *arguments: str) -> tuple[int, str]:
    """The command, in a thread as its process would be beside the gateway's."""
    full = [*arguments, "--data-dir", str(tmp_path)]
    status = await asyncio.to_thread(command.main, full)
    said = capsys.readouterr()
    return status, said.out + said.err


def refused(agent: Agent, circuit: Any) -> bool:
    answer = agent.live.admit(circuit, agent._clock.monotonic())
    return isinstance(answer, Refusal) and answer.gate is Gate.OVERRIDE


async def test_forced_on_the_host_the_next_call_obeys(
    agent: Agent, tmp_path: Path, capsys: Any
) -> None:
    status, said = await run(
        tmp_path, capsys, "force-open", "south/large", "--reason", "it burns", "--for", "10m"
    )
    assert status == 0, said
    assert "ForceOpen" in said
    assert "it burns" in said
    assert "ForceOpen south/large on this host by" in said
    assert "every gateway" not in said
    assert refused(agent, SOUTH)
    assert not refused(agent, EAST)
    status, said = await run(tmp_path, capsys, "status")
    assert status == 0
    assert "south/large" in said
    status, said = await run(tmp_path, capsys, "release", "--all")
    assert (status, "released local-" in said) == (0, True)
    assert not refused(agent, SOUTH)


async def test_the_socket_is_the_users_alone(agent: Agent, tmp_path: Path) -> None:
    folder = tmp_path / "control"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "0.control").stat().st_mode) == 0o600


async def test_the_last_healthy_target_is_kept_unless_said(
    agent: Agent, tmp_path: Path, capsys: Any
) -> None:
    force = ("force-open", "north", "--reason", "x")
    status, said = await run(tmp_path, capsys, *force)
    assert (status, "LocalFloorViolated" in said) == (1, True)
    assert not refused(agent, EAST)
    status, said = await run(tmp_path, capsys, *force, "--take-over", "--allow-last-healthy")
    assert status == 0, said
    assert refused(agent, EAST)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("force-open", "south", "--reason", " "), 2, "--reason"),
        (("force-open", "south", "--reason", "x", "--for", "soon"), 2, "--for"),
        (("force-open", "south", "--reason", "x", "--for", "25h"), 1, "at most 1 d"),
        (("force-closed", "south", "--reason", "x", "--for", "3h"), 1, "at most 2 h"),
        (("force-open", "souht/large", "--reason", "x"), 1, "nearest: south/large"),
        (("release",), 2, "--all"),
    ],
)
async def test_the_rules_are_the_same_as_everywhere(
    agent: Agent, tmp_path: Path, capsys: Any, arguments: tuple[str, ...], status: int, said: str
) -> None:
    got, text = await run(tmp_path, capsys, *arguments)
    assert (got, said in text) == (status, True), text
    assert agent._local.active() == []


async def test_a_second_one_on_the_same_match_names_the_first(
    agent: Agent, tmp_path: Path, capsys: Any
) -> None:
    await run(tmp_path, capsys, "force-open", "south", "--reason", "first")
    status, said = await run(tmp_path, capsys, "force-closed", "south", "--reason", "second")
    assert (status, "first" in said, "--take-over" in said) == (1, True, True)
    force = ("force-closed", "south", "--reason", "second", "--take-over")
    assert (await run(tmp_path, capsys, *force))[0] == 0
    assert [r.mode for r in agent._local.active()] == ["ForceClosed"]


async def test_nobody_answering_is_said(tmp_path: Path, capsys: Any) -> None:
    status, said = await run(tmp_path, capsys, "status")
    assert status == 3
    (tmp_path / "control").mkdir()
    status, said = await run(tmp_path, capsys, "status")
    assert (status, "no worker" in said) == (3, True)


def test_a_gateway_that_is_not_found_says_how_to_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SWITCHGEAR_VAR", raising=False)
    assert command.main(["status"]) == 2
    said = capsys.readouterr().err
    assert ("--config" in said, "--data-dir" in said) == (True, True), said
    (tmp_path / "gateway.toml").write_text('[gateway]\ndata_dir = "${SWITCHGEAR_VAR}/gateway"\n')
    assert command.main(["status"]) == 2
    said = capsys.readouterr().err
    assert "gateway.toml: gateway.data_dir: the environment has no SWITCHGEAR_VAR" in said
    assert "--data-dir" in said


async def test_the_verbs_are_those_of_switchgear(agent: Agent, tmp_path: Path, capsys: Any) -> None:
    why = ("--reason", "529s")
    status, said = await run(tmp_path, capsys, "force-close", "south/large", *why)
    assert (status, "ForceClosed" in said) == (0, True), said


async def test_it_survives_a_restart_and_is_told_until_its_end_is_heard(
    tmp_path: Path, capsys: Any
) -> None:
    async with serving(ControlPlane()) as double:
        settings = build.config(tmp_path, double.url)
        async with Agent(settings, host="h"):
            await run(tmp_path, capsys, "force-open", "south", "--reason", "down")
        async with Agent(settings, host="h") as again:
            assert refused(again, SOUTH)
            await until(lambda: any(s.get("local_overrides") for s in double.statuses))
            told = double.statuses[-1]["local_overrides"][0]
            assert (told["mode"], told["provider"], told["reason"]) == (
                "ForceOpen",
                "south",
                "down",
            )
            assert told["made_by"]
            await run(tmp_path, capsys, "release", "--all")
            await until(
                lambda: any(
                    o.get("end_cause") == "Released"
                    for s in double.statuses
                    for o in s.get("local_overrides", [])
                )
            )
            await until(lambda: again._local.report() == [])


async def test_what_is_made_here_stands_before_what_the_control_plane_says(
    agent: Agent, tmp_path: Path, capsys: Any
) -> None:
    told = build.override("o1", "ForceClosed", "south/large", expires_at=agent._clock.wall())
    got = build.received(overrides=[told], remaining={"o1": 60.0})
    now, wall = agent._clock.monotonic(), agent._clock.wall()
    agent.live.apply(got, "Stream", now, wall)
    await run(tmp_path, capsys, "force-open", "south", "--reason", "x")
    assert refused(agent, SOUTH)
    assert [i.verdict for i in agent.live.items()] == ["Superseded"]


def record(**fields: Any) -> Record:
    values = {
        "uid": "local-1",
        "mode": "ForceOpen",
        "provider": "south",
        "reason": "down",
        "made_by": "root",
        "created_at": START,
        "expires_at": START + timedelta(minutes=10),
    }
    return Record(**(values | fields))


def test_it_ends_on_time_by_itself(tmp_path: Path) -> None:
    clock = FakeClock()
    live = build.live(clock)
    local = LocalOverrides(Store(tmp_path), live.hold_local, clock)
    local.force(record())
    clock.step(599.9)
    live.tick(clock.monotonic())
    assert isinstance(live.admit(SOUTH, clock.monotonic()), Refusal)
    clock.step(0.2)
    assert not isinstance(live.admit(SOUTH, clock.monotonic()), Refusal)
    assert [(o.end_cause, o.ended_at) for o in local.report()] == [
        ("Expired", START + timedelta(minutes=10))
    ]


def test_a_wall_clock_that_jumps_does_not_move_its_end(tmp_path: Path) -> None:
    clock = FakeClock()
    live = build.live(clock)
    local = LocalOverrides(Store(tmp_path), live.hold_local, clock)
    local.force(record())
    clock.step_wall(3600)
    live.tick(clock.monotonic())
    assert isinstance(live.admit(SOUTH, clock.monotonic()), Refusal)


def test_workers_share_one_file_and_an_end_is_never_undone(tmp_path: Path) -> None:
    clock = FakeClock()
    first = LocalOverrides(Store(tmp_path), lambda *_: None, clock)
    second = LocalOverrides(Store(tmp_path), lambda *_: None, clock)
    for worker in (first, second):
        worker.force(record())
        worker.save()
    first.release(["local-1"])
    first.save()
    second.save()
    assert [r.end_cause for r in Store(tmp_path).load()] == ["Released"]
    assert json.loads((tmp_path / "overrides.json").read_bytes())
    with pytest.raises(Refused, match="reason"):
        first.force(record(uid="local-2", reason=" "))


async def test_a_full_disk_does_not_stop_it(agent: Agent, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "local").touch()
    status, said = await run(tmp_path, capsys, "force-open", "south", "--reason", "x")
    assert (status, "not on the disk" in said) == (0, True)
    assert refused(agent, SOUTH)


async def test_a_long_path_is_no_obstacle(tmp_path: Path, capsys: Any) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    os.makedirs(deep)
    async with Agent(build.config(deep), host="h"):
        assert (await run(deep, capsys, "status"))[0] == 0
