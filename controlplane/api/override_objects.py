"""One override as its own address answers it: on the API and in the page's YAML alike.

Invariant: where its breakers go when it ends is read for one override only; in a list it would
cost a read for each.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from controlplane.api import objects
from controlplane.models import Override
from controlplane.reports import landing
from controlplane.reports.progress import Progress


def alone(row: Override, far: Progress, now: datetime) -> dict[str, Any]:
    """The object, with ``status.landing`` (state to number of breakers) until it has ended."""
    body = objects.override(row, far, now)
    if row.ended_at is None:
        body["status"]["landing"] = dict(landing.read(row, now))
    return body
