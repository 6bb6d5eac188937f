"""What telemetry says of one thing: a circuit's series, its open times, a task, what is missing.

Invariant: each is one named SQL file and so one snapshot; unknown is None, never 0. Ranges are
half-open, [start, end), of aware times; money is £, exact; durations are milliseconds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from django.conf import settings
from django.db import connection

from controlplane.domain.histogram import Histogram
from controlplane.domain.rollup import is_of_fives
from controlplane.models.pool import named_sql

_SQL = Path(__file__).parent / "sql"
_TASK = """
SELECT LEAST(first_started_at, explicit_at), GREATEST(last_ended_at, explicit_at,
    CASE WHEN frozen THEN now() END), -- words that came too late to count are shown, too
    explicit_success, implicit_success
FROM task WHERE gateway_id = %(gateway)s AND tenant = %(tenant)s AND task = %(task)s
"""
# An attempt may begin before the first end that was told of, and an end may be told late.
_AROUND = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Step:
    """A circuit in one step of time."""

    at: datetime
    attempts: int
    firsts: int
    retries: int
    fallbacks: int
    redeliveries: int
    succeeded: int
    retryable: int
    permanent: int
    partial: int
    client_cancelled: int
    client_deadline: int
    local_fault: int
    failed: int
    refused_breaker: int
    refused_override: int
    refused_budget: int
    refused_other: int
    would_refuse: int
    cost_gbp: Decimal
    wasted_gbp: Decimal
    unpriced: int
    latency: Histogram
    first_byte: Histogram

    @property
    def retry_ratio(self) -> float | None:
        """Retries over firsts (design 4.7); None when no request began."""
        return self.retries / self.firsts if self.firsts else None

    def latency_ms(self, q: float) -> int | None:
        """A quantile of the attempts' latency; None without any."""
        return self.latency.quantile(q)

    def first_byte_ms(self, q: float) -> int | None:
        """A quantile of the time to the first byte; None without any."""
        return self.first_byte.quantile(q)


@dataclass(frozen=True, slots=True)
class OpenInterval:
    """One breaker not Closed. Not ``certain``: transitions within are missing. ``silent``: nothing
    was heard of the instance after ``until``.
    """

    gateway: str
    slot: str
    state: str
    cause: str
    since: datetime
    until: datetime
    certain: bool
    silent: bool


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One event of a task. ``verdict`` of a refusal is its gate; ``ended_ms`` of an outcome is the
    request's latency.
    """

    kind: str
    occurred_at: datetime
    id: UUID
    request: UUID | None
    provider: str | None
    model: str | None
    region: str | None
    ordinal: int | None
    role: str | None
    verdict: str | None
    reason: str
    status: int | None
    waited_ms: int | None
    first_byte_ms: int | None
    ended_ms: int | None
    served: bool | None
    success: bool | None
    explicit: bool | None
    cost_gbp: Decimal | None
    cost_status: str | None


@dataclass(frozen=True, slots=True)
class Trace:
    """A task: its result as known (None: still none), its events, and its cost without what has no
    price, which is counted.
    """

    success: bool | None
    rows: tuple[TraceRow, ...]
    cost_gbp: Decimal
    unpriced: int


@dataclass(frozen=True, slots=True)
class Failure:
    """One attempt that did not succeed."""

    occurred_at: datetime
    id: UUID
    request: UUID
    gateway_id: int
    tenant: str
    route: str
    role: str
    verdict: str
    reason: str
    status: int | None
    ended_ms: int | None
    counts: bool
    cost_gbp: Decimal | None


@dataclass(frozen=True, slots=True)
class TenantWaste:
    """A tenant's spend in whole hours."""

    tenant: str
    attempts: int
    cost_gbp: Decimal
    wasted_gbp: Decimal
    wasted_final_gbp: Decimal
    wasted_final_unpriced: int
    tasks_succeeded: int
    tasks_failed: int


