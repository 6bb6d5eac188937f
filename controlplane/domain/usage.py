"""From what a provider's answer says it used to disjoint token counts.

Invariants: a count is None (not known) or at least 0, never an invented 0; input, cached_read and
cache_write do not overlap; output includes reasoning; an estimate is marked as one. Counts are
whole tokens; ``usage_shapes`` knows the shapes in which they come.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from controlplane.domain.usage_counts import Tokens
from controlplane.domain.usage_shapes import SHAPES, counted, plain

__all__ = [
    "NOTHING",
    "UNKNOWN",
    "Served",
    "Tokens",
    "client_asked_for_usage",
    "estimate_tokens",
    "fill",
    "find_usage",
    "is_usage_only",
    "only_counted",
    "served",
    "tokens",
]

NOTHING = Tokens(0, 0, 0, 0, 0)
UNKNOWN = Tokens(None, None, None, None, None)
_BYTES_PER_TOKEN = 4
_EMBEDDINGS = ("data", "embeddings", "results")
_ON_DEMAND = "on_demand_"


class Served(NamedTuple):
    """Who answered, in the provider's words; None where it does not say."""

    model: str | None = None
    tier: str | None = None


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
    found = _read(provider, usage) if usage is not None else None
    if found is None:
        found = UNKNOWN._replace(cached_read=0, cache_write=0, reasoning_in_output=0)
    return fill(found, prompt_estimate=prompt_estimate, output_estimate=output_estimate)


def _read(provider: str, answer: Mapping[str, Any]) -> Tokens | None:
    if (result := plain(answer)) is not None:
        return result
    usage = find_usage(answer)
    if usage is None:
        return None
    result = plain(usage) or counted(provider, usage)
    if result is None and any(isinstance(answer.get(name), list) for name in _EMBEDDINGS):
        # Some count embeddings in one number, which can only be their input.
        total = counted(provider, {"prompt_tokens": usage.get("total_tokens")})
        result = total and total._replace(output=0)
    return result


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
    choices = answer.get("choices")
    if isinstance(choices, list):
        for choice in choices:
            inner = choice.get("usage") if isinstance(choice, dict) else None
            if inner and isinstance(inner, dict):
                return inner
    for name in ("message", "response", "x_groq", "metadata", "meta", "delta", "result"):
        inner = answer.get(name)
        if isinstance(inner, dict):
            found = find_usage(inner)
            if found is not None:
                return found
    return answer if any(name in answer for name, _ in SHAPES) else None


def served(answer: Mapping[str, Any]) -> Served:
    """The model and the service tier that an answer or an event of a stream names.

    The tier is where the provider bills by it: beside the usage, inside it, or in an object.
    """
    model, tier = _named_in(answer)
    for name in ("message", "response"):
        inner = answer.get(name)
        if isinstance(inner, dict):
            inner_model, inner_tier = _named_in(inner)
            model, tier = inner_model or model, inner_tier or tier
    return Served(model, tier)


def _named_in(holder: Mapping[str, Any]) -> tuple[str | None, str | None]:
    model = holder.get("model") or holder.get("modelVersion")
    tier = holder.get("service_tier") or holder.get("serviceTier")
    if not tier:
        usage = holder.get("usage") or holder.get("usageMetadata")
        if isinstance(usage, dict):
            tier = usage.get("service_tier") or usage.get("serviceTier") or usage.get("trafficType")
    if isinstance(tier, dict):
        tier = tier.get("type")
    return (
        model if isinstance(model, str) and model else None,
        tier.lower().removeprefix(_ON_DEMAND) if isinstance(tier, str) and tier else None,
    )


def only_counted(answer: Mapping[str, Any]) -> bool:
    """True of the answer to a question how long a prompt is, which providers do not bill."""
    return "input_tokens" in answer and "output_tokens" not in answer and "usage" not in answer


def client_asked_for_usage(request: Mapping[str, Any]) -> bool:
    """True when the client itself asked for the usage chunk of an OpenAI stream."""
    options = request.get("stream_options")
    return isinstance(options, Mapping) and options.get("include_usage") is True


def is_usage_only(event: Mapping[str, Any]) -> bool:
    """An OpenAI stream's usage chunk: not forwarded to a client that did not ask for it."""
    if event.get("choices") or not isinstance(event.get("usage"), dict):
        return False
    # Some leave the empty choices out, which a client that reads them survives no better.
    return event.get("choices") == [] or event.get("object") == "chat.completion.chunk"
