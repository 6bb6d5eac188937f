"""One override as its own address answers it: on the API and in the page's YAML alike.

Invariant: where its breakers go when it ends is read for one override only; in a list it would
cost a read for each.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from controlplane.actions.approvals import phase_of
from controlplane.api import objects
from controlplane.models import Override, PendingOverride
from controlplane.reports import landing
from controlplane.reports.progress import Progress


def alone(row: Override, far: Progress, now: datetime) -> dict[str, Any]:
    """The object, with ``status.landing`` (state to number of breakers) until it has ended."""
    body = objects.override(row, far, now)
    if row.ended_at is None:
        body["status"]["landing"] = dict(landing.read(row, now))
    return body


def pending(row: PendingOverride, now: datetime) -> dict[str, Any]:
    """A request that a second person may approve: of an override's shape, without counts."""
    return {
        "kind": "Override",
        "metadata": {
            "name": row.name,
            "createdAt": row.requested_at,
            "createdBy": row.requested_by,
        },
        "spec": {
            "mode": row.mode,
            **objects.match_of(row),
            "reason": row.reason,
            "ticket": row.ticket,
            "expiresIn": row.lasts_seconds,
            "expiresAt": row.expires_at,
            "allowLastHealthy": row.allow_last_healthy,
        },
        "status": {
            "active": False,
            "phase": phase_of(row, now),
            "approveBefore": row.approve_before,
            "decidedAt": row.decided_at,
            "decidedBy": row.decided_by or None,
        },
    }
