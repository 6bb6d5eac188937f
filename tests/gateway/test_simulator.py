"""The simulated providers: the film of a scenario, the API's shapes, faults on demand."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from gateway.simulator.scenario import BROWNOUT, MANUAL, SCENARIOS
from gateway.simulator.service import Simulator
from tests.gateway.waiting import until

AUTH = {"authorization": "Bearer any"}
CHAT = {"model": "gpt-4.1-mini", "messages": [{"role": "user", "content": "oak elm"}]}


@pytest.fixture
async def simulator() -> AsyncIterator[Simulator]:
    simulator = Simulator(MANUAL, 1, time.monotonic)
    yield simulator
    await simulator.close()


@pytest.fixture
async def client(simulator: Simulator) -> AsyncIterator[aiohttp.ClientSession]:
    url = await simulator.start()
    async with aiohttp.ClientSession(base_url=url, headers=AUTH) as session:
        yield session


async def chat(client: aiohttp.ClientSession, **fields: Any) -> aiohttp.ClientResponse:
    return await client.post("/openai/v1/chat/completions", json={**CHAT, **fields})


async def control(client: aiohttp.ClientSession, **fields: Any) -> int:
    async with client.post("/control", json=fields) as answer:
        return answer.status


async def test_plain_answer_has_usage_and_the_served_model(client: aiohttp.ClientSession) -> None:
    answer = await (await chat(client)).json()
    assert answer["model"] == "gpt-4.1-mini-2025-04-14"
    assert answer["usage"]["completion_tokens"] == 40
    assert answer["usage"]["prompt_tokens"] > 0


async def test_stream_ends_with_done_and_usage_only_when_asked(
    client: aiohttp.ClientSession,
) -> None:
    bare = await (await chat(client, stream=True)).text()
    assert bare.endswith("data: [DONE]\n\n")
    assert "usage" not in bare
    asked = await (await chat(client, stream=True, stream_options={"include_usage": True})).text()
    last = json.loads(asked.split("data: ")[-2])
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 40


@pytest.mark.parametrize(
    ("fate", "status"), [("overloaded", 503), ("rate_limited", 429), ("server_error", 500)]
)
async def test_next_fixes_the_fate(client: aiohttp.ClientSession, fate: str, status: int) -> None:
    assert await control(client, provider="openai", next=[fate]) == 200
    failed = await chat(client)
    assert failed.status == status
    assert "error" in await failed.json()
    assert (failed.headers.get("retry-after") == "2") == (status == 429)
    assert (await chat(client)).status == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_cut_breaks_off_in_the_middle(client: aiohttp.ClientSession, stream: bool) -> None:
    await control(client, next=["cut"])
    answer = await chat(client, stream=stream)
    assert answer.status == 200
    with pytest.raises(aiohttp.ClientPayloadError):
        await answer.read()


async def test_hang_is_abandoned_at_once_when_the_client_leaves(
    simulator: Simulator, client: aiohttp.ClientSession
) -> None:
    await control(client, next=["hang"])
    call = asyncio.create_task(chat(client))
    provider = simulator.providers["openai"]
    await until(lambda: provider.in_flight)
    call.cancel()
    await until(lambda: provider.abandoned)
    assert provider.calls[-1]["ended"] == "abandoned"


async def test_unknown_model_and_missing_key_are_refused(client: aiohttp.ClientSession) -> None:
    assert (await chat(client, model="none")).status == 404
    async with client.post(
        "/openai/v1/chat/completions", json=CHAT, headers={"authorization": ""}
    ) as answer:
        assert answer.status == 401


@pytest.mark.parametrize(
    "fields",
    [{"error_rate": 2}, {"nonsense": 1}, {"provider": "none"}, {"faults": {}}, {"next": ["no"]}],
)
async def test_bad_control_is_refused(
    client: aiohttp.ClientSession, fields: dict[str, object]
) -> None:
    assert await control(client, **fields) == 422


async def test_same_seed_draws_the_same_fates() -> None:
    def fates(seed: int) -> list[str]:
        simulator = Simulator(SCENARIOS["chaos"], seed, lambda: 0.0)
        provider = simulator.providers["groq"]
        conditions = SCENARIOS["chaos"].start["groq"]
        return [simulator._draw_fate(provider, conditions)[0] for _ in range(50)]

    assert fates(7) == fates(7)
    assert fates(7) != fates(8)


def test_brownout_is_healthy_then_fails_within_a_minute_and_recovers() -> None:
    assert BROWNOUT.at(5).conditions["openai"].error_rate < 0.01
    assert 0.3 < BROWNOUT.at(28).conditions["openai"].error_rate < 0.6
    assert BROWNOUT.at(60).phase == "brownout"
    assert BROWNOUT.at(60).conditions["openai"].error_rate == pytest.approx(0.85)
    assert BROWNOUT.at(60).conditions["groq"].error_rate < 0.05
    length = sum(phase.seconds for phase in BROWNOUT.phases)
    assert BROWNOUT.at(length - 0.1).conditions["openai"].error_rate < 0.02
    assert BROWNOUT.at(length + 5).phase == "healthy"
    assert BROWNOUT.at(length + 5).loop == 1


async def test_command_serves_until_it_is_told_to_stop() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway.simulator", "--scenario", "calm", "--port", "0"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    url = line.split()[3].removesuffix("/openai/v1,")
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            assert (await answer.json())["scenario"] == "calm"
    finally:
        process.terminate()
    assert await process.wait() == 0
