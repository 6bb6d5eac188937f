"""Numbers from the wire turned into the domain's policies, with the field named when one is wrong.

Invariant: nothing that the domain would refuse gets past here; a refusal is ``OutOfRange`` and says
which field. Ratios become whole thousandths, seconds stay seconds.
"""

from __future__ import annotations

from math import isfinite

from controlplane.domain.breaker import BreakerPolicy
from controlplane.domain.budget import BudgetPolicy
from controlplane.domain.ceiling import pounds
from controlplane.domain.limits import RatePolicy
from controlplane.wire.desired import Breaker, Bucket

CEILINGS = ("max_cost_gbp", "max_cost_gbp_per_request", "max_cost_gbp_per_task")
LONGEST_COST_WINDOW_S = 31 * 86_400.0
RAMP_SHARES = (100, 250, 500)
"""Thousandths of full concurrency in the three equal steps of the way back."""


class OutOfRange(ValueError):
    """A number that cannot be enforced. ``field`` is its path in the item."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def breaker_policy(wire: Breaker) -> BreakerPolicy:
    """The domain's policy. Raises ``OutOfRange``."""
    if not 0 <= wire.ramp_seconds <= 3600:
        raise OutOfRange("breaker.ramp_seconds", "ramp_seconds must be 0 to 3600")
    ramped = wire.ramp_seconds > 0
    try:
        return BreakerPolicy(
            consecutive_failures=wire.consecutive_failures,
            failure_ratio=_thousandths("failure_ratio", wire.failure_ratio),
            slow_ratio=_thousandths("slow_ratio", wire.slow_ratio),
            slow_call_seconds=wire.slow_call_seconds,
            minimum_calls=wire.minimum_calls,
            window_seconds=wire.window_seconds,
            window_calls=wire.window_calls,
            open_seconds=wire.open_seconds,
            open_seconds_cap=wire.max_open_seconds,
            half_open_probes=wire.half_open_probes,
            probe_lease_seconds=wire.probe_lease_seconds,
            close_after=wire.close_after,
            half_open_max_seconds=wire.half_open_max_seconds,
            ramp_shares=RAMP_SHARES if ramped else (),
            ramp_step_seconds=wire.ramp_seconds / len(RAMP_SHARES) if ramped else 1.0,
        )
    except ValueError as error:
        raise _named("breaker", error) from error


def rate_policy(wire: Breaker) -> RatePolicy:
    """The rate of each circuit that the policy matches. Raises ``OutOfRange``."""
    try:
        return RatePolicy(wire.requests_per_minute, wire.tokens_per_minute)
    except ValueError as error:
        raise _named("breaker", error) from error


def budget_policy(wire: Bucket) -> BudgetPolicy:
    """The domain's policy of one bucket. Raises ``OutOfRange``."""
    for name in ("max_attempts", "max_attempts_per_task"):
        if getattr(wire, name) < 1:
            raise OutOfRange(f"bucket.{name}", f"{name} must be at least 1")
    if not 60 <= wire.cost_window_seconds <= LONGEST_COST_WINDOW_S:
        text = f"cost_window_seconds must be 60 to {LONGEST_COST_WINDOW_S:g}"
        raise OutOfRange("bucket.cost_window_seconds", text)
    try:
        for name in CEILINGS:
            if (ceiling := getattr(wire, name)) is not None:
                pounds(name, ceiling)
        return BudgetPolicy(
            ratio_per_mille=wire.ratio_per_mille,
            min_per_second=wire.min_per_second,
            max_per_second=wire.max_per_second,
            window_seconds=wire.window_seconds,
            burst=wire.burst,
        )
    except ValueError as error:
        raise _named("bucket", error) from error


def _thousandths(field: str, ratio: float | None) -> int | None:
    if ratio is None:
        return None
    # 0 as a threshold would trip on a window without a failure.
    if not isfinite(ratio) or not 0.001 <= ratio <= 1:
        raise OutOfRange(f"breaker.{field}", f"{field} must be 0.001 to 1, got {ratio!r}")
    return round(ratio * 1000)


def _named(part: str, error: ValueError) -> OutOfRange:
    if isinstance(error, OutOfRange):
        return error
    # The domain's messages begin with the name of their own field.
    field = str(error).partition(" ")[0].replace("open_seconds_cap", "max_open_seconds")
    return OutOfRange(f"{part}.{field}", str(error))
