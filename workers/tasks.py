"""The tasks: each takes the time, calls one function of the control plane, and says what it did.

Invariant: no rule lives here.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from celery import shared_task
from django.conf import settings
from django.db import connection

from controlplane.actions import probes
from controlplane.actions.ceiling_prices import refresh
from controlplane.actions.overrides import end_expired
from controlplane.ingest import partitions as days
from controlplane.ingest.derive import derive as derive_finished
from controlplane.ingest.derive import derive_before
from controlplane.ingest.retention import delete_expired


def _postgres() -> Any:
    """This thread's own psycopg connection, which commits each statement."""
    connection.ensure_connection()
    return connection.connection


def _raw_retention() -> timedelta:
    return timedelta(days=settings.RAW_RETENTION_DAYS)


@shared_task(name="overrides.end_expired")
def end_expired_overrides() -> list[str]:
    """End the rows of overrides whose time has passed (gateways ended them already)."""
    return end_expired(datetime.now(UTC))


@shared_task(name="probes.end_expired")
def end_expired_probes() -> list[str]:
    """Take probes whose time is over out of the snapshots."""
    return probes.end_expired(datetime.now(UTC))


@shared_task(name="prices.refresh_ceilings")
def refresh_ceiling_prices() -> list[str]:
    """Give gateways with a cost ceiling the prices and rates of today."""
    return refresh(datetime.now(UTC))


@shared_task(name="telemetry.partitions")
def partitions() -> list[str]:
    """Make the coming days' partitions, and drop the expired ones once they are derived."""
    now, conn, kept = datetime.now(UTC), _postgres(), _raw_retention()
    days.ensure_ahead_now(conn, now)
    derive_before(conn, now, days.first_kept(now, kept))
    return days.drop_expired(conn, now, kept)


@shared_task(name="telemetry.retention")
def retention() -> dict[str, int]:
    """Delete receipts, dead letters and minutes past their time."""
    return delete_expired(_postgres(), datetime.now(UTC), _raw_retention())


@shared_task(name="telemetry.derive")
def derive() -> tuple[int, int]:
    """Derive finished and dirty minutes and hours."""
    done = derive_finished(_postgres(), datetime.now(UTC))
    return done.minutes, done.hours


@shared_task(name="workers.heartbeat")
def heartbeat() -> None:
    """Show that beat, broker and worker are alive."""
    _postgres().execute(
        "INSERT INTO heartbeat (name, at) VALUES ('worker', now())"
        " ON CONFLICT (name) DO UPDATE SET at = EXCLUDED.at"
    )
