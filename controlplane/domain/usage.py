"""From what a provider says it used to disjoint token counts, for whole answers and streams.

Counts are whole tokens. The shapes are told apart by their own field names, not by the provider's
name, because compatible servers answer in each other's shapes.

Invariants: a count is None (not known) or at least 0, never an invented 0; input, cached_read and
cache_write do not overlap; output includes reasoning; an estimate is marked as one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from controlplane.domain.usage_counts import MOST_TOKENS, Counts

_BYTES_PER_TOKEN = 4


class Tokens(NamedTuple):
    """Disjoint counts of one attempt; None is not known.

    ``estimated``: some count is our estimate, not the provider's. ``invalid``: the provider's own
    numbers contradict each other or cannot be; what could be kept of them was kept.
    """

    input: int | None
    cached_read: int | None
    cache_write: int | None
    output: int | None
    reasoning_in_output: int | None
    estimated: bool = False
    invalid: bool = False


NOTHING = Tokens(0, 0, 0, 0, 0)
UNKNOWN = Tokens(None, None, None, None, None)


def tokens(
    provider: str,
    usage: Mapping[str, Any] | None,
    *,
    prompt_estimate: int | None = None,
    output_estimate: int | None = None,
) -> Tokens:
    """Counts from a ``usage`` object (or a whole answer that holds one).

    Without usable usage the estimates stand in and the result is marked; without them it is None.
    """
    counted = _plain(usage) if usage is not None else None
    if counted is None and usage is not None:
        found = find_usage(usage)
        counted = (_plain(found) or _counted(provider, found)) if found else None
    if counted is None:
        counted = UNKNOWN._replace(cached_read=0, cache_write=0, reasoning_in_output=0)
    return fill(counted, prompt_estimate=prompt_estimate, output_estimate=output_estimate)


def fill(
    counted: Tokens, *, prompt_estimate: int | None = None, output_estimate: int | None = None
) -> Tokens:
    """Put estimates where a count is not known. An invalid count is never papered over."""
    if counted.invalid:
        return counted
    given_input = counted.input is None and prompt_estimate is not None
    given_output = counted.output is None and output_estimate is not None
    if not (given_input or given_output):
        return counted
    if output_estimate is not None:
        output_estimate = max(output_estimate, counted.reasoning_in_output or 0)
    return counted._replace(
        input=prompt_estimate if given_input else counted.input,
        output=output_estimate if given_output else counted.output,
        estimated=counted.estimated or given_input or given_output,
    )


def estimate_tokens(size_bytes: int, words: int = 0) -> int:
    """About four UTF-8 bytes a token for prose, and not fewer tokens than words."""
    return max(math.ceil(size_bytes / _BYTES_PER_TOKEN), words)


def find_usage(answer: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The usage object inside an answer or a stream event; ``answer`` itself when it is one."""
    for name in ("usage", "usageMetadata", "amazon-bedrock-invocationMetrics"):
        inner = answer.get(name)
        if inner and isinstance(inner, dict):
            return inner
    for name in ("message", "response", "x_groq", "metadata", "meta", "delta"):
        inner = answer.get(name)
        if isinstance(inner, dict):
            found = find_usage(inner)
            if found is not None:
                return found
    return answer if any(name in answer for name, _ in _SHAPES) else None


def client_asked_for_usage(request: Mapping[str, Any]) -> bool:
    """True when the client itself asked for the usage chunk of an OpenAI stream."""
    options = request.get("stream_options")
    return isinstance(options, Mapping) and options.get("include_usage") is True


def is_usage_only(event: Mapping[str, Any]) -> bool:
    """An OpenAI stream's usage chunk: not forwarded to a client that did not ask for it."""
    return event.get("choices") == [] and isinstance(event.get("usage"), dict)


def _counted(provider: str, usage: Mapping[str, Any]) -> Tokens | None:
    counts = Counts(usage)
    for name, shape in _SHAPES:
        if name in usage:
            result = shape(provider.lower(), counts)
            break
    else:
        return None
    if not counts.invalid and not result.input and not result.output and not result.cached_read:
        # A call that worked and used nothing: the provider did not count.
        return None
    return result._replace(invalid=counts.invalid)


def _plain(usage: Mapping[str, Any]) -> Tokens | None:
    """What ``_openai_chat`` says of counts that are whole and add up; None for all others.

    Nearly every answer is of this kind, and it was measured at 2 us here against 30 there.
    """
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    read = usage.get("prompt_tokens_details", _NO_DETAILS)
    written = usage.get("completion_tokens_details", _NO_DETAILS)
    if not type(prompt) is type(completion) is type(usage.get("total_tokens")) is int:
        return None
    if not type(read) is type(written) is dict or not usage.keys().isdisjoint(_NOT_PLAIN):
        return None
    cached, reasoning = read.get("cached_tokens", 0), written.get("reasoning_tokens", 0)
    if (
        not type(cached) is type(reasoning) is int
        or not 0 <= cached <= prompt <= MOST_TOKENS
        or not 0 <= reasoning <= completion <= MOST_TOKENS
        or not 0 < usage["total_tokens"] == prompt + completion
        or not read.keys().isdisjoint(_WRITTEN)
    ):
        return None
    return Tokens(prompt - cached, cached, 0, completion, reasoning)


