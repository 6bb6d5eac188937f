"""A control plane behind TLS: all that the agent says to it, and what it does without trust."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway import command
from gateway.agent import Agent
from gateway.config import Config
from gateway.config_file import parse
from tests.certificates import Authority
from tests.gateway import build
from tests.gateway.control_plane import ControlPlane, serving
from tests.gateway.fake_clock import until

FILE = """
[gateway]
name = "demo"
data_dir = "{data}"
[control_plane]
url = "{url}"
token = "the-token"
ca_file = "{ca}"
[[providers]]
name = "north"
base_url = "http://north.test"
"""


def config_of(double: ControlPlane, tmp_path: Path, ca: Path) -> Config:
    return parse(FILE.format(data=tmp_path / "data", url=double.url, ca=ca), {})


@asynccontextmanager
async def secure(context: ssl.SSLContext) -> AsyncIterator[ControlPlane]:
    async with serving(ControlPlane(), context) as double:
        yield double


async def test_watch_status_and_events_go_over_tls(tmp_path: Path, authority: Authority) -> None:
    async with (
        secure(authority.context()) as double,
        Agent(config_of(double, tmp_path, authority.file)) as agent,
    ):
        await until(lambda: double.streams == 1 and double.statuses)
        await double.send_snapshot(build.snapshot_bytes(4))
        await until(lambda: agent.live.in_force.generation == 4)
        agent.spool.append(build.refusal(agent._clock.wall()))
        await until(lambda: double.batches)
        assert double.tokens == {"Bearer the-token"}
        assert agent.live.in_force.source == "Stream"


async def test_without_trust_it_says_what_to_do_and_goes_on_with_what_it_has(
    tmp_path: Path,
    authority: Authority,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with secure(authority.context()) as double:
        async with Agent(config_of(double, tmp_path, authority.file)) as agent:
            await until(lambda: double.streams == 1)
            await double.send_snapshot(build.snapshot_bytes(7))
            await until(lambda: agent.live.in_force.generation == 7)
            await until(lambda: agent._checkpoint.load() is not None)
        stranger = Authority.in_folder(tmp_path, "stranger.pem").file
        heard = len(double.statuses), len(double.batches), len(double.queries)
        with caplog.at_level(logging.WARNING):
            async with Agent(config_of(double, tmp_path, stranger)) as agent:
                assert agent.live.in_force.generation == 7
                agent.spool.append(build.refusal(agent._clock.wall()))
                told = ["the watch is down", "the status report waits", "events wait"]
                await until(lambda: all(text in caplog.text for text in told))
                assert agent.live.in_force.source == "DiskCache"
                told_here = await asyncio.to_thread(
                    command.main, ["status", "--data-dir", str(tmp_path / "data")]
                )
                assert told_here == 0
                said_here = capsys.readouterr().out
                assert "generation 7 from DiskCache" in said_here
                assert "no word of the control plane: the certificate of localhost" in said_here
                assert agent.spool.pending or len(agent.spool.outbox)
        assert (len(double.statuses), len(double.batches), len(double.queries)) == heard
    messages = [record.getMessage() for record in caplog.records]
    said = [text for text in messages if "certificate" in text]
    assert said
    for text in said:
        assert "is not trusted here" in text
        assert "control_plane.ca_file" in text
    assert not any(record.exc_info for record in caplog.records)
