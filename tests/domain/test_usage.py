"""Token counts out of every shape of usage, and out of streams that stop early."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.usage import (
    Tokens,
    client_asked_for_usage,
    fill,
    is_usage_only,
    only_counted,
    tokens,
)
from controlplane.domain.usage_counts import MOST_TOKENS
from controlplane.domain.usage_stream import StreamUsage, total


@pytest.mark.parametrize(
    ("provider", "usage", "expected"),
    [
        # Responses: cached is part of the input
        ("openai", {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 60},
         "output_tokens": 40, "output_tokens_details": {"reasoning_tokens": 30},
         "total_tokens": 140}, Tokens(40, 60, 0, 40, 30)),
        # Messages: the classes are disjoint; writes may come by age only
        ("anthropic", {"input_tokens": 10, "cache_read_input_tokens": 60, "cache_creation":
         {"ephemeral_5m_input_tokens": 5, "ephemeral_1h_input_tokens": 7}, "output_tokens": 4},
         Tokens(10, 60, 12, 4, 0)),
        ("deepseek", {"prompt_tokens": 100, "completion_tokens": 5, "prompt_cache_hit_tokens": 64,
         "prompt_cache_miss_tokens": 36}, Tokens(36, 64, 0, 5, 0)),
        ("openrouter", {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details":
         {"cached_tokens": 50, "cache_write_tokens": 20}}, Tokens(30, 50, 20, 5, 0)),
        # reasoning beside the completion: the total tells
        ("xai", {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 115,
         "completion_tokens_details": {"reasoning_tokens": 100}}, Tokens(10, 0, 0, 105, 100)),
        ("openai", {"prompt_tokens": 10, "completion_tokens": 105, "total_tokens": 115,
         "completion_tokens_details": {"reasoning_tokens": 100}}, Tokens(10, 0, 0, 105, 100)),
        ("gemini", {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 205},
         Tokens(10, 0, 0, 195, 190)),
        # Google: thoughts beside or inside the candidates, tool prompts are input
        ("gemini", {"usageMetadata": {"promptTokenCount": 100, "cachedContentTokenCount": 80,
         "candidatesTokenCount": 6, "thoughtsTokenCount": 4, "totalTokenCount": 110}},
         Tokens(20, 80, 0, 10, 4)),
        ("vertex", {"promptTokenCount": 100, "candidatesTokenCount": 10, "thoughtsTokenCount": 4,
         "totalTokenCount": 110}, Tokens(100, 0, 0, 10, 4)),
        ("gemini", {"promptTokenCount": 100, "thoughtsTokenCount": 9, "totalTokenCount": 109},
         Tokens(100, 0, 0, 9, 9)),
        ("gemini", {"promptTokenCount": 100, "thoughtsTokenCount": 9}, Tokens(100, 0, 0, 9, 9)),
        ("gemini", {"promptTokenCount": 5, "toolUsePromptTokenCount": 7, "candidatesTokenCount": 3,
         "totalTokenCount": 15}, Tokens(12, 0, 0, 3, 0)),
        ("bedrock", {"inputTokens": 3, "outputTokens": 4, "totalTokens": 16,
         "cacheReadInputTokens": 9}, Tokens(3, 9, 0, 4, 0)),
        ("bedrock", {"amazon-bedrock-invocationMetrics": {"inputTokenCount": 3,
         "outputTokenCount": 4}}, Tokens(3, 0, 0, 4, 0)),
        ("cohere", {"usage": {"tokens": {"input_tokens": 3, "output_tokens": 4}}},
         Tokens(3, 0, 0, 4, 0)),
        ("ollama", {"prompt_eval_count": 3, "eval_count": 4}, Tokens(3, 0, 0, 4, 0)),
        # what cannot be
        ("openai", {"prompt_tokens": 10, "completion_tokens": MOST_TOKENS + 1},
         Tokens(10, 0, 0, None, 0, invalid=True)),
        ("openai", {"prompt_tokens": "many", "completion_tokens": 3},
         Tokens(None, 0, 0, 3, 0, invalid=True)),
        ("openai", {"prompt_tokens": True, "completion_tokens": 1.5},
         Tokens(None, 0, 0, None, 0, invalid=True)),
        ("openai", {"prompt_tokens": 10, "completion_tokens": float("nan")},
         Tokens(10, 0, 0, None, 0, invalid=True)),
        # embeddings have no completion, as their total says
        ("openai", {"prompt_tokens": 8, "total_tokens": 8}, Tokens(8, 0, 0, 0, 0)),
        ("openai", {"prompt_tokens": 8, "total_tokens": 11}, Tokens(8, 0, 0, 3, 0)),
        ("openai", {"prompt_tokens": 8, "total_tokens": 3}, Tokens(8, 0, 0, None, 0)),
        ("openai", {"prompt_tokens": 8}, Tokens(8, 0, 0, None, 0)),
        # nothing counted is not known, never 0
        ("openai", {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
         Tokens(None, 0, 0, None, 0)),
        ("openai", {}, Tokens(None, 0, 0, None, 0)),
        ("openai", None, Tokens(None, 0, 0, None, 0)),
    ],
)  # fmt: skip
def test_it_counts_each_token_once(
    provider: str, usage: dict[str, Any] | None, expected: Tokens
) -> None:
    assert tokens(provider, usage) == expected


CHAT = st.fixed_dictionaries(
    {"prompt_tokens": st.integers(-1, 9), "completion_tokens": st.integers(0, 9)},
    optional={
        "total_tokens": st.integers(0, 18) | st.none(),
        "prompt_tokens_details": st.dictionaries(
            st.sampled_from(["cached_tokens", "cache_write_tokens", "audio_tokens"]),
            st.integers(0, 5) | st.none() | st.booleans(),
        ),
        "completion_tokens_details": st.none()
        | st.fixed_dictionaries({"reasoning_tokens": st.integers(0, 9)}),
    },
)


@given(usage=CHAT, adds_up=st.booleans())
def test_the_short_way_for_plain_counts_gives_what_the_long_way_gives(
    usage: dict[str, Any], adds_up: bool
) -> None:
    if adds_up:
        usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
    long_way = {**usage, "reasoning_tokens": None}  # says nothing, but is not plain
    assert tokens("openai", usage) == tokens("openai", long_way)


def test_it_marks_estimates_and_never_hides_invalid_counts() -> None:
    estimated = tokens("openai", None, prompt_estimate=30, output_estimate=12)
    assert estimated == Tokens(30, 0, 0, 12, 0, estimated=True)
    invalid = tokens("openai", {"prompt_tokens": 1, "completion_tokens": -5}, output_estimate=12)
    assert (invalid.output, invalid.invalid) == (None, True)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"completion_tokens": 3}, Tokens(30, 0, 0, 3, 0, estimated=True)),
        ({"prompt_tokens": 8}, Tokens(8, 0, 0, 12, 0, estimated=True)),
        # no less than the reasoning that is known to be in it
        ({"prompt_tokens": 8, "completion_tokens_details": {"reasoning_tokens": 40}},
         Tokens(8, 0, 0, 40, 40, estimated=True)),
        ({"prompt_tokens": 8, "completion_tokens": 3}, Tokens(8, 0, 0, 3, 0)),
        # what stands where usage should is none
        ({"usage": []}, Tokens(30, 0, 0, 12, 0, estimated=True)),
        ({"usage": [1], "choices": [7, {"usage": 7}, {"usage": {}}], "message": "hi"},
         Tokens(30, 0, 0, 12, 0, estimated=True)),
    ],
)  # fmt: skip
def test_it_estimates_only_what_is_not_known(usage: dict[str, Any], expected: Tokens) -> None:
    assert tokens("openai", usage, prompt_estimate=30, output_estimate=12) == expected


def test_an_estimate_of_one_count_does_not_invent_the_other() -> None:
    once = tokens("openai", {"prompt_tokens": 8}, prompt_estimate=30)
    assert once == Tokens(8, 0, 0, None, 0)
    known = Tokens(1, 0, 0, 1, 0, estimated=True)
    assert fill(known, prompt_estimate=30, output_estimate=12) == known
    assert fill(known._replace(output=None), prompt_estimate=30).estimated


def test_only_a_count_of_a_prompt_is_one() -> None:
    assert only_counted({"input_tokens": 5})
    assert not only_counted({"input_tokens": 5, "output_tokens": 1})
    assert not only_counted({"input_tokens": 5, "usage": {}})
    assert not only_counted({"output": []})


def stream(provider: str, *events: dict[str, Any] | str) -> StreamUsage:
    reader = StreamUsage(provider)
    for event in events:
        reader.feed(event if isinstance(event, str) else json.dumps(event).encode())
    return reader


def test_it_keeps_what_a_cumulative_delta_leaves_out_or_zeroes() -> None:
    start = {"type": "message_start", "message": {"model": "m-1", "usage":
             {"input_tokens": 50, "cache_read_input_tokens": 400, "output_tokens": 2}}}  # fmt: skip
    delta = {"type": "message_delta", "usage": {"input_tokens": 0, "output_tokens": 89}}
    reader = stream("anthropic", start, delta)
    assert reader.result() == Tokens(50, 400, 0, 89, 0)
    assert reader.served_model == "m-1"


def test_it_takes_the_last_of_repeated_counts() -> None:
    first = {"usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 9}}
    last = {"usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 6}}
    assert stream("gemini", first, last).result() == Tokens(12, 0, 0, 6, 0)


def test_it_estimates_a_stream_that_ended_before_its_counts() -> None:
    delta = {"choices": [{"delta": {"content": "a dozen plain words "}}]}
    counted = stream("openai", *[delta] * 10).result(prompt_estimate=7)
    assert counted == Tokens(7, 0, 0, 50, 0, estimated=True)


def test_it_never_lets_a_placeholder_stand_for_the_output() -> None:
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 5, "output_tokens": 1}}}
    text = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x" * 400}}
    assert stream("anthropic", start, text).result() == Tokens(5, 0, 0, 100, 0, estimated=True)


def test_it_reads_a_responses_stream() -> None:
    done = {"type": "response.completed", "response": {"model": "m-2", "service_tier": "flex",
            "usage": {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12}}}  # fmt: skip
    reader = stream("openai", {"type": "response.output_text.delta", "delta": "Hi"}, done)
    assert reader.result() == Tokens(9, 0, 0, 3, 0)
    assert (reader.served_model, reader.service_tier) == ("m-2", "flex")


def test_it_parses_only_events_that_can_hold_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []
    loads = json.loads

    def counting(data: bytes) -> Any:
        parsed.append(data)
        return loads(data)

    monkeypatch.setattr("controlplane.domain.usage_stream.json.loads", counting)
    delta = b'{"choices":[{"delta":{"content":"word"}}],"usage":null}'
    reader = StreamUsage("openai")
    for _ in range(100):
        assert reader.feed(delta) is False
    assert parsed == []
    assert reader.feed(b'{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}') is True
    assert reader.result() == Tokens(1, 0, 0, 2, 0)


def test_it_holds_back_only_the_usage_chunk_nobody_asked_for() -> None:
    assert is_usage_only({"choices": [], "usage": {"prompt_tokens": 1}})
    assert not is_usage_only({"choices": [], "usage": None})
    assert not is_usage_only({"choices": [{}], "usage": {"prompt_tokens": 1}})
    assert client_asked_for_usage({"stream_options": {"include_usage": True}})
    assert not client_asked_for_usage({"stream_options": None})
    assert not client_asked_for_usage({"stream_options": "include_usage"})
    assert not client_asked_for_usage({"stream_options": {"include_usage": 1}})


def test_a_total_does_not_know_what_one_attempt_does_not() -> None:
    known = Tokens(1, 2, 3, 4, 0)
    assert total([known, known]) == Tokens(2, 4, 6, 8, 0)
    assert total([known, Tokens(1, 0, 0, None, 0)]).output is None


NAMES = st.sampled_from(
    [
        "usage", "prompt_tokens", "completion_tokens", "input_tokens", "output_tokens",
        "total_tokens", "prompt_tokens_details", "cached_tokens", "completion_tokens_details",
        "reasoning_tokens", "promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount",
        "cache_creation", "type", "message", "tokens", "inputTokens", "totalTokenCount",
    ]
)  # fmt: skip
COUNTS = st.integers() | st.floats() | st.none() | st.booleans() | st.text(max_size=5)
USAGE = st.recursive(COUNTS, lambda inner: st.dictionaries(NAMES, inner, max_size=6), max_leaves=15)


@given(st.dictionaries(NAMES, USAGE, max_size=8), st.sampled_from(["openai", "gemini"]))
def test_it_never_raises_and_never_counts_below_zero(usage: dict[str, Any], provider: str) -> None:
    reader = StreamUsage(provider)
    reader.feed(json.dumps(usage))
    for counted in (tokens(provider, usage), reader.result()):
        for count in (
            counted.input,
            counted.cached_read,
            counted.cache_write,
            counted.output,
            counted.reasoning_in_output,
        ):
            assert count is None or count >= 0
        if counted.output is not None and counted.reasoning_in_output is not None:
            assert counted.reasoning_in_output <= counted.output
