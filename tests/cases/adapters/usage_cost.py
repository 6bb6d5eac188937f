"""Usage and cost cases: tokens through ``domain.usage``, money through ``domain.pricing``, and the
counts of attempts through ``domain.rollup``.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from controlplane.domain.classify import (
    Cause,
    Context,
    Fault,
    Observation,
    Phase,
    StreamEvent,
    classify,
)
from controlplane.domain.pricing import Cost, CostStatus, PriceBook, PriceRow, RateRow
from controlplane.domain.rollup import MinuteSums
from controlplane.domain.usage import NOTHING, Tokens, client_asked_for_usage, served, tokens
from controlplane.domain.usage_stream import StreamUsage, total
from controlplane.domain.verdict import Kind
from controlplane.wire.events import Attempt

BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
KINDS = {"cached_input": "cached_read"}
TIERS = frozenset({"flex", "priority", "batch", "scale", "default", "standard"})
# Nothing of the request had left: by what the case calls the fault, or the phase it stood in.
NEVER_SENT = re.compile(r"refused|unreachable|dns|resolv|connect(?!ion)|tls|pool", re.IGNORECASE)
# The status of a request of several attempts is the least certain one among them.
LEAST_CERTAIN = (
    CostStatus.INVALID_USAGE,
    CostStatus.UNPRICED,
    CostStatus.UNKNOWN,
    CostStatus.ESTIMATED,
    CostStatus.PRICED,
    CostStatus.NOT_BILLED,
)
OUTCOMES = {
    Kind.SUCCESS: "success",
    Kind.PARTIAL: "partial",
    Kind.CLIENT_CANCELLED: "client_cancelled",
}


def run(case: dict[str, Any]) -> dict[str, Any]:
    """Tokens over the attempts of one request, each attempt counted once by its id."""
    given = case["input"]
    attempts: dict[str, dict[str, Any]] = {}
    for place, attempt in enumerate(given["attempts"]):
        # One without an id is one of its own.
        known = attempts.setdefault(str(attempt.get("attempt_id", f"#{place}")), dict(attempt))
        known.update({name: value for name, value in attempt.items() if value is not None})
    counted = total(tokens_of(given["provider"], attempt) for attempt in attempts.values())
    costs = [cost_of(given, attempt) for attempt in attempts.values()]
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
        **summed(costs),
        **counts_of(costs),
    }


def cost_of(given: dict[str, Any], attempt: dict[str, Any]) -> Cost:
    """One attempt through the price book of its case."""
    used = tokens_of(given["provider"], attempt)
    return book_of(given).cost(
        used,
        provider=given["provider"],
        model=given["requested_model"],
        served_model=attempt.get("served_model"),
        tier=tier_of(attempt),
        at=BEGUN,
        billing="not_billed" if used == NOTHING else "billed",
    )


def tier_of(attempt: dict[str, Any]) -> str:
    """The tier that was billed: as the case has it, or as the answer says it."""
    if attempt.get("service_tier"):
        return str(attempt["service_tier"])
    if attempt.get("stream") is not None:
        reader = StreamUsage("")
        for event in attempt["stream"]:
            reader.feed(event.get("data"))
        return reader.service_tier or ""
    return served({"usage": attempt.get("usage")}).tier or ""


def book_of(given: dict[str, Any]) -> PriceBook:
    """The case's table as dated rows; the pound is set to par, so that a rate is always there."""
    rows = [
        (model, tier, KINDS.get(kind, kind), Decimal(str(amount)))
        for key, kinds in given["price_table_per_million"].items()
        for model, tier in [model_and_tier(key)]
        for kind, amount in kinds.items()
        if amount is not None
    ]
    currency = given["currency"]
    return PriceBook(
        [
            PriceRow(i, given["provider"], model, tier, kind, currency, amount, BEGUN)
            for i, (model, tier, kind, amount) in enumerate(rows, 1)
        ],
        [RateRow(1, currency, date(2026, 1, 1), Decimal(1))],
    )


def model_and_tier(key: str) -> tuple[str, str]:
    """A key may end in ``:tier``; models have colons of their own (``llama3:8b``)."""
    model, _, tier = key.rpartition(":")
    return (model, tier) if model and tier in TIERS else (key, "")


def summed(costs: list[Cost]) -> dict[str, Any]:
    """The request's cost: of all its attempts, unknown when that of one is."""
    natives = [cost.native for cost in costs]
    amount = None if None in natives else sum((n for n in natives if n), Decimal(0))
    status = next(s for s in LEAST_CERTAIN if any(cost.status is s for cost in costs))
    sure = amount is not None and status is not CostStatus.ESTIMATED
    return {
        # null in a case with status estimated means "any": cost_must_be_positive says the rest.
        "cost": amount if sure else None,
        "cost_must_be_positive": amount is not None and amount > 0,
        "cost_status": status.value,
        "price_key": next((cost.price_key for cost in costs if cost.price_key), None),
    }


def counts_of(costs: list[Cost]) -> dict[str, Any]:
    """The attempts of one request as the minute's counters see them."""
    counts = MinuteSums()
    for i, cost in enumerate(costs):
        counts.add_attempt(
            Attempt(
                id=UUID(int=i),
                occurred_at=BEGUN,
                request=UUID(int=1),
                ordinal=i + 1,
                role="retry" if i else "first",
                provider="openai",
                model="gpt-4o",
                verdict="success",
                billing="billed",
                served=True,
            ),
            cost,
        )
    return {
        "logical_requests": counts["firsts"],
        "retries": counts["retries"],
        "retry_ratio": Decimal(counts["retries"]) / counts["firsts"],
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
    # An error answer, or a connection that was never made, used nothing; what was sent and then
    # lost is estimated from the prompt, where that is known.
    status, error = attempt.get("status"), attempt.get("error") or {}
    if (status or 0) >= 400 or (status is None and NEVER_SENT.search(str(error))):
        return NOTHING
    lost = None if status is not None or prompt is None else 0
    return tokens(provider, None, prompt_estimate=prompt, output_estimate=lost)


def outcome_of(provider: str, attempt: dict[str, Any]) -> str:
    """How the request ended: the outcome of its last attempt."""
    ended, error = str(attempt.get("ended") or ""), attempt.get("error")
    left = ended.startswith("client_disconnect")
    stream = attempt.get("stream") or []
    lost = stream and (error or (ended and not left))
    broken = lost or any(event.get("event") == "error" or "error" in str(event) for event in stream)
    cause = Cause.TIMEOUT if "timeout" in f"{ended}{error}" else Cause.CLOSED
    verdict = classify(
        Observation(
            provider,
            datetime(2026, 1, 1, tzinfo=UTC),
            status=attempt.get("status"),
            body={"error": error} if error and not stream else None,
            # A whole stream of a case is often shortened to what its counts need.
            stream=[StreamEvent(e.get("event"), e.get("data")) for e in stream] if broken else None,
            fault=Fault(Phase.READING_BODY, cause) if lost else None,
            context=Context(
                client_connected=not left,
                bytes_sent_to_client=delivered(stream) if broken else 0,
            ),
        )
    )
    return OUTCOMES.get(verdict.kind, "failed")


def delivered(stream: list[dict[str, Any]]) -> int:
    """Whether any output had come, as a number."""
    reader = StreamUsage("")
    for event in stream:
        reader.feed(event.get("data"))
    return reader.delivered_tokens
