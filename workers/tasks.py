"""The tasks: each takes the time, calls one function of the control plane, and says what it did.

Invariant: no rule lives here.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.conf import settings

from controlplane.actions import probes
from controlplane.actions.ceiling_prices import refresh
from controlplane.actions.overrides import end_expired
from controlplane.ingest import partitions as days
from controlplane.ingest.derive import derive as derive_finished
from controlplane.ingest.derive import derive_before
from controlplane.ingest.retention import delete_expired
from workers.recorded import job, postgres


def _raw_retention() -> timedelta:
    return timedelta(days=settings.RAW_RETENTION_DAYS)


@job("overrides.end_expired")
def end_expired_overrides() -> list[str]:
    """End the rows of overrides whose time has passed (gateways ended them already)."""
    return end_expired(datetime.now(UTC))


@job("probes.end_expired")
def end_expired_probes() -> list[str]:
    """Take probes whose time is over out of the snapshots."""
    return probes.end_expired(datetime.now(UTC))


@job("prices.refresh_ceilings")
def refresh_ceiling_prices() -> list[str]:
    """Give gateways with a cost ceiling the prices and rates of today."""
    return refresh(datetime.now(UTC))


@job("telemetry.partitions")
def partitions() -> list[str]:
    """Make the coming days' partitions, and drop the expired ones once they are derived."""
    now, conn, kept = datetime.now(UTC), postgres(), _raw_retention()
    days.ensure_ahead_now(conn, now)
    try:
        derive_before(conn, now, days.first_kept(now, kept))
    finally:
        # A day that cannot be derived holds itself and those after it, and none before it.
        dropped = days.drop_expired(conn, now, kept)
    return dropped


@job("telemetry.retention")
def retention() -> dict[str, int]:
    """Delete receipts, dead letters and minutes past their time."""
    return delete_expired(postgres(), datetime.now(UTC), _raw_retention())


@job("telemetry.derive")
def derive() -> tuple[int, int]:
    """Derive finished and dirty minutes and hours."""
    done = derive_finished(postgres(), datetime.now(UTC))
    return done.minutes, done.hours


@job("workers.heartbeat")
def heartbeat() -> None:
    """Show that beat, broker and worker are alive."""
    postgres().execute(
        "INSERT INTO heartbeat (name, at) VALUES ('worker', now())"
        " ON CONFLICT (name) DO UPDATE SET at = EXCLUDED.at"
    )
