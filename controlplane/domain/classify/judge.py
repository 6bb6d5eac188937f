"""One attempt, one verdict.

The questions, in order: has the client gone? did the answer say that it failed (status, body,
stream)? did the connection fail? is the answer whole? Only then is it a success.

Invariants: once output has reached the client the verdict is never retryable; a client's leaving
and its own deadline never count against a breaker; nothing raises, whatever a provider sends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controlplane.domain.classify.faults import reason_of
from controlplane.domain.classify.lookup import look_up
from controlplane.domain.classify.observation import Observation
from controlplane.domain.classify.providers import Row
from controlplane.domain.classify.rules import RULES
from controlplane.domain.classify.signals import is_html, read_signals, was_stopped
from controlplane.domain.classify.stream import (
    BROKEN,
    FILTERED,
    StreamProgress,
    broken,
    finish_reasons,
    stated_failure,
    stop_reason,
)
from controlplane.domain.error_body import parse_body
from controlplane.domain.hints import Hint, parse_hint
from controlplane.domain.pace import fold_names
from controlplane.domain.verdict import Kind, Scope, Verdict

_NO_HINT = Hint()
# A wait on the refusal of a key holds for that key, whatever status the refusal came under.
_WAITED_FOR = frozenset({"rate_limited", "quota_exhausted", "spend_cap"})
# All that is in a Google answer without a candidate; an embedding has a member of its own.
_NO_CANDIDATE = frozenset({"usageMetadata", "modelVersion", "responseId", "createTime"})
_OK = Verdict(Kind.SUCCESS, "ok", False, False, RULES["ok"].scope)


def classify(observation: Observation) -> Verdict:
    """The verdict on one attempt. Unknown answers get the defaults listed in ``providers``."""
    context = observation.context
    if not context.client_connected:
        return _verdict("client_cancelled", observation)
    status = observation.status
    if status is not None and not 200 <= status < 300:
        return _error_answer(observation, status, parse_body(observation.body))
    stream = observation.stream
    if stream is not None and not isinstance(stream, StreamProgress):
        stream = StreamProgress.of(stream)
    if stream is not None and stream.error is not None:
        return _error_answer(observation, 200, stream.error)
    finished = stream is not None and stream.finished
    if observation.fault is not None and not finished:
        return _verdict(reason_of(observation.fault, context), observation)
    if status is None:
        return _verdict("ok" if finished else "no_observation", observation)
    if stream is not None:
        if not stream.finished:
            return _verdict("truncated_stream", observation)
        return _verdict("content_filtered" if stream.filtered else "ok", observation)
    return _good_status(observation, status)


def _good_status(observation: Observation, status: int) -> Verdict:
    """A 2xx whole answer: the error may still be inside it, or it may not be an answer."""
    body = parse_body(observation.body)
    if isinstance(body, list):  # Google's streams without events
        failed = next(filter(None, map(_failure_of_member, body[:50])), None)
        if failed is not None:
            return _error_answer(observation, 200, failed)
    elif isinstance(body, Mapping):
        reasons = finish_reasons(body)
        if stop := stop_reason(body):
            reasons.append(stop)
        failed = _failure_inside(body, reasons)
        if failed is not None:
            return _error_answer(observation, 200, failed)
        if not FILTERED.isdisjoint(reasons):
            return _verdict("content_filtered", observation)
    elif isinstance(body, str):
        headers = fold_names(observation.headers)
        if was_stopped(headers):
            return _verdict("blocked_at_edge", observation)
        content_type = headers.get("content-type", "").lower()
        is_json = "json" in content_type
        cut = not content_type.startswith("text/") and _is_cut(body)
        if is_html(headers, body) or (is_json and status != 204) or cut:
            return _verdict("malformed_answer", observation)
        if not body.strip() and status != 204:
            return _verdict("malformed_answer", observation)
    return _verdict("ok", observation)


def _failure_of_member(member: Any) -> Mapping[str, Any] | None:
    stated = member.get("error") if isinstance(member, Mapping) else None
    return member if isinstance(stated, Mapping) and stated else None


def _failure_inside(body: Mapping[str, Any], reasons: list[str]) -> Mapping[str, Any] | None:
    """The error that a 200's body carries, or None for a good answer.

    OpenAI's Responses carry ``"error": null`` when they are good.
    """
    if body.get("error") or body.get("errors") or "error" in (body.get("type"), body.get("object")):
        return body
    if body.get("status") == "failed":
        return {"code": "server_error", **body}
    stated = stated_failure(body)
    if stated is not None:
        return stated
    choices = body.get("choices")
    for choice in choices[:20] if isinstance(choices, list) else ():
        if isinstance(choice, dict) and choice.get("error"):
            return choice
    for reason in reasons:
        if reason in BROKEN:
            return broken(reason)
    empty = ("choices" in body and not choices) or ("candidates" in body and not body["candidates"])
    if empty or ("usageMetadata" in body and body.keys() <= _NO_CANDIDATE):
        return broken("error")
    return None


def _is_cut(body: str) -> bool:
    """True for the begin of an object. One object a line is whole when its first line is."""
    begin = body.lstrip()
    return begin.startswith("{") and isinstance(parse_body(begin.partition("\n")[0]), str)


def _error_answer(observation: Observation, status: int, body: Any) -> Verdict:
    """Codes and messages before the status; the status that a 200's error states, before 200."""
    headers = fold_names(observation.headers)
    signals = read_signals(headers, body)
    if status == 200 and signals.inner_status is not None:
        status = signals.inner_status
    row = look_up(observation.provider, status, signals)
    if isinstance(body, dict) and not FILTERED.isdisjoint(finish_reasons(body)):
        row = Row("content_filtered")  # a completion that was held back, under an error status
    hint = parse_hint(
        headers, body, now=observation.now, status=429 if row.reason in _WAITED_FOR else status
    )
    return _verdict(row.reason, observation, row=row, hint=hint)


def _verdict(
    reason: str, observation: Observation, *, row: Row | None = None, hint: Hint = _NO_HINT
) -> Verdict:
    if reason == "ok":
        return _OK
    rule = RULES[reason]
    kind, retryable, counts = rule.kind, rule.retryable, rule.counts
    if hint.server_says is False and retryable:
        # The server's outright no beats what the status promises; the failure is as real.
        kind, retryable = Kind.PERMANENT, False
    elif hint.server_says is True and reason == "invalid_request":
        kind, retryable = Kind.RETRYABLE, True
    if observation.context.bytes_sent_to_client > 0:
        retryable = False
        if kind in (Kind.RETRYABLE, Kind.PERMANENT):
            kind = Kind.PARTIAL
    scope: Scope = row.scope if row is not None and row.scope is not None else rule.scope
    return Verdict(kind, reason, retryable, counts, scope, hint.hint_s)
