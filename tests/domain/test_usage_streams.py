"""Usage of streams: what the last word is, what a cut stream comes to, who served it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controlplane.domain.usage import Served, Tokens, is_usage_only, served
from controlplane.domain.usage_stream import StreamUsage

WORDS = "a dozen plain words "


def stream(provider: str, *events: dict[str, Any]) -> StreamUsage:
    reader = StreamUsage(provider)
    for event in events:
        reader.feed(json.dumps(event).encode())
    return reader


def chat(text: str = "", usage: Any = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}}], "usage": usage}


def total(prompt: int, output: int, **more: Any) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "completion_tokens": output,
            "total_tokens": prompt + output, **more}  # fmt: skip


def start(**usage: Any) -> dict[str, Any]:
    return {"type": "message_start", "message": {"id": "m", "model": "claude-x", "usage": usage}}


def delta(**usage: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}


def text(words: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "delta": {"type": "text_delta", "text": words}}


def google(prompt: int, words: str = "", **counts: int) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": [{"text": words}]}}],
            "usageMetadata": {"promptTokenCount": prompt, **counts}}  # fmt: skip


LAST_WORDS = [
    # every chunk says what it came to so far
    ("xai", [chat("one ", total(7, 1)), chat("two", total(7, 2))], Tokens(7, 0, 0, 2, 0)),
    ("vllm", [chat("", total(7, 0)), chat("one", total(7, 1)), chat("", total(7, 1))],
     Tokens(7, 0, 0, 1, 0)),
    # zeros on the way, and zeros at the end: neither is a count
    ("kimi", [chat("one", total(0, 0)), chat("", total(7, 1))], Tokens(7, 0, 0, 1, 0)),
    ("openai", [chat("one"), chat("", total(7, 1, prompt_tokens_details={"cached_tokens": 4})),
     chat("", total(0, 0, prompt_tokens_details={"cached_tokens": 0}))], Tokens(3, 4, 0, 1, 0)),
    ("openai", [chat("one"), chat("", total(7, 1)), chat("", None)], Tokens(7, 0, 0, 1, 0)),
    ("openai", [chat("one"), chat("", total(7, 1)), chat("", total(7, 1))], Tokens(7, 0, 0, 1, 0)),
    ("moonshot", [chat("one"), {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop",
     "usage": total(7, 1)}]}], Tokens(7, 0, 0, 1, 0)),
    ("groq", [chat("one"), {"choices": [{"delta": {}}], "x_groq": {"usage": total(7, 1)}}],
     Tokens(7, 0, 0, 1, 0)),
    # Anthropic: the placeholder never counts, what is cumulative is never added
    ("anthropic", [start(input_tokens=2, cache_creation_input_tokens=47119, output_tokens=4),
     text("hi"), delta(input_tokens=2, cache_creation_input_tokens=47119, output_tokens=64)],
     Tokens(2, 0, 47119, 64, 0)),
    ("anthropic", [start(input_tokens=25, output_tokens=8), text("hi"), delta(output_tokens=5)],
     Tokens(25, 0, 0, 5, 0)),
    ("anthropic", [start(input_tokens=25, output_tokens=8), delta(output_tokens=0)],
     Tokens(25, 0, 0, 0, 0)),
    ("anthropic", [start(input_tokens=25, output_tokens=1), delta(output_tokens=5),
     delta(output_tokens=9)], Tokens(25, 0, 0, 9, 0)),
    # the whole prompt first, and then what of it was cached
    ("anthropic", [start(input_tokens=30946, output_tokens=1), text("hi"),
     delta(input_tokens=6, cache_read_input_tokens=30940, output_tokens=9)],
     Tokens(6, 30940, 0, 9, 0)),
    ("bedrock", [start(input_tokens=6, cache_read_input_tokens=9, output_tokens=1), text("hi"),
     delta(output_tokens=3), {"type": "message_stop", "amazon-bedrock-invocationMetrics":
     {"inputTokenCount": 6, "outputTokenCount": 3, "cacheReadInputTokenCount": 9}}],
     Tokens(6, 9, 0, 3, 0)),
    # Google: each chunk so far, thoughts first
    ("gemini", [google(12, thoughtsTokenCount=190, totalTokenCount=202),
     google(12, "hi", candidatesTokenCount=2, totalTokenCount=204)],
     Tokens(12, 0, 0, 192, 190)),
    ("openai", [{"type": "response.output_text.delta", "delta": "hi"},
     {"type": "response.output_text.done", "text": "hi"}, {"type": "response.incomplete",
     "response": {"usage": {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12}}}],
     Tokens(9, 0, 0, 3, 0)),
    ("cohere", [{"type": "message-end", "delta": {"usage": {"billed_units": {"input_tokens": 3,
     "output_tokens": 4}}}}], Tokens(3, 0, 0, 4, 0)),
    ("ollama", [{"message": {"content": "hi"}, "done": False}, {"message": {"content": ""},
     "done": True, "prompt_eval_count": 3, "eval_count": 4}], Tokens(3, 0, 0, 4, 0)),
    # the provider's own counts, and then an error or a cut
    ("openai", [chat("one"), chat("", total(7, 1)), {"error": {"message": "boom"}}],
     Tokens(7, 0, 0, 1, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("provider", "events", "expected"), LAST_WORDS)
def test_it_takes_the_last_word_of_the_provider(
    provider: str, events: list[dict[str, Any]], expected: Tokens
) -> None:
    assert stream(provider, *events).result() == expected


CUT = [
    # counts only of the prompt, then words
    ("openai", [chat("", total(7, 0)), *[chat(WORDS)] * 4], Tokens(7, 0, 0, 20, 0, estimated=True)),
    # counts so far, and then words without any
    ("openai", [chat("", total(7, 3)), *[chat(WORDS)] * 4], Tokens(7, 0, 0, 23, 0, estimated=True)),
    # counts of the prompt in an event that has words itself
    ("gemini", [google(12, WORDS * 4, totalTokenCount=12)],
     Tokens(12, 0, 0, 20, 0, estimated=True)),
    ("gemini", [google(12, WORDS * 4)], Tokens(12, 0, 0, 20, 0, estimated=True)),
    ("anthropic", [start(input_tokens=25, cache_read_input_tokens=4, output_tokens=30),
     text(WORDS)], Tokens(25, 4, 0, 30, 0, estimated=True)),
    ("anthropic", [start(input_tokens=25, output_tokens=1), text(WORDS * 4),
     delta(input_tokens=25)], Tokens(25, 0, 0, 20, 0, estimated=True)),
    # said in pieces and then again as a whole
    ("openai", [{"type": "response.output_text.delta", "delta": WORDS * 4},
     {"type": "response.output_text.done", "text": WORDS * 4},
     {"type": "response.content_part.done", "part": {"text": WORDS * 4}}],
     Tokens(7, 0, 0, 20, 0, estimated=True)),
    ("openai", [chat('{"type":"response.done"} and words')], Tokens(7, 0, 0, 9, 0, estimated=True)),
    # the arguments of a tool, which are JSON inside JSON
    ("openai", [{"choices": [{"delta": {"tool_calls": [{"function": {"arguments":
     '{"a":"b","c":"d"}' * 4}}]}}]}], Tokens(7, 0, 0, 17, 0, estimated=True)),
    # letters beyond ASCII, which some write as \\uXXXX
    ("qwen", [chat("\u4f60\u597d" * 20)], Tokens(7, 0, 0, 30, 0, estimated=True)),
    ("ollama", [{"response": WORDS * 4, "done": False}], Tokens(7, 0, 0, 20, 0, estimated=True)),
]  # fmt: skip


@pytest.mark.parametrize(("provider", "events", "expected"), CUT)
def test_it_estimates_what_came_after_the_last_count(
    provider: str, events: list[dict[str, Any]], expected: Tokens
) -> None:
    assert stream(provider, *events).result(prompt_estimate=7) == expected


def test_a_long_stream_is_measured_the_same_however_it_was_fed() -> None:
    reader = stream("openai", chat("", total(7, 5)), *[chat(WORDS)] * 2000)
    assert reader.delivered_tokens == 10_000
    assert reader.result() == Tokens(7, 0, 0, 10_005, 0, estimated=True)


def test_counts_at_the_end_of_a_long_stream_are_exact_and_what_passed_stays_measured() -> None:
    long = [chat(WORDS)] * 2000
    reader = stream("openai", chat("", total(7, 0)), *long, chat("", total(7, 9)), *long)
    reader.feed(chat("", total(7, 11)))
    assert reader.result() == Tokens(7, 0, 0, 11, 0)
    assert reader.delivered_tokens == 20_000


def test_counts_that_contradict_each_other_stay_invalid_whatever_was_delivered() -> None:
    reader = stream("openai", chat(WORDS), chat("", {"prompt_tokens": 7, "completion_tokens": -1}))
    assert reader.result() == Tokens(7, 0, 0, None, 0, invalid=True)


def test_a_placeholder_that_is_no_number_is_none() -> None:
    assert stream("anthropic", start(input_tokens=5, output_tokens="1")).result() == Tokens(
        5, 0, 0, 0, 0, estimated=True
    )


def test_what_is_no_event_says_nothing() -> None:
    reader = StreamUsage("openai")
    for data in (None, 7, ["tokens"], "[DONE]", b"", b'{"tokens', b'["tokens"]', b'"tokens"'):
        assert reader.feed(data) is False
    assert reader.result() == Tokens(None, 0, 0, 0, 0, estimated=True)


def test_usage_of_very_many_fields_is_cut_and_not_kept() -> None:
    many = {f"field_{i}": i for i in range(5000)}
    reader = stream("openai", chat("", {**total(7, 1), **many}))
    assert reader.result() == Tokens(7, 0, 0, 1, 0)
    assert len(reader._fields) == 40


def test_counts_on_every_chunk_of_a_long_stream_stay_exact() -> None:
    reader = stream("vllm", *[chat(WORDS, total(7, i)) for i in range(2000)])
    assert reader.result() == Tokens(7, 0, 0, 1999, 0)


SERVED = [
    ({"model": "gpt-x", "service_tier": "flex"}, Served("gpt-x", "flex")),
    ({"modelVersion": "gemini-x", "usageMetadata": {"trafficType": "ON_DEMAND_PRIORITY"}},
     Served("gemini-x", "priority")),
    ({"modelVersion": "gemini-x", "usageMetadata": {"trafficType": "ON_DEMAND"}},
     Served("gemini-x", "on_demand")),
    ({"modelVersion": "gemini-x", "usageMetadata": {"serviceTier": "flex"}},
     Served("gemini-x", "flex")),
    ({"model": "outer", "service_tier": "flex", "response": {"model": ""}},
     Served("outer", "flex")),
    ({"model": "claude-x", "usage": {"service_tier": "batch"}}, Served("claude-x", "batch")),
    ({"type": "message_start", "message": {"model": "claude-x", "usage":
     {"service_tier": "priority"}}}, Served("claude-x", "priority")),
    ({"type": "response.completed", "response": {"model": "gpt-x", "service_tier": "default"}},
     Served("gpt-x", "default")),
    ({"output": {}, "serviceTier": {"type": "flex"}}, Served(None, "flex")),
    ({"model": None, "service_tier": None, "usage": None}, Served()),
    ({"model": 7, "service_tier": 7, "message": "hi"}, Served()),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "expected"), SERVED)
def test_it_knows_the_model_and_the_tier_that_are_billed(
    answer: dict[str, Any], expected: Served
) -> None:
    assert served(answer) == expected
    assert served({"error": "boom", **answer}) == expected


def test_a_stream_keeps_the_tier_that_only_one_event_names() -> None:
    reader = stream("anthropic", start(input_tokens=5, service_tier="priority"),
                    text("hi"), delta(output_tokens=3))  # fmt: skip
    assert (reader.served_model, reader.service_tier) == ("claude-x", "priority")


@pytest.mark.parametrize("cut", ["before the usage", "in whole"])
def test_a_stream_names_its_model_also_when_it_is_cut_before_its_usage(cut: str) -> None:
    said = 'he said "model":"not-me"'
    events = [{"id": "c", "model": "served-x", **chat(said)}, {"model": "served-x", **chat(said)}]
    if cut == "in whole":
        events.append({"model": "served-x", **chat("", total(7, 1))})
    assert stream("openrouter", *events).served_model == "served-x"
    assert stream("openai", chat(said), chat(said)).served_model is None


@pytest.mark.parametrize(
    ("begin", "tier"),
    [({"service_tier": "flex"}, "flex"), ({"serviceTier": "flex"}, "flex"), ({}, None)],
)
def test_a_tier_of_the_first_event_is_found_without_measuring_the_text(
    begin: dict[str, Any], tier: str | None
) -> None:
    """Asked of each stream, and most name none: what was delivered is not looked through for it."""
    delta = {"choices": [{"delta": {"content": "two words"}}]}
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
    reader = StreamUsage("openai")
    for event in ({**delta, **begin}, delta, {"model": "gpt-x", "choices": [], "usage": usage}):
        reader.feed(json.dumps(event).encode())
    assert (reader.served_model, reader.service_tier) == ("gpt-x", tier)
    assert len(reader._unmeasured) == 3


@pytest.mark.parametrize("events", [1, 2000], ids=["short", "long"])
def test_a_cut_stream_is_served_by_what_its_first_event_names(events: int) -> None:
    for tier, name in (("service_tier", "flex"), ("service_tier", None)):
        said = {"model": "served-x", tier: name, **chat(WORDS)}
        reader = stream("openai", said, *[chat(WORDS)] * events)
        assert (reader.served_model, reader.service_tier) == ("served-x", name)


def test_a_first_event_that_cannot_be_read_names_nobody() -> None:
    for first in (b'{"model": "x"', b"[1]", b""):
        reader = StreamUsage("openai")
        reader.measure(first)
        assert (reader.served_model, reader.service_tier) == (None, None)


def test_the_usage_chunk_is_known_without_its_empty_choices() -> None:
    chunk = {"object": "chat.completion.chunk", "usage": total(7, 1)}
    assert is_usage_only(chunk)
    assert is_usage_only({**chunk, "choices": None})
    assert not is_usage_only({**chunk, "choices": [{"delta": {"content": "hi"}}]})
    assert not is_usage_only(delta(output_tokens=3))
    assert not is_usage_only({"usageMetadata": {}, "usage": None})
