"""The gates that can stop a call before it is made, and what a closed gate says.

Invariant: a refusal is never an attempt. ``retry_at`` is in the caller's monotonic seconds, the
earliest moment at which asking again can succeed; None when nobody can know.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Gate(StrEnum):
    """What stopped a call that was not made."""

    BREAKER = "breaker"
    OVERRIDE = "override"
    BUDGET = "budget"
    RATE = "rate"
    CONCURRENCY = "concurrency"
    KEY = "key"
    DEADLINE = "deadline"
    POLICY = "policy"
    COST = "cost"


class Refusal(NamedTuple):
    """One closed gate. ``detail`` is a short machine-readable word (a state, a level, a limit)."""

    gate: Gate
    detail: str
    retry_at: float | None = None
