"""What numbers a policy and a budget may hold, and what each says when it is wrong.

Invariant: what passes here is accepted by every gateway: a gateway's own check may be narrower only
about targets and local floors. Seconds, counts, and ratios (of 1 for policies, in thousandths for
budgets) as in ``wire.desired``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import msgspec

from controlplane.actions._fields import Faults, unknown_field
from controlplane.domain.ceiling import pounds
from controlplane.wire.desired import Breaker, Bucket

Spec: TypeAlias = Mapping[str, Any]


class Bound(NamedTuple):
    """A number's range. ``optional``: null switches that part off."""

    low: float
    high: float
    whole: bool = True
    optional: bool = False

    def fault(self, value: object) -> str:
        """What to write instead; '' when the value is within."""
        wanted = "a whole number" if self.whole else "a number"
        or_null = ", or null to switch it off" if self.optional else ""
        if value is None and self.optional:
            return ""
        fits = isinstance(value, int) or (isinstance(value, float) and not self.whole)
        if isinstance(value, bool) or not fits or not self.low <= value <= self.high:  # type: ignore[operator]
            return f"write {wanted} from {self.low:g} to {self.high:g}{or_null}"
        return ""


class Ceiling(NamedTuple):
    """An amount in pounds: decimal text, because a float would not be exact. Null is no ceiling."""

    optional: bool = True

    def fault(self, value: object) -> str:
        """What to write instead; '' when the value is within."""
        wanted = "write pounds as text, such as '2.50', or null to switch it off"
        if value is None:
            return ""
        if not isinstance(value, str) or len(value) > 30:
            return wanted
        try:
            pounds("amount", value)
        except ValueError:
            return wanted
        return ""


POLICY_BOUNDS: dict[str, Bound] = {
    "consecutive_failures": Bound(1, 1000, optional=True),
    "failure_ratio": Bound(0.001, 1, whole=False, optional=True),
    "minimum_calls": Bound(1, 10_000),
    "window_seconds": Bound(1, 3600, whole=False),
    "window_calls": Bound(1, 10_000, optional=True),
    "slow_ratio": Bound(0.001, 1, whole=False, optional=True),
    "slow_call_seconds": Bound(0.001, 3600, whole=False),
    "open_seconds": Bound(0.1, 3600, whole=False),
    "max_open_seconds": Bound(0.1, 86_400, whole=False),
    "half_open_probes": Bound(1, 100),
    "close_after": Bound(1, 100),
    "probe_lease_seconds": Bound(0.1, 3600, whole=False),
    "half_open_max_seconds": Bound(1, 3600, whole=False),
    "ramp_seconds": Bound(0, 3600, whole=False),
    "requests_per_minute": Bound(0, 10_000_000, optional=True),
    "tokens_per_minute": Bound(0, 10_000_000_000, optional=True),
}
BUDGET_BOUNDS: dict[str, Bound | Ceiling] = {
    "ratio_per_mille": Bound(0, 1000),
    "min_per_second": Bound(0, 1000, whole=False),
    "max_per_second": Bound(0, 100_000, whole=False, optional=True),
    "burst": Bound(0, 10_000),
    "window_seconds": Bound(10, 600, whole=False),
    "max_attempts": Bound(1, 20),
    "max_attempts_per_task": Bound(1, 100),
    "max_cost_gbp": Ceiling(),
    "cost_window_seconds": Bound(60, 31 * 86_400, whole=False),
    "max_cost_gbp_per_request": Ceiling(),
    "max_cost_gbp_per_task": Ceiling(),
}
_FLAGS = {"rate_limits_count"}


def policy_spec(
    given: Mapping[str, Any], base: Mapping[str, Any], faults: Faults
) -> dict[str, Any]:
    """``given`` over ``base`` over the defaults, checked field by field."""
    spec = _checked(given, base, Breaker(), POLICY_BOUNDS, _FLAGS, faults)
    if not faults.errors and spec["max_open_seconds"] < spec["open_seconds"]:
        faults.add("max_open_seconds", "write at least open_seconds")
    return spec


def budget_spec(
    given: Mapping[str, Any], base: Mapping[str, Any], faults: Faults
) -> dict[str, Any]:
    """``given`` over ``base`` over the defaults, checked field by field."""
    spec = _checked(given, base, Bucket(), BUDGET_BOUNDS, set(), faults)
    ceiling = spec["max_per_second"]
    if not faults.errors and ceiling is not None and ceiling < spec["min_per_second"]:
        faults.add("max_per_second", "write at least min_per_second")
    return spec


def _checked(
    given: Spec,
    base: Spec,
    defaults: msgspec.Struct,
    bounds: Mapping[str, Bound | Ceiling],
    flags: set[str],
    faults: Faults,
) -> dict[str, Any]:
    for name, value in given.items():
        if name in flags:
            if not isinstance(value, bool):
                faults.add(name, "write true or false")
        elif name not in bounds:
            faults.add(name, unknown_field(name, [*bounds, *flags]))
        elif fault := bounds[name].fault(value):
            faults.add(name, fault)
    known = {n: v for n, v in given.items() if n in bounds or n in flags}
    return {**msgspec.to_builtins(defaults), **base, **known}
