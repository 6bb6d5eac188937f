"""Plain chat completions through the gateway: an unmodified SDK, retries, fallback, errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import openai
import pytest

from gateway.simulator.scenario import Fate
from tests.gateway.running import Running, running

SAY = [{"role": "user", "content": "oak elm"}]


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path) as started:
        yield started


async def test_openai_client_gets_an_answer(gateway: Running) -> None:
    answer = await gateway.client.chat.completions.create(model="alone", messages=SAY)
    assert answer.choices[0].message.content
    assert answer.usage is not None
    attempt, outcome = gateway.attempts()[0], gateway.outcomes()[0]
    assert (attempt.role, attempt.verdict, attempt.billing) == ("first", "success", "billed")
    assert attempt.served
    assert attempt.served_model == "gpt-4.1-mini-2025-04-14"
    assert attempt.tokens is not None
    assert attempt.tokens.output == answer.usage.completion_tokens
    assert (outcome.success, outcome.request) == (True, attempt.request)


async def test_answer_says_what_happened(gateway: Running) -> None:
    answer = await gateway.chat()
    assert answer.headers["x-switchgear-circuit"] == "openai/gpt-4.1-mini"
    assert answer.headers["x-switchgear-attempts"] == "1"
    assert answer.headers["x-switchgear-decision"] == "first"
    assert answer.headers["x-switchgear-request"] == str(gateway.attempts()[0].request)


async def test_retry_then_success_is_two_attempts_under_one_key(gateway: Running) -> None:
    gateway.fates(Fate.OVERLOADED)
    answer = await gateway.chat()
    assert answer.status == 200
    assert answer.headers["x-switchgear-decision"] == "retry"
    roles = [(one.role, one.ordinal, one.status) for one in gateway.attempts()]
    assert roles == [("first", 1, 503), ("retry", 2, 200)]
    assert gateway.attempts()[0].billing == "not_billed"
    assert len({call["idempotency_key"] for call in gateway.openai.calls}) == 1
    assert len(gateway.outcomes()) == 1


async def test_fallback_serves_when_the_primary_keeps_failing(gateway: Running) -> None:
    gateway.fates(*[Fate.OVERLOADED] * 5)
    answer = await gateway.chat("assistant")
    assert answer.status == 200
    assert answer.headers["x-switchgear-circuit"] == "mistral/mistral-small-latest"
    assert gateway.attempts()[-1].role == "fallback"


async def test_open_circuit_is_not_asked_and_the_fallback_is_the_first_attempt(
    gateway: Running,
) -> None:
    gateway.fates(*[Fate.OVERLOADED] * 50)
    for _ in range(6):
        await gateway.chat("assistant")
    sent = gateway.openai.requests
    answer = await gateway.chat("assistant")
    assert answer.status == 200
    assert gateway.openai.requests == sent
    assert answer.headers["x-switchgear-decision"] == "rerouted"
    last = gateway.attempts()[-1]
    assert (last.role, last.rerouted, last.ordinal) == ("first", True, 1)
    assert gateway.refusals()[-1].gate == "breaker"


async def test_all_refused_is_503_with_the_soonest_time_and_no_sdk_retry(gateway: Running) -> None:
    gateway.fates(*[Fate.OVERLOADED] * 50)
    for _ in range(4):
        await gateway.chat()
    answer = await gateway.chat()
    assert answer.status == 503
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    assert answer.headers["x-should-retry"] == "false"
    error = (await answer.json())["error"]
    assert (error["type"], error["code"]) == ("refused", "breaker")
    assert gateway.outcomes()[-1].success is False
    before, refused = gateway.openai.requests, len(gateway.refusals())
    with pytest.raises(openai.InternalServerError):
        await gateway.client.chat.completions.create(model="alone", messages=SAY)
    assert gateway.openai.requests == before
    # The SDK obeyed: it asked once.
    assert len(gateway.refusals()) == refused + 1


async def test_providers_own_error_goes_on_to_the_caller(gateway: Running) -> None:
    gateway.fates(Fate.BAD_REQUEST)
    with pytest.raises(openai.BadRequestError, match="out of range"):
        await gateway.client.chat.completions.create(model="alone", messages=SAY)
    assert [one.verdict for one in gateway.attempts()] == ["permanent"]
    assert gateway.attempts()[0].counts_against_breaker is False


async def test_spent_quota_rests_the_key_and_never_opens_the_circuit(gateway: Running) -> None:
    gateway.fates(*[Fate.QUOTA] * 9)
    assert (await gateway.chat("assistant")).status == 200
    again = await gateway.chat("assistant")
    assert again.headers["x-switchgear-decision"] == "rerouted"
    assert gateway.openai.requests == 1
    assert gateway.refusals()[-1].gate == "key"
    statuses = gateway.agent.live.circuit_statuses(0.0)
    assert {status.state for status in statuses} == {"Closed"}


async def test_unapproved_fallback_is_never_used(gateway: Running) -> None:
    gateway.fates(Fate.QUOTA)
    answer = await gateway.chat("unapproved")
    assert answer.status == 429
    assert answer.headers["x-should-retry"] == "false"
    assert gateway.simulator.providers["mistral"].requests == 0
    assert "policy" in {one.gate for one in gateway.refusals()}


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        (b"{", 400, None),
        (b"[]", 400, None),
        (b'{"messages": []}', 400, "model"),
        (b'{"model": 7}', 400, "model"),
        (b'{"model": "alone", "stream": "yes"}', 400, "stream"),
        (b'{"model": "alone", "x": "\xff"}', 400, None),
        (b'{"model": "none"}', 404, "model"),
        (b"[" * 100_000, 400, None),
    ],
)
async def test_bad_body_is_a_4xx_in_the_apis_shape(
    gateway: Running, body: bytes, status: int, param: str | None
) -> None:
    async with gateway.http.post("/v1/chat/completions", data=body) as answer:
        assert answer.status == status
        assert answer.headers["x-should-retry"] == "false"
        assert (await answer.json())["error"]["param"] == param
    assert gateway.events == []


@pytest.mark.parametrize(
    "headers",
    [
        {"x-switchgear-task": "x" * 201},
        {"x-switchgear-timeout": "soon"},
        {"x-switchgear-priority": "now"},
    ],
)
async def test_bad_header_is_named(gateway: Running, headers: dict[str, str]) -> None:
    answer = await gateway.chat(headers=headers)
    assert answer.status == 400
    assert (await answer.json())["error"]["param"] == next(iter(headers))


async def test_models_are_the_routes(gateway: Running) -> None:
    models = [model.id async for model in gateway.client.models.list()]
    assert models == ["alone", "assistant", "unapproved"]
    assert (await gateway.client.models.retrieve("alone")).id == "alone"
    async with gateway.http.get("/v1/models/nobody") as answer:
        assert answer.status == 404
        assert (await answer.json())["error"]["code"] == "model_not_found"


async def test_health_and_readiness(gateway: Running) -> None:
    for path in ("/healthz", "/readyz"):
        async with gateway.http.get(path) as answer:
            assert answer.status == 200
    async with gateway.http.get("/readyz") as answer:
        assert (await answer.json())["config_source"] == "Bootstrap"


async def test_fault_of_our_own_is_told_and_gives_the_permit_back(
    gateway: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(attempt: object) -> None:
        raise RuntimeError("no spool")

    with monkeypatch.context() as patch:
        patch.setattr(gateway.agent.spool, "begin", broken)
        answer = await gateway.chat()
    assert answer.status == 500
    assert (await answer.json())["error"]["code"] == "gateway_fault"
    assert gateway.outcomes()[0].reason == "gateway_fault"
    assert (await gateway.chat()).status == 200
