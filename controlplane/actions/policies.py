"""Breaker policies: create, change, remove. Each reaches the gateways like an override does.

Invariant: see ``_settings``; a policy's ratios are of 1, its times in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from controlplane.actions._bounds import policy_spec
from controlplane.actions._fields import Faults
from controlplane.actions._settings import Settings
from controlplane.actions.actor import Actor
from controlplane.models import BreakerPolicy

POLICIES = Settings(BreakerPolicy, "BreakerPolicy", policy_spec)


def create(
    *,
    actor: Actor,
    name: str,
    spec: Mapping[str, Any],
    now: datetime,
    match: Mapping[str, object] | None = None,
    reason: str = "",
) -> BreakerPolicy:
    """Record a policy for what it matches. ``spec`` holds ``wire.desired.Breaker``."""
    return POLICIES.create(
        actor=actor,
        name=name,
        spec=spec,
        now=now,
        match=match or {},
        reason=reason,
        extra={},
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
) -> BreakerPolicy:
    """Change a policy. ``merge`` keeps the numbers that ``spec`` does not name.

    Raises ``Conflict`` with ``current`` when it is no longer at ``expected_version``.
    """
    return POLICIES.update(
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
    """Take a policy away."""
    POLICIES.remove(
        actor=actor, name=name, now=now, expected_version=expected_version, reason=reason
    )
