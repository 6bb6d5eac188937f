"""What holds for every verdict, whatever a provider sends."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.classify import (
    Cause,
    Context,
    Fault,
    Observation,
    Phase,
    StreamEvent,
    classify,
)
from controlplane.domain.classify.lookup import BY_STATUS
from controlplane.domain.classify.providers import ROWS
from controlplane.domain.classify.rules import RULES
from controlplane.domain.classify.signals import read_signals
from controlplane.domain.error_body import MOST_OBJECTS, objects
from controlplane.domain.verdict import Kind, Scope

WORDS = st.sampled_from(
    [
        "error", "code", "type", "message", "status", "details", "choices", "finish_reason",
        "candidates", "finishReason", "response", "retryDelay", "base_resp", "status_code",
        "rate_limit_exceeded", "insufficient_quota", "overloaded_error", "content_filter",
        "promptFeedback", "blockReason", "raw", "metadata", "errors", "429", "1300", "PerDay",
        "model not found", "Limit 5, Requested 9", "try again in 5s", "error code: 1015",
        "Response", "Error", "Code", "error_code", "success", "stop_reason", "refusal", "MESSAGE",
        "malformed_function_call", "usageMetadata", "1301", "18", '{"error": {"code": 429}}', "{[",
    ]
)  # fmt: skip
TEXT = WORDS | st.text(max_size=30)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=15,
)
BODIES = JSON | TEXT | JSON.map(json.dumps) | st.binary(max_size=40)
HEADERS = st.dictionaries(
    st.sampled_from(
        [
            "content-type",
            "retry-after",
            "x-amzn-errortype",
            "X-Should-Retry",
            "Date",
            "RateLimit",
            "cf-mitigated",
            "x-amzn-waf-action",
        ]
    )
    | st.text(max_size=10),
    TEXT
    | st.sampled_from(["true", "false", "5", "text/html", "application/json", "challenge"])
    | st.sampled_from(['"a";r=0;t=5', ["5", "20"], b"5"]),
    max_size=4,
)
EVENTS = st.lists(st.builds(StreamEvent, st.none() | TEXT, BODIES, st.none() | TEXT), max_size=5)
SECONDS = st.none() | st.floats(0, 1000)
OBSERVATIONS = st.builds(
    Observation,
    provider=st.sampled_from(["openai", "gemini", "bedrock", "openrouter", "minimax", "zhipu", ""]),
    now=st.just(datetime(2026, 1, 1, tzinfo=UTC)),
    status=st.none() | st.sampled_from([200, 204, 302, *BY_STATUS]) | st.integers(100, 999),
    headers=HEADERS,
    body=BODIES,
    stream=st.none() | EVENTS,
    fault=st.none()
    | st.builds(
        Fault,
        st.sampled_from(Phase),
        st.sampled_from(Cause),
        st.booleans(),
        st.none() | st.integers(0, 10),
        st.booleans(),
    ),
    context=st.builds(
        Context, st.booleans(), st.integers(0, 3), st.booleans(), SECONDS, SECONDS, SECONDS
    ),
)


@given(OBSERVATIONS)
def test_it_keeps_its_promises_on_any_input(seen: Observation) -> None:
    verdict = classify(seen)
    assert verdict.reason in RULES
    assert verdict.retry_after_s is None or (
        verdict.retry_after_s >= 0 and math.isfinite(verdict.retry_after_s)
    )
    assert verdict.scope is not Scope.NONE
    if seen.context.bytes_sent_to_client:
        assert not verdict.retryable
        assert verdict.kind not in (Kind.RETRYABLE, Kind.PERMANENT)
    else:
        assert verdict.kind is not Kind.PARTIAL
    if not seen.context.client_connected:
        assert verdict.kind is Kind.CLIENT_CANCELLED
    if verdict.kind in (
        Kind.CLIENT_CANCELLED,
        Kind.CLIENT_DEADLINE,
        Kind.LOCAL_FAULT,
        Kind.SUCCESS,
    ):
        assert not verdict.counts_against_breaker
    if verdict.kind is Kind.RETRYABLE:
        assert verdict.retryable
    if verdict.kind not in (Kind.RETRYABLE, Kind.LOCAL_FAULT):
        assert not verdict.retryable
    if verdict.scope is Scope.REQUEST:
        assert not verdict.counts_against_breaker
    assert classify(seen) == verdict


@given(st.integers(200, 999), BODIES)
def test_it_calls_no_error_status_a_success(status: int, body: Any) -> None:
    verdict = classify(
        Observation("openai", datetime(2026, 1, 1, tzinfo=UTC), status=status, body=body)
    )
    assert status < 300 or not verdict.ok


MIB_8 = 8 * 2**20


@pytest.mark.parametrize(
    "body",
    [
        "[" * MIB_8,
        '{"a":' * (MIB_8 // 5),
        "try again in " * (MIB_8 // 13),
        b"\xff" * MIB_8,
        json.dumps(
            {"errors": [{"code": f"c{n}", "message": "model " * 20} for n in range(30_000)]}
        ),
    ],
    ids=["brackets", "objects", "words", "bytes", "errors"],
)
def test_it_looks_at_a_bounded_part_of_a_hostile_body(body: Any) -> None:
    signals = read_signals({}, body)
    assert len(signals.codes) <= 4 * MOST_OBJECTS
    assert len(signals.message) <= 8_000
    seen = Observation("openai", datetime(2026, 1, 1, tzinfo=UTC), status=500, body=body)
    assert classify(seen).counts_against_breaker


@given(JSON)
def test_a_walk_through_a_body_ends(body: Any) -> None:
    assert len(list(objects(body))) <= MOST_OBJECTS
    assert len(list(objects([body] * 60))) <= MOST_OBJECTS


def test_every_row_and_status_names_a_rule() -> None:
    assert {row.reason for row in ROWS} | set(BY_STATUS.values()) <= RULES.keys()
