"""A long plain answer: judged and counted as a short one is, without being decoded whole."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from controlplane.domain import usage
from controlplane.domain.classify import Observation, classify
from gateway.attempt import OUTLINED_FROM, Seen

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONG = "x" * OUTLINED_FROM
COUNTED = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def choice(**ended: Any) -> dict[str, Any]:
    return {"index": 0, "message": {"role": "assistant", "content": LONG}, **ended}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"choices": [choice(finish_reason="stop")], "usage": COUNTED}, "ok"),
        ({"choices": [choice(finish_reason="content_filter")]}, "content_filtered"),
        ({"choices": [choice(error={"code": 429, "message": "slow"})]}, "rate_limited"),
        ({"candidates": [choice(finishReason="SAFETY")]}, "content_filtered"),
        ({"data": [{"embedding": LONG}], "model": "m", "usage": COUNTED}, "ok"),
        ({"data": [{"embedding": LONG}], "usage": {"total_tokens": 7}}, "ok"),
        ({"error": {"code": 503, "message": "x"}, "debug": LONG}, "overloaded"),
        ([LONG], "ok"),
    ],
)
def test_it_is_judged_and_counted_like_a_short_one(body: Any, reason: str) -> None:
    parsed = Seen(status=200, body=b" " + msgspec.json.encode(body)).parsed()
    assert classify(Observation("openai", NOW, status=200, body=parsed)).reason == reason
    if isinstance(body, dict):
        assert usage.tokens("openai", parsed) == usage.tokens("openai", body)
        assert parsed.get("model") == body.get("model")


def test_no_json_stays_text() -> None:
    cut = Seen(status=200, body=b'{"choices":[{"message":{"content":"' + LONG.encode()).parsed()
    assert classify(Observation("openai", NOW, status=200, body=cut)).reason == "malformed_answer"


def test_its_memory_does_not_grow_with_what_it_brings() -> None:
    body = b'{"data":[' + b"{}," * OUTLINED_FROM + b'{}],"usage":{"prompt_tokens":3}}'
    seen = Seen(status=200, body=body)
    tracemalloc.start()
    try:
        parsed = seen.parsed()
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert parsed == {"data": [], "usage": {"prompt_tokens": 3}}
    assert most < OUTLINED_FROM
