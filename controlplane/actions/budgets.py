"""Retry budgets: create, change, remove. Each reaches the gateways like an override does.

Invariant: see ``_settings``; a budget's numbers are per gateway, its ratio in thousandths.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from controlplane.actions._bounds import budget_spec
from controlplane.actions._fields import Faults
from controlplane.actions._settings import LEVELS as LEVELS
from controlplane.actions._settings import Settings
from controlplane.actions.actor import Actor
from controlplane.models import RetryBudget

BUDGETS = Settings(RetryBudget, "RetryBudget", budget_spec)


def create(
    *,
    actor: Actor,
    name: str,
    level: str,
    spec: Mapping[str, Any],
    now: datetime,
    match: Mapping[str, object] | None = None,
    reason: str = "",
) -> RetryBudget:
    """Record a budget of a level for what it matches. ``spec`` holds ``wire.desired.Bucket``."""
    return BUDGETS.create(
        actor=actor,
        name=name,
        spec=spec,
        now=now,
        match=match or {},
        reason=reason,
        extra={"level": level},
        faults=Faults(),
    )


def update(
    *,
    actor: Actor,
    name: str,
    spec: Mapping[str, Any],
    now: datetime,
    expected_version: int,
    merge: bool = True,
    reason: str = "",
    match: Mapping[str, object] | None = None,
) -> RetryBudget:
    """Change a budget. ``merge`` keeps the numbers that ``spec`` does not name.

    Raises ``Conflict`` with ``current`` when it is no longer at ``expected_version``.
    """
    return BUDGETS.update(
        actor=actor,
        name=name,
        spec=spec,
        now=now,
        expected_version=expected_version,
        merge=merge,
        reason=reason,
        match=match,
        faults=Faults(),
    )


def remove(
    *, actor: Actor, name: str, now: datetime, expected_version: int, reason: str = ""
) -> None:
    """Take a budget away."""
    BUDGETS.remove(
        actor=actor, name=name, now=now, expected_version=expected_version, reason=reason
    )
