"""A provider that cannot be reached takes a connection's time, not the whole attempt's."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp.connector
import pytest

from controlplane.wire.events import Attempt
from gateway.config_file import parse
from gateway.fallback_tests import Trial
from gateway.upstream import Upstream
from tests.gateway.running import Running, running

FAR = """
[[providers]]
name = "far"
base_url = "{url}"
connect_seconds = {seconds}
keys = [{{ name = "main", secret = "three" }}]
[[routes]]
name = "far"
attempt_seconds = 10
targets = [
    {{ provider = "far", model = "gpt-4.1-mini" }},
    {{ provider = "openai", model = "gpt-4.1-mini" }},
]
"""

ALONE = """
[gateway]
name = "edge"
data_dir = "{data}"
[[providers]]
name = "far"
base_url = "{url}"
connect_seconds = 0.1
[[routes]]
name = "far"
targets = [{{ provider = "far", model = "m" }}]
"""


@pytest.fixture
def black_hole() -> Iterator[str]:
    """An address where nobody answers: the queue of those who want to come in is full."""
    with ExitStack() as held:
        listener = held.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            waiting = held.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"


@contextmanager
def deaf_resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[asyncio.Event]:
    """Names that nobody looks up until the event is set."""
    answers = asyncio.Event()

    async def resolve(*_: Any, **__: Any) -> Any:
        await answers.wait()
        raise OSError("no such name")

    with monkeypatch.context() as patched:
        patched.setattr(aiohttp.connector.DefaultResolver, "resolve", resolve)
        yield answers
        answers.set()


@asynccontextmanager
async def far(tmp_path: Path, url: str, seconds: float = 0.1) -> AsyncIterator[Running]:
    more = FAR.format(url=url, seconds=seconds)
    async with running(tmp_path, more=more) as gateway:
        gateway.conditions()
        yield gateway


def assert_lost(attempts: list[Attempt], reason: str) -> None:
    """Each took its time for a connection and no more, was not billed, and counts."""
    assert attempts
    for attempt in attempts:
        assert (attempt.provider, attempt.verdict, attempt.reason) == ("far", "retryable", reason)
        assert (attempt.counts_against_breaker, attempt.billing) == (True, "not_billed")
        assert attempt.ended_ms is not None
        assert 90 <= attempt.ended_ms < 2000


async def test_nobody_there_is_tried_again_and_a_fallback_serves(
    tmp_path: Path, black_hole: str
) -> None:
    async with far(tmp_path, black_hole) as gateway:
        answer = await gateway.chat("far")
        assert (answer.status, answer.headers["x-switchgear-decision"]) == (200, "fallback")
        *lost, served = gateway.attempts()
        assert served.provider == "openai"
        assert_lost(lost, "connect")


async def test_a_name_that_nobody_looks_up_ends_in_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with far(tmp_path, "http://far.invalid/v1") as gateway:
        with deaf_resolver(monkeypatch):
            assert (await gateway.chat("far")).status == 200
        assert_lost(gateway.attempts()[:-1], "dns")


async def test_a_callers_shorter_time_comes_before_it(tmp_path: Path, black_hole: str) -> None:
    async with far(tmp_path, black_hole, seconds=60) as gateway:
        answer = await gateway.chat("far", headers={"x-switchgear-timeout": "0.1"})
        assert answer.status == 504
        (ended,) = gateway.attempts()
        assert (ended.verdict, ended.counts_against_breaker) == ("client_deadline", False)


async def test_an_answer_may_take_longer_than_its_connection(tmp_path: Path) -> None:
    """On a new connection as on a kept one."""
    async with far(tmp_path, "{url}/openai/v1") as gateway:
        gateway.conditions(latency_ms=300.0)
        for _ in range(2):
            answer = await gateway.chat("far")
            assert answer.headers["x-switchgear-decision"] == "first"


async def test_a_fallback_that_cannot_be_reached_is_told_as_that(
    tmp_path: Path, black_hole: str
) -> None:
    config = parse(ALONE.format(data=tmp_path, url=black_hole), {})
    upstream = Upstream(config)
    await upstream.start()
    try:
        trial = Trial(upstream, config.routes[0].targets[0], config.providers[0], 10)
        (auth,) = await trial.run(100)
    finally:
        await upstream.close()
    assert (auth.passed, auth.detail) == (False, "no connection within 0.1 s (connecting)")
