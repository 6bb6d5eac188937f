"""Prices and rates take effect on their day, and gateways report new targets, without a write.

Invariant: a revision is made only when some gateway's snapshot really changes by it; it is the
system's own change, audited like a person's.
"""

from __future__ import annotations

from datetime import datetime

from controlplane.actions._commit import desired_change
from controlplane.actions._compile import outdated
from controlplane.actions.actor import SYSTEM
from controlplane.models import RetryBudget

_CEILINGS = ("max_cost_gbp", "max_cost_gbp_per_request", "max_cost_gbp_per_task")


def refresh(now: datetime) -> list[str]:
    """Bring the prices in every gateway's snapshot up to date; the names of those that changed."""
    specs = RetryBudget.objects.values_list("spec", flat=True)
    if not any(spec.get(name) is not None for spec in specs for name in _CEILINGS):
        return []
    with desired_change(SYSTEM, now) as change:
        changed = outdated(now)
        if changed:
            change.audit("refresh", "PriceBook", "ceilings", after={"gateways": changed})
    return changed