@dataclass(frozen=True, slots=True)
class Lost:
    """What is missing of one instance: batches that are lost, or ``awaited`` for less than two
    minutes; unreadable events, events it had to drop; what came late or ahead of our clock; and
    whether it speaks on although its slot has another.
    """

    gateway: str
    slot: str
    boot_id: UUID
    last_seen_at: datetime
    batches: int
    awaited: int
    unread: int
    dropped: int
    dropped_by_kind: dict[str, int]
    late: int
    skewed: int
    slot_shared: bool


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One event that could not be read or stored, its place in its batch, and its first bytes."""

    gateway: str
    slot: str | None
    boot_id: UUID | None
    seq: int
    index: int
    received_at: datetime
    reason: str
    body: bytes


def circuit_series(circuit: int, start: datetime, end: datetime, step: timedelta) -> list[Step]:
    """A circuit's steps that have anything in them, in order; ``step`` is whole minutes.

    A day in steps of whole five minutes of the clock takes a third of the time of any other.
    """
    values: dict[str, Any] = {"circuit": circuit, "start": start, "end": end, "step": step}
    values["fives"] = is_of_fives(start, step)
    connection.ensure_connection()
    # Binary: a day of a busy circuit's minutes is 150,000 bins, and as text that was half of it.
    with psycopg.Cursor(connection.connection) as cursor:
        cursor.execute(named_sql(_SQL / "circuit_series.sql").encode(), values, binary=True)
        rows = cursor.fetchall()
    return [Step(*(*row[:-2], Histogram(row[-2]), Histogram(row[-1]))) for row in rows]


def open_intervals(circuit: int, start: datetime, end: datetime) -> list[OpenInterval]:
    """When a circuit's breakers were Open or HalfOpen, by instance."""
    since = start - timedelta(days=settings.RAW_RETENTION_DAYS)
    values = {"circuit": circuit, "start": start, "end": end, "since": since}
    return [OpenInterval(*row) for row in _rows("open_intervals", values)]


def task_trace(gateway: int, tenant: str, task: str) -> Trace | None:
    """All of a task that carries the header; None when no request of it has ended yet."""
    values: dict[str, Any] = {"gateway": gateway, "tenant": tenant, "task": task}
    with connection.cursor() as cursor:
        cursor.execute(_TASK, values)
        found = cursor.fetchone()
    if found is None:
        return None
    begun, ended, explicit, implicit = found
    values |= {"start": begun - _AROUND, "end": ended + _AROUND}
    rows = tuple(TraceRow(*row) for row in _rows("task_trace", values))
    attempts = [row for row in rows if row.kind == "attempt"]
    return Trace(
        success=implicit if explicit is None else explicit,
        rows=rows,
        cost_gbp=sum((row.cost_gbp for row in attempts if row.cost_gbp), Decimal(0)),
        unpriced=sum(row.cost_gbp is None for row in attempts),
    )


def newest_failures(circuit: int, start: datetime, end: datetime, limit: int) -> list[Failure]:
    """A circuit's newest attempts that did not succeed."""
    values = {"circuit": circuit, "start": start, "end": end, "limit": limit}
    return [Failure(*row) for row in _rows("newest_failures", values)]


def tenants_by_waste(start: datetime, end: datetime, limit: int) -> list[TenantWaste]:
    """The tenants that wasted most in the whole hours of the range."""
    values = {"start": start, "end": end, "limit": limit}
    return [TenantWaste(*row) for row in _rows("tenants_by_waste", values)]


def lost_telemetry(since: datetime) -> list[Lost]:
    """Instances heard of since then, of whose telemetry something is missing, late or skewed."""
    return [
        Lost(*(*row[:8], _kinds(row[8]), *row[9:]))
        for row in _rows("lost_telemetry", {"since": since})
    ]


def _kinds(said: str | dict[str, int]) -> dict[str, int]:
    """Counts by kind, the largest first; Django gives a JSON column of plain SQL as text."""
    counts: dict[str, int] = json.loads(said) if isinstance(said, str) else said
    return dict(sorted(counts.items(), key=lambda one: (-one[1], one[0])))


def dead_letters(
    since: datetime, until: datetime, gateway: str | None, limit: int
) -> list[DeadLetter]:
    """Dead letters that came in [since, until), newest first."""
    values = {"since": since, "until": until, "gateway": gateway, "limit": limit}
    return [DeadLetter(*(*row[:-1], bytes(row[-1]))) for row in _rows("dead_letters", values)]


def _rows(name: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(named_sql(_SQL / f"{name}.sql"), values)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows
