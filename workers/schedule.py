"""When each task is due.

Invariant: a run that waits longer than its own period expires, so a broker that was away hands out
one run of each, not the backlog. Periods are seconds.
"""

from __future__ import annotations

from typing import Any


def _every(seconds: float, task: str) -> dict[str, Any]:
    return {"task": task, "schedule": seconds, "options": {"expires": seconds}}


SCHEDULE: dict[str, dict[str, Any]] = {
    "end-expired-overrides": _every(2, "overrides.end_expired"),
    "end-expired-probes": _every(10, "probes.end_expired"),
    "ceiling-prices": _every(60, "prices.refresh_ceilings"),
    "heartbeat": _every(10, "workers.heartbeat"),
    "derived-rollups": _every(15, "telemetry.derive"),
    "day-partitions": _every(3600, "telemetry.partitions"),
    "retention": _every(3600, "telemetry.retention"),
}
