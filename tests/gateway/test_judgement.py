"""What an attempt used and who served it, judged from what was seen of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from controlplane.domain.circuit import Circuit
from controlplane.domain.classify import Cause, Fault, Phase
from controlplane.domain.usage import Tokens
from gateway import asked
from gateway.attempt import Limits, Seen
from gateway.event_stream import EventStream
from gateway.judgement import Judgement, judged, observation_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LIMITS = Limits(provider_s=60.0, idle_s=60.0, left_s=60.0)
# Its messages are 52 bytes, about 13 tokens.
ASKED = asked.read(b'{"model":"r","messages":[{"role":"user","content":"name a tree or two pl"}]}')
WORDS = "a dozen plain words " * 4
CIRCUIT = Circuit("p", "m", "")


def judge(seen: Seen, sent: int = 0) -> Judgement:
    observation = observation_of(CIRCUIT, seen, LIMITS, sent=sent, connected=True, now=NOW)
    return judged(observation, seen, ASKED)


def plain(body: dict[str, Any], status: int = 200) -> Judgement:
    seen = Seen(status=status, body=json.dumps(body).encode())
    seen.progress.phase = Phase.READING_BODY
    return judge(seen)


def choices(text: str = WORDS) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": {"content": text}, "finish_reason": "stop"}]}


@pytest.mark.parametrize(
    ("body", "served_by"),
    [
        ({"model": "gpt-x", "service_tier": "flex"}, ("gpt-x", "flex")),
        ({"model": "claude-x", "usage": {"input_tokens": 1, "output_tokens": 2, "service_tier":
          "priority"}}, ("claude-x", "priority")),
        ({"modelVersion": "gemini-x", "usageMetadata": {"promptTokenCount": 1,
          "candidatesTokenCount": 1, "trafficType": "ON_DEMAND_FLEX"}}, ("gemini-x", "flex")),
        ({"usage": {"inputTokens": 1, "outputTokens": 1}, "serviceTier": {"type": "flex"}},
         (None, "flex")),
    ],
)  # fmt: skip
def test_it_is_billed_by_the_model_and_the_tier_that_the_answer_names(
    body: dict[str, Any], served_by: tuple[str | None, str | None]
) -> None:
    judgement = plain({**choices(), **body})
    assert (judgement.served_model, judgement.service_tier) == served_by


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        # its text, not the JSON around it
        (choices(), Tokens(13, 0, 0, 20, 0, estimated=True)),
        ({**choices(), "usage": {"prompt_tokens": 9}}, Tokens(9, 0, 0, 20, 0, estimated=True)),
        (choices('{"embedding": 1}' * 4), Tokens(13, 0, 0, 16, 0, estimated=True)),
        ({"generated": "x" * 59}, Tokens(13, 0, 0, 19, 0, estimated=True)),
        # vectors are not output
        ({"data": [{"embedding": [0.25] * 500}]}, Tokens(13, 0, 0, 0, 0, estimated=True)),
        ({"data": [{"embedding": [0.25]}], "usage": {"total_tokens": 9}}, Tokens(9, 0, 0, 0, 0)),
    ],
)
def test_what_the_provider_does_not_count_is_estimated(
    body: dict[str, Any], tokens: Tokens
) -> None:
    judgement = plain(body)
    assert (judgement.tokens, judgement.billing) == (tokens, "billed")


def test_an_error_that_tells_its_usage_is_billed_and_one_that_does_not_is_not() -> None:
    error = {"error": {"code": 500, "message": "boom"}}
    used = plain({**error, "usage": {"prompt_tokens": 9, "completion_tokens": 1}}, 500)
    assert (used.tokens, used.billing) == (Tokens(9, 0, 0, 1, 0), "billed")
    silent = plain(error, 500)
    assert (silent.tokens, silent.billing) == (None, "not_billed")


@pytest.mark.parametrize(
    "counted",
    [
        {"input_tokens": 2095},
        {"input_tokens": 2095, "context_management": {"original_input_tokens": 7000}},
        {"object": "response.input_tokens", "input_tokens": 2095},
    ],
)
def test_a_prompt_that_was_only_counted_is_not_billed(counted: dict[str, Any]) -> None:
    judgement = plain(counted)
    assert (judgement.tokens, judgement.billing) == (None, "not_billed")


def test_what_was_sent_and_then_lost_is_estimated_of_unknown_billing() -> None:
    seen = Seen(fault=Fault(Phase.AWAITING_HEADERS, Cause.TIMEOUT))
    assert judge(seen).billing == "not_billed"
    seen.progress.phase = Phase.AWAITING_HEADERS
    lost = judge(seen)
    assert (lost.tokens, lost.billing) == (Tokens(13, 0, 0, 0, 0, estimated=True), "unknown")


def test_a_stream_cut_after_its_counts_is_billed_by_them_and_before_them_estimated() -> None:
    word = {"model": "served-x", "choices": [{"index": 0, "delta": {"content": WORDS}}]}
    counts = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 30}}
    for events, tokens, billing in (
        ([word, counts], Tokens(9, 0, 0, 30, 0), "billed"),
        ([word], Tokens(13, 0, 0, 20, 0, estimated=True), "unknown"),
    ):
        stream = EventStream("p", hide_usage=True)
        for event in events:
            stream.feed(b"data: " + json.dumps(event).encode() + b"\n\n")
        seen = Seen(status=200, stream=stream, fault=Fault(Phase.READING_BODY, Cause.RESET))
        cut = judge(seen, sent=100)
        assert (cut.verdict.ok, cut.tokens, cut.billing) == (False, tokens, billing)
        assert cut.served_model == "served-x"
