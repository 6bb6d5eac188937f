"""Find one thing by what is known of it: part of a name, or the id of a task or a request.

Invariant: every list is short and says when there is more; an id is matched whole, by its index.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID

from django.db import connection
from django.db.models import Q
from django.db.models.functions import Concat

from controlplane.models import Circuit, Gateway, Instance
from controlplane.models.pool import named_sql
from controlplane.reports import telemetry

_SQL = Path(__file__).parent / "sql"
MOST = 20
MOST_PLACES = 100
_LATELY = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class TaskHit:
    """A task, or a request of one, at a gateway. ``success`` None: not known yet."""

    kind: str
    gateway_id: int
    gateway: str
    tenant: str
    id: str
    at: datetime | None
    success: bool | None


@dataclass(frozen=True, slots=True)
class Found:
    """Everything that matches; each list holds at most ``MOST``."""

    circuits: list[Circuit]
    gateways: list[Gateway]
    instances: list[Instance]
    tenants: list[telemetry.TenantWaste]
    tasks: list[TaskHit]

    @property
    def empty(self) -> bool:
        """True when nothing matches."""
        return not (self.circuits or self.gateways or self.instances or self.tenants or self.tasks)


def find(text: str, now: datetime) -> Found:
    """All that matches a text. Tenants: those of the last seven days' hours."""
    return Found(
        circuits=circuits(text),
        gateways=list(Gateway.objects.filter(name__icontains=text).order_by("name")[:MOST]),
        instances=list(
            Instance.objects.filter(
                Q(slot__icontains=text) | Q(boot_id=_uuid(text)), replaced_at=None, goodbye_at=None
            )
            .select_related("gateway")
            .order_by("slot")[:MOST]
        ),
        tenants=[
            row
            for row in telemetry.tenants_by_waste(now - _LATELY, now, 1000)
            if text.lower() in row.tenant.lower()
        ][:MOST],
        tasks=tasks(text),
    )


def circuits(text: str) -> list[Circuit]:
    """Circuits of whose name every word is a part."""
    rows = Circuit.objects.annotate(whole=Concat("provider", "model", "region"))
    for word in text.replace("/", " ").replace("@", " ").split():
        rows = rows.filter(whole__icontains=word)
    return list(rows.order_by("provider", "model", "region")[:MOST])


def tasks(text: str) -> list[TaskHit]:
    """Where that id is known."""
    with connection.cursor() as cursor:
        cursor.execute(named_sql(_SQL / "find_tasks.sql"), {"text": text, "request": _uuid(text)})
        return [TaskHit(*row) for row in cursor.fetchall()]


@dataclass(frozen=True, slots=True)
class Known:
    """Where a task is known."""

    gateway_id: int
    gateway: str
    tenant: str
    id: str


def where_known(text: str, gateway: str | None, tenant: str | None) -> list[Known]:
    """Every gateway and tenant at which a task, or the request ``text``, is known; at most 100."""
    values = {
        "text": text,
        "request": _uuid(text),
        "gateway": gateway,
        "tenant": tenant,
        "limit": MOST_PLACES,
    }
    with connection.cursor() as cursor:
        cursor.execute(named_sql(_SQL / "find_trace.sql"), values)
        return [Known(*row) for row in cursor.fetchall()]


def trace(gateway: int, tenant: str, name: str) -> telemetry.Trace | None:
    """A task by its id, else a request without one by its own; None when neither is known."""
    found = telemetry.task_trace(gateway, tenant, name)
    request = _uuid(name)
    if found is not None or request is None:
        return found
    with connection.cursor() as cursor:
        cursor.execute(
            named_sql(_SQL / "request_trace.sql"), {"gateway": gateway, "request": request}
        )
        rows = tuple(telemetry.TraceRow(*row) for row in cursor.fetchall())
    if not rows:
        return None
    attempts = [row for row in rows if row.kind == "attempt"]
    return telemetry.Trace(
        success=next((row.success for row in rows if row.kind == "outcome"), None),
        rows=rows,
        cost_gbp=sum((row.cost_gbp for row in attempts if row.cost_gbp), Decimal(0)),
        unpriced=sum(row.cost_gbp is None for row in attempts),
    )


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
