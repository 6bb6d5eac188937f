"""What an attempt came to, in the domain's words: verdict, tokens, billing.

Invariant: a count that the provider gave is never replaced, one that it did not give is estimated
and marked; what was never sent, or was answered with an error, is not billed (design 4.6).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from controlplane.domain import usage
from controlplane.domain.circuit import Circuit
from controlplane.domain.classify import Context, Observation, classify
from controlplane.domain.pace import remaining
from controlplane.domain.usage_stream import delivered_tokens
from controlplane.domain.verdict import Verdict
from controlplane.wire.events import Billing
from gateway.asked import Asked
from gateway.attempt import Limits, Seen
from gateway.opaque import Opaque


class Judgement(Struct, frozen=True, gc=False):
    """One attempt, judged. ``rest_s``: for how long a good answer says its key must rest."""

    verdict: Verdict
    tokens: usage.Tokens | None
    billing: Billing
    served_model: str | None
    service_tier: str | None
    rest_s: float


def observation_of(
    circuit: Circuit, seen: Seen, limits: Limits, *, sent: int, connected: bool, now: datetime
) -> Observation:
    """What ``classify`` is to look at. ``sent``: bytes of output that the client has."""
    stream = seen.stream
    return Observation(
        provider=circuit.provider,
        model=circuit.model,
        now=now,
        status=seen.status,
        headers=seen.headers,
        body=seen.parsed() if stream is None and not seen.stored else None,
        stream=None if stream is None else stream.progress,
        fault=seen.fault,
        context=Context(
            client_connected=connected and not seen.client_gone,
            bytes_sent_to_client=sent,
            streaming=stream is not None,
            caller_deadline_s=limits.left_s,
            elapsed_s=seen.ended_s,
            provider_header_timeout_s=limits.provider_s,
        ),
    )


def judged(observation: Observation, seen: Seen, asked: Asked | Opaque) -> Judgement:
    """The verdict, and what the attempt used."""
    verdict = classify(observation)
    body = observation.body if isinstance(observation.body, Mapping) else None
    tokens, billing = _used(observation, body, seen, asked, verdict)
    model, tier = _served(body, seen)
    return Judgement(verdict, tokens, billing, model, tier, _rest_s(observation, verdict))


def _used(
    observation: Observation,
    body: Mapping[str, Any] | None,
    seen: Seen,
    asked: Asked | Opaque,
    verdict: Verdict,
) -> tuple[usage.Tokens | None, Billing]:
    provider = observation.provider
    if isinstance(asked, Opaque):
        return asked.used(provider, body, verdict=verdict, left_us=seen.progress.left_us)
    if seen.stream is not None:
        tokens = seen.stream.usage.result()
        if tokens.input is None:
            tokens = seen.stream.usage.result(prompt_estimate=asked.prompt_estimate())
        if not tokens.estimated:
            return tokens, "billed"
        if seen.stream.progress.error is not None and not observation.context.bytes_sent_to_client:
            return None, "not_billed"
        return tokens, "billed" if verdict.ok else "unknown"
    if seen.status is not None and seen.fault is None:
        if body is not None and usage.only_counted(body):
            return None, "not_billed"
        tokens = usage.tokens(provider, body)
        if tokens.input is None or tokens.output is None:
            output = delivered_tokens(seen.body or b"")
            prompt = asked.prompt_estimate()
            tokens = usage.fill(tokens, prompt_estimate=prompt, output_estimate=output)
        if tokens.estimated and not verdict.ok:
            return None, "not_billed"
        return tokens, "billed"
    if not seen.progress.left_us:
        return None, "not_billed"
    prompt = asked.prompt_estimate()
    return usage.tokens(provider, None, prompt_estimate=prompt, output_estimate=0), "unknown"


def _served(body: Mapping[str, Any] | None, seen: Seen) -> tuple[str | None, str | None]:
    if seen.stream is not None:
        return seen.stream.usage.served_model, seen.stream.usage.service_tier
    return usage.Served() if body is None else usage.served(body)


def _rest_s(observation: Observation, verdict: Verdict) -> float:
    if not verdict.ok or "ratelimit" not in " ".join(observation.headers).lower():
        return 0.0
    pace = remaining(observation.headers, now=observation.now)
    return 0.0 if pace is None else pace.rest_s
