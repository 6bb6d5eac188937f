"""Policies, budgets and routes as the objects that people read, and their earlier forms.

Invariant: ``managers`` says whose each field is, so that a refused apply surprises nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from controlplane.actions.revisions import Earlier
from controlplane.api.door import camel
from controlplane.api.objects import conditions_of, match_of, metadata_of, progress_of
from controlplane.models import BreakerPolicy, RetryBudget, Route
from controlplane.reports import budgets, conditions
from controlplane.reports.budgets import Bucket
from controlplane.reports.progress import Progress

_MOST_BUCKETS = 200


def setting(
    row: BreakerPolicy | RetryBudget | Route,
    progress: Progress | None = None,
    buckets: Sequence[Bucket] | None = None,
) -> dict[str, Any]:
    """A policy, a budget or a route with how far its present numbers have come.

    ``buckets``: what a budget's hold, where it is asked for alone.
    """
    match = match_of(row)
    spec: dict[str, Any] = {camel(name): value for name, value in row.spec.items()}
    if isinstance(row, RetryBudget):
        match["tenant"] = row.tenant
        spec["level"] = row.level
    status: dict[str, Any] = {"observedGeneration": row.generation}
    if progress is not None:
        status |= {"phase": progress.phase} | progress_of(progress)
        found = [conditions.enforced(progress, row.generation)]
        if isinstance(row, Route):
            found.append(conditions.of_route(row, datetime.now(UTC)))
        status["conditions"] = conditions_of(found)
    if buckets is not None:
        status["buckets"] = [_bucket(one) for one in buckets[:_MOST_BUCKETS]]
        status["bucketsInAll"] = len(buckets)
    return {
        "kind": type(row).__name__,
        "metadata": metadata_of(row) | {"managers": _managers(row.managers)},
        "spec": spec | {"match": match},
        "status": status,
    }


def alone(
    row: BreakerPolicy | RetryBudget | Route, progress: Progress, now: datetime
) -> dict[str, Any]:
    """A setting that is asked for alone: the answer of its own address, and its page's YAML."""
    held = budgets.buckets(row, now) if isinstance(row, RetryBudget) else None
    return setting(row, progress, held)


def _bucket(one: Bucket) -> dict[str, Any]:
    return {
        "scope": one.scope,
        "gateway": one.gateway,
        "slot": one.slot,
        "balance": one.balance,
        "earned": one.earned,
        "spent": one.spent,
        "refused": one.refused,
        "windowSeconds": one.window_s,
        "reportedAt": one.reported_at,
    }


def _managers(managers: dict[str, str]) -> dict[str, str]:
    return {camel(name): by for name, by in sorted(managers.items())}


def earlier(kind: str, found: Earlier) -> dict[str, Any]:
    """One generation of a setting as it was."""
    return {
        "kind": kind,
        "metadata": {
            "generation": found.generation,
            "resourceVersion": str(found.resource_version),
            "updatedAt": found.at,
            "updatedBy": found.by,
        },
        "spec": {camel(name): value for name, value in found.spec.items()} | {"match": found.match},
        "status": {"action": found.action, "reason": found.reason or None},
    }
