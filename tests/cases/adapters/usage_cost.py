"""Usage and cost cases: tokens through ``domain.usage``.

The cost part (``COST_FIELDS``) belongs to ``domain.pricing``: give ``cost_of`` a body that calls it
with the attempts' ``Tokens``, return its fields from ``run`` and take them out of ``NOT_ASSERTED``.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from controlplane.domain.classify import Context, Observation, classify
from controlplane.domain.usage import NOTHING, UNKNOWN, Tokens, client_asked_for_usage, tokens
from controlplane.domain.usage_stream import StreamUsage, total
from controlplane.domain.verdict import Kind

COST_FIELDS = ("cost", "cost_status", "price_key", "cost_must_be_positive")
ROLLUP_FIELDS = ("logical_requests", "retries", "retry_ratio")
NOT_ASSERTED = {
    **dict.fromkeys(COST_FIELDS, "domain.pricing answers it"),
    **dict.fromkeys(ROLLUP_FIELDS, "domain.rollup answers it"),
}
OUTCOMES = {Kind.SUCCESS: "success", Kind.CLIENT_CANCELLED: "client_cancelled"}


def run(case: dict[str, Any]) -> dict[str, Any]:
    """Tokens over the attempts of one request, each attempt counted once by its id."""
    given = case["input"]
    attempts = {attempt["attempt_id"]: attempt for attempt in given["attempts"]}
    counted = total(tokens_of(given["provider"], attempt) for attempt in attempts.values())
    unsure = counted.estimated and counted.output is not None
    return {
        "tokens": {
            "input": counted.input,
            "cached_read": counted.cached_read,
            "cache_write": counted.cache_write,
            # null in a case means "to be estimated": the estimate stands in output_tokens.
            "output": None if unsure else counted.output,
            "reasoning_in_output": counted.reasoning_in_output,
        },
        "output_tokens": counted.output,
        "ledger_rows": len(attempts),
        "outcome": outcome_of(given["provider"], list(attempts.values())[-1]),
        "forward_usage_chunk": client_asked_for_usage(given.get("request") or {}),
    }


def tokens_of(provider: str, attempt: dict[str, Any]) -> Tokens:
    """What one attempt used, as the gateway would count it."""
    prompt = attempt.get("request_prompt_tokens_estimate")
    if attempt.get("stream") is not None:
        reader = StreamUsage(provider)
        for event in attempt["stream"]:
            reader.feed(event.get("data"))
        return reader.result(prompt_estimate=prompt)
    if attempt.get("usage") is not None:
        return tokens(provider, attempt["usage"], prompt_estimate=prompt)
    if attempt.get("status") is None:
        return UNKNOWN
    return NOTHING if attempt["status"] >= 400 else tokens(provider, None, prompt_estimate=prompt)


def outcome_of(provider: str, attempt: dict[str, Any]) -> str:
    """How the request ended: the outcome of its last attempt."""
    left = str(attempt.get("ended") or "").startswith("client_disconnect")
    verdict = classify(
        Observation(
            provider,
            datetime(2026, 1, 1, tzinfo=UTC),
            status=attempt.get("status"),
            body={"error": attempt["error"]} if attempt.get("error") else None,
            context=Context(client_connected=not left),
        )
    )
    return OUTCOMES.get(verdict.kind, "failed")
