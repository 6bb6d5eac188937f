"""What other numbers of a retry budget would have done to minutes that are over.

Invariant: the inequality is ``budget.Limits`` itself, asked for each bucket and whole minute; only
the difference between the edited and the recorded numbers is told, never more than was really
refused and never less than nothing sent, so a refusal that the recorded numbers do not explain
(another budget's, or of a burst) is credited to nobody. Money is £.

What it cannot know: firsts are spread evenly over a gateway's instances and within the minute, a
first is taken to fail as often as any attempt of its minute, and other budgets may still say no.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal

from controlplane.domain.budget import BudgetPolicy, Limits

MINUTE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A minute of one subject at one gateway. ``instances``: how many share its limits, 1 or more.

    ``retries`` were sent, ``refused`` were not, by whichever budget; ``failed`` of ``attempts``.
    """

    instances: int
    attempts: int
    firsts: int
    retries: int
    refused: int
    failed: int
    cost_gbp: Decimal

    @property
    def earning(self) -> int:
        """First attempts that kept what they earned, as far as a minute tells."""
        return self.firsts - round(self.firsts * self.failure_ratio)

    @property
    def failure_ratio(self) -> float:
        """Failed attempts of all attempts; 0 without one."""
        return min(1.0, self.failed / self.attempts) if self.attempts else 0.0


@dataclass(frozen=True, slots=True)
class Replay:
    """``more``: retries granted beyond what the recorded numbers grant; below 0, fewer.

    ``failing`` of them would have failed, and ``cost_gbp`` they would have cost, each at the rate
    of its minute; both have the sign of ``more``.
    """

    attempts: int
    refused: int
    more: int
    failing: float
    cost_gbp: Decimal


def replay(minutes: Iterable[Asked], recorded: BudgetPolicy, edited: BudgetPolicy) -> Replay:
    """The difference that ``edited`` would have made to what ``recorded`` ruled."""
    attempts = refused = more = 0
    failing, cost = 0.0, Decimal(0)
    for minute in minutes:
        extra = _granted(minute, edited) - _granted(minute, recorded)
        extra = max(-minute.retries, min(minute.refused, extra))
        attempts += minute.attempts
        refused += minute.refused
        more += extra
        failing += extra * minute.failure_ratio
        if minute.attempts:
            cost += extra * minute.cost_gbp / minute.attempts
    return Replay(attempts, refused, more, failing, cost)


def _granted(minute: Asked, policy: BudgetPolicy) -> int:
    """How many of the retries that were asked for the inequality lets through."""
    allowed = _limits(policy, minute.instances).allowed(minute.earning) // 1000
    return min(minute.retries + minute.refused, allowed)


def _limits(policy: BudgetPolicy, instances: int) -> Limits:
    """The limits of a minute of a whole gateway: every instance's own share, added up."""
    share = replace(policy, window_seconds=MINUTE_SECONDS).limits(instances)
    ceiling = None if share.ceiling is None else share.ceiling * instances
    return replace(share, floor=share.floor * instances, ceiling=ceiling)
