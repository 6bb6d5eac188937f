"""Policies, budgets and routes as the objects that people read, and their earlier forms.

Invariant: ``managers`` says whose each field is, so that a refused apply surprises nobody.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from controlplane.actions.revisions import Earlier
from controlplane.api.door import camel
from controlplane.api.objects import conditions_of, match_of, metadata_of, progress_of
from controlplane.models import BreakerPolicy, RetryBudget, Route
from controlplane.reports import conditions
from controlplane.reports.progress import Progress


def setting(
    row: BreakerPolicy | RetryBudget | Route, progress: Progress | None = None
) -> dict[str, Any]:
    """A policy, a budget or a route with how far its present numbers have come."""
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
    return {
        "kind": type(row).__name__,
        "metadata": metadata_of(row) | {"managers": _managers(row.managers)},
        "spec": spec | {"match": match},
        "status": status,
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
