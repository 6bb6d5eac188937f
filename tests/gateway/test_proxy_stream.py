"""Streams through the gateway: byte for byte, usage asked for and hidden, cuts, disconnects."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import openai
import pytest

from gateway.simulator.scenario import Fate
from tests.gateway.running import Running, running, until_broken
from tests.gateway.waiting import until

SAY = [{"role": "user", "content": "oak elm"}]


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path) as started:
        yield started


async def test_openai_client_streams_without_seeing_usage_it_did_not_ask_for(
    gateway: Running,
) -> None:
    stream = await gateway.client.chat.completions.create(model="alone", messages=SAY, stream=True)
    chunks = [chunk async for chunk in stream]
    assert all(chunk.choices for chunk in chunks)
    assert all(chunk.usage is None for chunk in chunks)
    attempt = gateway.attempts()[0]
    assert (attempt.verdict, attempt.billing, attempt.served) == ("success", "billed", True)
    assert attempt.tokens is not None
    assert (attempt.tokens.output, attempt.tokens.estimated) == (40, False)
    assert attempt.served_model == "gpt-4.1-mini-2025-04-14"


async def test_usage_is_shown_to_a_client_that_asked(gateway: Running) -> None:
    stream = await gateway.client.chat.completions.create(
        model="alone", messages=SAY, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 40


async def test_bytes_are_the_providers_own(gateway: Running) -> None:
    gateway.conditions(chunk_ms=1.0, output_tokens=100)
    through = await (await gateway.chat(stream=True, stream_options={"include_usage": True})).read()
    url = f"{gateway.agent.live.config.providers[0].base_url}/chat/completions"
    body = {
        "model": "gpt-4.1-mini",
        "messages": SAY,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    async with gateway.http.post(url, json=body, headers={"authorization": "Bearer x"}) as direct:
        expected = (await direct.read()).replace(b"chatcmpl-openai-2", b"chatcmpl-openai-1")
    assert through == expected


async def test_hidden_usage_leaves_no_trace(gateway: Running) -> None:
    text = await (await gateway.chat(stream=True)).text()
    assert "usage" not in text
    assert text.endswith("data: [DONE]\n\n")


async def test_events_are_in_the_spool_before_the_last_byte(gateway: Running) -> None:
    async with await gateway.chat(stream=True) as answer:
        async for line in answer.content:
            if line.startswith(b"data: [DONE]"):
                break
    assert [type(event).__name__ for event in gateway.events] == ["Attempt", "Outcome"]


@pytest.mark.parametrize("fate", [Fate.OVERLOADED, Fate.RESET])
async def test_failure_before_the_first_event_is_retried(gateway: Running, fate: Fate) -> None:
    gateway.fates(fate)
    answer = await gateway.chat(stream=True)
    assert (await answer.text()).endswith("data: [DONE]\n\n")
    assert [one.role for one in gateway.attempts()] == ["first", "retry"]


async def test_cut_stream_is_partial_and_ends_with_an_error(gateway: Running) -> None:
    gateway.conditions(chunk_ms=1.0, output_tokens=100)
    gateway.fates(Fate.CUT)
    stream = await gateway.client.chat.completions.create(model="alone", messages=SAY, stream=True)
    with pytest.raises(openai.APIError, match="broke off"):
        async for _ in stream:
            pass
    attempt = gateway.attempts()[0]
    assert len(gateway.attempts()) == 1
    assert (attempt.verdict, attempt.billing, attempt.served) == ("partial", "unknown", False)
    assert attempt.counts_against_breaker
    assert attempt.tokens is not None
    assert attempt.tokens.estimated
    assert 0 < (attempt.tokens.output or 0) < 100
    assert gateway.outcomes()[0].success is False


async def test_cut_stream_does_not_look_whole_to_a_plain_client(gateway: Running) -> None:
    gateway.conditions(chunk_ms=1.0, output_tokens=100)
    gateway.fates(Fate.CUT)
    answer = await gateway.chat(stream=True)
    with pytest.raises(aiohttp.ClientPayloadError):
        await answer.read()


async def test_error_inside_a_stream_goes_on_once_and_is_partial(gateway: Running) -> None:
    gateway.conditions(chunk_ms=1.0, output_tokens=100)
    gateway.fates(Fate.STREAM_ERROR)
    answer = await gateway.chat(stream=True)
    data = await until_broken(answer)
    assert data.count(b'"error"') == 1
    assert json.loads(data.strip().split(b"data: ")[-1])["error"]["type"] == "server_error"
    assert gateway.attempts()[0].verdict == "partial"


async def test_disconnect_in_the_middle_cancels_upstream_at_once(gateway: Running) -> None:
    gateway.conditions(chunk_ms=20.0, output_tokens=4000)
    answer = await gateway.chat(stream=True)
    await answer.content.readany()
    answer.close()
    await until(lambda: gateway.openai.abandoned, 2)
    await until(gateway.outcomes, 2)
    attempt = gateway.attempts()[0]
    assert (attempt.verdict, attempt.counts_against_breaker) == ("client_cancelled", False)
    assert attempt.billing == "unknown"
    assert attempt.tokens is not None
    assert attempt.tokens.estimated
    assert gateway.outcomes()[0].reason == "client_cancelled"


async def test_disconnect_before_the_answer_cancels_upstream_at_once(gateway: Running) -> None:
    gateway.fates(Fate.HANG)
    reader_gone = openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key="any", timeout=0.3, max_retries=0
    )
    with pytest.raises(openai.APITimeoutError):
        await reader_gone.chat.completions.create(model="alone", messages=SAY)
    await until(lambda: gateway.openai.abandoned, 2)
    await until(gateway.outcomes, 2)
    assert gateway.attempts()[0].verdict == "client_cancelled"
    await reader_gone.close()
    assert (await gateway.chat()).status == 200
