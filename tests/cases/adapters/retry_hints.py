"""Retry-hint cases through ``domain.hints``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from controlplane.domain.hints import decide, parse_hint, sleep_s

NOT_ASSERTED = {"sdk_behaviour": ""}


def run(case: dict[str, Any]) -> dict[str, Any]:
    """``must_not_raise`` holds because a raise fails the test before any result is compared."""
    given = case["input"]
    policy = given.get("policy") or {}
    now = datetime.fromisoformat(given["now"])
    hint = parse_hint(
        given.get("headers") or {},
        given.get("body"),
        now=now if now.tzinfo else now.replace(tzinfo=UTC),
        status=given.get("status"),
        protocol=given.get("protocol") or "http",
    )
    limit = policy.get("max_wait_s", 120)
    slept = sleep_s(hint, limit, policy.get("buffer_s", 0))
    return {
        "hint_s": hint.hint_s,
        "from": hint.source,
        "action": decide(hint, limit).value,
        "sleep_s": slept,
        "must_not_raise": True,
        "must_not_sleep_negative": slept >= 0,
    }