def _openai_chat(provider: str, c: Counts) -> Tokens:
    """Cached tokens are part of ``prompt_tokens``; some leave reasoning out of the completion."""
    prompt, completion = c.get("prompt_tokens"), c.get("completion_tokens")
    details = "prompt_tokens_details"
    cached = _first(
        c.get("cached_tokens", within=details),
        c.get("cached_tokens", "cache_read_input_tokens", "prompt_cache_hit_tokens"),
    )
    written = _first(
        c.get(*_WRITTEN, within=details),
        c.get("cache_creation_input_tokens"),
    )
    reasoning = _first(
        c.get("reasoning_tokens", within="completion_tokens_details"), c.get("reasoning_tokens")
    )
    output, reasoning = _with_reasoning(provider, prompt, completion, reasoning, c)
    return Tokens(c.without(prompt, cached, written), cached, written, output, reasoning)


def _with_reasoning(
    provider: str, prompt: int | None, completion: int | None, reasoning: int, c: Counts
) -> tuple[int | None, int]:
    """Output including reasoning. The total tells whether ``completion`` has it already."""
    total = c.get("total_tokens")
    if completion is None:
        if total is None or prompt is None or total < prompt or c.invalid:
            return None, reasoning
        # Embeddings have no completion, and their total says so: no output is to be estimated.
        return total - prompt, min(reasoning, total - prompt)
    hidden = total - (prompt or 0) - completion if total is not None else 0
    left_out = reasoning > completion if total is None else hidden == reasoning
    if reasoning and left_out:
        return completion + reasoning, reasoning
    if hidden > 0 and not reasoning and "gemini" in provider:
        return completion + hidden, hidden
    c.invalid = c.invalid or reasoning > completion
    return completion, min(reasoning, completion)


def _input_output(provider: str, c: Counts) -> Tokens:
    """OpenAI's Responses (cached is part of the input) and Anthropic's Messages (disjoint)."""
    entered, output = c.get("input_tokens"), c.get("output_tokens")
    reasoning = _first(c.get("reasoning_tokens", "thinking_tokens", within="output_tokens_details"))
    if "input_tokens_details" in c.usage or "total_tokens" in c.usage:
        details = "input_tokens_details"
        cached = _first(c.get("cached_tokens", within=details))
        written = _first(c.get("cache_write_tokens", within=details))
        entered = c.without(entered, cached, written)
    else:
        cached = _first(c.get("cache_read_input_tokens"))
        written = _first(c.get("cache_creation_input_tokens"), _written_by_age(c))
    if output is not None and reasoning > output:
        c.invalid, reasoning = True, output
    return Tokens(entered, cached, written, output, reasoning)


def _written_by_age(c: Counts) -> int | None:
    ages = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
    found = [c.get(age, within="cache_creation") for age in ages]
    return sum(n or 0 for n in found) if any(n is not None for n in found) else None


def _gemini(provider: str, c: Counts) -> Tokens:
    """Thoughts stand beside the candidates, unless the total shows that they are inside."""
    prompt, candidates = c.get("promptTokenCount"), c.get("candidatesTokenCount")
    cached, thoughts = _first(c.get("cachedContentTokenCount")), _first(c.get("thoughtsTokenCount"))
    tools, total = _first(c.get("toolUsePromptTokenCount")), c.get("totalTokenCount")
    if candidates is None and total is not None and prompt is not None and not c.invalid:
        candidates = max(total - prompt - tools - thoughts, 0)
    if candidates is None and thoughts:
        candidates = 0  # stopped while still thinking
    output = candidates
    if candidates is not None:
        inside = total is not None and total == (prompt or 0) + tools + candidates
        output = candidates if inside else candidates + thoughts
        thoughts = min(thoughts, output)
    entered = c.without(prompt, cached)
    return Tokens(None if entered is None else entered + tools, cached, 0, output, thoughts)


def _bedrock(provider: str, c: Counts) -> Tokens:
    return Tokens(
        c.get("inputTokens", "inputTokenCount"),
        _first(c.get("cacheReadInputTokens", "cacheReadInputTokenCount")),
        _first(c.get("cacheWriteInputTokens", "cacheWriteInputTokenCount")),
        c.get("outputTokens", "outputTokenCount"),
        0,
    )


def _cohere(provider: str, c: Counts) -> Tokens:
    part = "tokens" if "tokens" in c.usage else "billed_units"
    entered, output = c.get("input_tokens", within=part), c.get("output_tokens", within=part)
    return Tokens(entered, 0, 0, output, 0)


def _local_server(provider: str, c: Counts) -> Tokens:
    return Tokens(c.get("prompt_eval_count"), 0, 0, c.get("eval_count"), 0)


def _first(*found: int | None) -> int:
    return next((n for n in found if n is not None), 0)


_WRITTEN = ("cache_write_tokens", "cache_creation_tokens")
_NO_DETAILS: Mapping[str, Any] = {}
# Fields that say something of their own about the counts beside them.
_NOT_PLAIN = frozenset(
    {"cached_tokens", "cache_read_input_tokens", "prompt_cache_hit_tokens", "reasoning_tokens"}
    | {"cache_creation_input_tokens"}
    # An object inside, whose counts come before those beside it.
    | {"usage", "usageMetadata", "amazon-bedrock-invocationMetrics"}
    | {"message", "response", "x_groq", "metadata", "meta", "delta"}
)
# The first field that is there names the shape.
_SHAPES: tuple[tuple[str, Callable[[str, Counts], Tokens]], ...] = (
    ("prompt_tokens", _openai_chat),
    ("completion_tokens", _openai_chat),
    ("input_tokens", _input_output),
    ("output_tokens", _input_output),
    ("promptTokenCount", _gemini),
    ("candidatesTokenCount", _gemini),
    ("inputTokens", _bedrock),
    ("inputTokenCount", _bedrock),
    ("tokens", _cohere),
    ("billed_units", _cohere),
    ("prompt_eval_count", _local_server),
)
