"""What a circuit's breakers did lately.

Invariant: newest first, at most 100 of the last 24 hours; a day partition that does not exist holds
nothing and is no error.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from django.db import connection

from controlplane.models.pool import named_sql

_SQL = Path(__file__).parent / "sql" / "circuit_transitions.sql"


@dataclass(frozen=True, slots=True)
class TransitionLine:
    """One breaker of one instance changed."""

    gateway: str
    slot: str
    at: datetime
    from_state: str
    to_state: str
    cause: str
    mode: str
    calls: int
    failures: int
    consecutive: int
    next_probe_at: datetime | None

    @property
    def instance(self) -> str:
        """With its gateway: slots of two gateways may have one name."""
        return f"{self.gateway}/{self.slot}"


def of_circuit(circuit_id: int) -> list[TransitionLine]:
    """The circuit's newest transitions."""
    with connection.cursor() as cursor:
        cursor.execute(named_sql(_SQL), {"circuit_id": circuit_id})
        return [TransitionLine(*row) for row in cursor.fetchall()]
