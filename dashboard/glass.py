"""Broken glass: fleet-wide overrides that went out without a second person, on every page.

Invariant: shown from the write until another operator has acknowledged it, also when the override
has ended; without the two-person rule nothing is asked of the database.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings

from controlplane.actions import approvals
from dashboard import present

_MOST = 5


def broken() -> dict[str, Any] | None:
    """The newest of them, and ``said``: what a page that shows just these has in its address."""
    if not settings.TWO_PERSON:
        return None
    rows = list(approvals.unacknowledged().order_by("-created_at")[: _MOST + 1])
    shown = [
        {
            "row": row,
            "about": present.match_words(row.provider, row.model, row.region),
            "gateways": present.gateways_words(row.gateway, row.selector),
        }
        for row in rows[:_MOST]
    ]
    return {"rows": shown, "more": len(rows) > _MOST, "said": ".".join(str(r.pk) for r in rows)}
