"""What a retry budget had to deal with, minute by minute.

Invariant: only whole minutes; a minute of which no gateway spoke is absent, never 0. Refusals are
those of every budget over these circuits, because a refusal does not say which level it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from django.db import connection

from controlplane.domain.circuit import Circuit as Name
from controlplane.domain.precedence import Selection
from controlplane.models import Circuit, Gateway
from controlplane.models.pool import named_sql

_SQL = Path(__file__).parent / "sql" / "budget_minutes.sql"


@dataclass(frozen=True, slots=True)
class Minute:
    """First attempts, retries that were sent, retries that budgets refused."""

    minute: datetime
    firsts: int
    retries: int
    refused: int


def minutes(selection: Selection, start: datetime, end: datetime) -> list[Minute]:
    """The minutes of [start, end) of what a budget matches; of the last 48 hours."""
    values = {
        "start": start,
        "end": end,
        "circuits": _circuits(selection),
        "gateways": _gateways(selection),
    }
    with connection.cursor() as cursor:
        cursor.execute(named_sql(_SQL), values)
        return [Minute(*row) for row in cursor.fetchall()]


def _circuits(selection: Selection) -> list[int] | None:
    if not (selection.provider or selection.model or selection.region):
        return None
    return [
        row.pk
        for row in Circuit.objects.all()
        if selection.covers_circuit(Name(row.provider, row.model, row.region))
    ]


def _gateways(selection: Selection) -> list[int] | None:
    if not (selection.gateway or selection.selector):
        return None
    return [g.pk for g in Gateway.objects.all() if selection.covers_gateway(g.name, g.labels)]
