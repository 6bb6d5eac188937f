"""The policies that are compared, each made of the same parts as the gateway's own.

Invariant: whatever a policy has, it has at the product's defaults: the wire's breaker and bucket,
the configuration's route. Only ``always`` lacks a deadline, as the clients that it stands for did.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from controlplane.domain.backoff import BackoffPolicy
from controlplane.domain.budgets import Budgets, Unlimited
from controlplane.domain.request_plan import RetryGrants
from controlplane.wire.desired import Breaker as BreakerNumbers
from controlplane.wire.desired import Bucket
from gateway.config import Route
from gateway.thresholds import breaker_policy, budget_policy

_BUCKET = Bucket()
_ROUTE = Route("", ())
ATTEMPT_S = _ROUTE.attempt_seconds
MAX_ATTEMPTS = _BUCKET.max_attempts
BACKOFF = BackoffPolicy()
BREAKER = breaker_policy(BreakerNumbers())


@dataclass(frozen=True, slots=True)
class Policy:
    """Which parts take part. ``title`` is what tables call it."""

    name: str
    title: str
    breaker: bool
    budget: bool
    fallback: bool
    deadline_s: float = _ROUTE.deadline_seconds

    def grants(self) -> RetryGrants:
        """A fresh set of retry budgets, for the one tenant there is."""
        if not self.budget:
            return Unlimited()
        policy = budget_policy(_BUCKET)
        return Budgets(lambda level, subject: policy).of("chat")


ALWAYS = Policy("always", "three attempts, always", False, False, False, inf)
DEFAULTS = Policy("defaults", "breaker + budget (defaults)", True, True, True)

POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        ALWAYS,
        Policy("fallback", "fallback only", False, False, True),
        Policy("budget", "budget + fallback", False, True, True),
        Policy("breaker", "breaker + fallback", True, False, True),
        DEFAULTS,
    )
}
