"""The figures of a report, and what is derived of them. Pure.

Invariant: a ratio over nothing is None and never 0 or NaN; an amount that is not known at all is
None, and one that is known in part stands beside the count of what is missing. Money is £, exact;
ratios are dimensionless (design 4.6, 4.7).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal

from controlplane.domain.pricing import EXACT

ZERO = Decimal(0)


@dataclass(frozen=True, slots=True)
class Known:
    """An amount as far as it is known: the sum, and how many attempts are missing from it."""

    sum_gbp: Decimal = ZERO
    missing: int = 0

    @property
    def gbp(self) -> Decimal | None:
        """The sum; None when something is missing and what is known was not billed at all."""
        return None if self.missing and not self.sum_gbp else self.sum_gbp

    def __add__(self, other: Known) -> Known:
        return Known(EXACT.add(self.sum_gbp, other.sum_gbp), self.missing + other.missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One line of a report.

    ``failed``: attempts that count against the breaker. ``wasted``: cost of attempts that ended not
    served; ``wasted_finally`` adds served attempts of tasks that ended failed.
    """

    attempts: int = 0
    firsts: int = 0
    retries: int = 0
    fallbacks: int = 0
    redeliveries: int = 0
    succeeded: int = 0
    failed: int = 0
    cost: Known = Known()
    estimated: int = 0
    wasted: Known = Known()
    wasted_finally: Known = Known()
    tasks_succeeded: int = 0
    tasks_failed: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    would_refuse: int = 0
    openings: int = 0

    def __add__(self, other: Figures) -> Figures:
        # Whole numbers and amounts alike; the usual decimal context would round a long sum.
        sums = {name: getattr(self, name) + getattr(other, name) for name in _ADDED}
        gates = {*self.refused, *other.refused}
        refused = {g: self.refused.get(g, 0) + other.refused.get(g, 0) for g in sorted(gates)}
        return Figures(**sums, refused=refused)

    @property
    def retry_ratio(self) -> float | None:
        """Retries over firsts, by time of sending."""
        return _ratio(self.retries, self.firsts)

    @property
    def amplification(self) -> float | None:
        """Attempts over firsts."""
        return _ratio(self.attempts, self.firsts)

    @property
    def failed_ratio(self) -> float | None:
        """Failed attempts over attempts."""
        return _ratio(self.failed, self.attempts)

    @property
    def task_success_ratio(self) -> float | None:
        """Tasks closed successfully over tasks closed."""
        return _ratio(self.tasks_succeeded, self.tasks_succeeded + self.tasks_failed)

    @property
    def cost_per_successful_task(self) -> Decimal | None:
        """Cost of the attempts sent over the tasks closed successfully; None without such tasks."""
        if not self.tasks_succeeded or self.cost.gbp is None:
            return None
        return EXACT.divide(self.cost.gbp, Decimal(self.tasks_succeeded))

    @property
    def wasted_share(self) -> float | None:
        """The final waste over the cost, both as far as they are known."""
        known, wasted = self.cost.gbp, self.wasted_finally.gbp
        return float(wasted / known) if known and wasted is not None else None

    @property
    def refusals(self) -> int:
        """Calls that were not made, by any gate."""
        return sum(self.refused.values())


_ADDED = tuple(f.name for f in fields(Figures) if f.name != "refused")


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
