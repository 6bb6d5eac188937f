"""A stretch of time as one read: what broke, where, since when, whose hands, and what it cost.

Invariant: everything is of [since, until) as it was recorded; nothing is extended over a time of
which no instance spoke. Times are aware; money is £, exact, by minute.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import msgspec
from django.conf import settings
from django.db import connection
from msgspec import Struct

from controlplane.domain.circuit import Circuit
from controlplane.domain.precedence import Selection
from controlplane.errors import InvalidInput
from controlplane.models.pool import named_sql

_SQL = Path(__file__).parent / "sql"
LONGEST = timedelta(days=1)
SHORTEST = timedelta(minutes=1)
CALM = timedelta(minutes=15)  # without anything open: the next opening is another incident


class Minute(Struct, frozen=True, array_like=True):
    """The fleet's minute."""

    minute: datetime
    attempts: int
    firsts: int
    retries: int
    failed: int
    refused_budget: int
    cost_gbp: Decimal
    wasted_gbp: Decimal
    unpriced: int


class ErrorCount(Struct, frozen=True, array_like=True):
    """Attempts of a minute that failed for one reason."""

    minute: datetime
    reason: str
    count: int


class Change(Struct, frozen=True, array_like=True):
    """One breaker of one instance changed."""

    instance_id: int
    circuit_id: int
    at: datetime
    from_state: str
    to_state: str
    cause: str
    mode: str


class Standing(Struct, frozen=True, array_like=True):
    """The newest change before the stretch."""

    instance_id: int
    circuit_id: int
    state: str
    mode: str


class Watcher(Struct, frozen=True, array_like=True):
    """A breaker's present row: that this instance has the circuit at all."""

    instance_id: int
    circuit_id: int
    state: str
    mode: str
    since: datetime


class CircuitName(Struct, frozen=True, array_like=True):
    """A circuit that was open in the stretch."""

    id: int
    provider: str
    model: str
    region: str

    @property
    def circuit(self) -> Circuit:
        """Its identity."""
        return Circuit(self.provider, self.model, self.region)


class Presence(Struct, frozen=True, array_like=True):
    """When an instance spoke. ``over_at``: it said goodbye, or its slot's next boot came."""

    id: int
    gateway: str
    slot: str
    began_at: datetime
    last_seen_at: datetime
    over_at: datetime | None

    @property
    def name(self) -> str:
        """With its gateway: slots of two gateways may have one name."""
        return f"{self.gateway}/{self.slot}"


class Hand(Struct, frozen=True, kw_only=True):
    """An override that was in force for some of the stretch."""

    uid: UUID
    name: str
    mode: str
    gateway: str
    selector: str
    provider: str
    model: str
    region: str
    reason: str
    created_at: datetime
    created_by: str
    over_at: datetime
    end_cause: str

    @property
    def selection(self) -> Selection:
        """What it is about."""
        return Selection(self.gateway, self.selector, self.provider, self.model, self.region)


class Delivered(Struct, frozen=True, array_like=True):
    """What one instance said of a hand: its last verdict, and when it first said it."""

    uid: UUID
    instance_id: int
    verdict: str
    reason: str
    at: datetime | None
    lifted_at: datetime | None


class Mark(Struct, frozen=True, array_like=True):
    """A person's mark."""

    uid: UUID
    at: datetime
    text: str
    created_by: str


class _Rows(Struct, frozen=True, kw_only=True):
    minutes: list[Minute]
    errors: list[ErrorCount]
    changes: list[Change]
    before: list[Standing]
    circuits: list[CircuitName]
    watchers: list[Watcher]
    instances: list[Presence]
    overrides: list[Hand]
    deliveries: list[Delivered]
    marks: list[Mark]
    limit_per_mille: int | None


class Incident(_Rows, frozen=True, kw_only=True):
    """The whole read. ``at``: when it was read; nothing is known of later than this."""

    since: datetime
    until: datetime
    at: datetime

    @property
    def minutes_gone(self) -> bool:
        """True when some of the stretch is older than what is kept."""
        return self.since < self.at - timedelta(days=settings.RAW_RETENTION_DAYS)


class Episode(Struct, frozen=True):
    """A time in which something was open. ``until`` None: still is."""

    since: datetime
    until: datetime | None
    providers: tuple[str, ...]
    circuits: int


def read(since: datetime, until: datetime, at: datetime) -> Incident:
    """Everything of a stretch. ``InvalidInput`` when it is empty or longer than a day."""
    if not SHORTEST <= until - since <= LONGEST:
        fault = {"field": "to", "message": "from 1 min to 24 h after its beginning"}
        raise InvalidInput("A timeline is 1 min to 24 h long.", errors=[fault])
    with connection.cursor() as cursor:
        cursor.execute(named_sql(_SQL / "incident.sql"), {"since": since, "until": until})
        rows = msgspec.json.decode(cursor.fetchone()[0], type=_Rows)
    fields = {name: getattr(rows, name) for name in _Rows.__struct_fields__}
    return Incident(since=since, until=until, at=at, **fields)


def episodes(at: datetime) -> list[Episode]:
    """The incidents of the day before ``at``, oldest first."""
    with connection.cursor() as cursor:
        cursor.execute(named_sql(_SQL / "openings.sql"), {"at": at})
        return merged(cursor.fetchall())


def merged(rows: list[tuple[int, int, datetime, str, str, str]]) -> list[Episode]:
    """Openings (instance, circuit, at, from, to, provider) in time order, as episodes. Pure."""
    found: list[Episode] = []
    opened: set[tuple[int, int]] = set()
    since: datetime | None = None
    calm_at: datetime | None = None
    providers: set[str] = set()
    circuits: set[int] = set()
    for instance, circuit, at, _, to_state, provider in rows:
        if since is not None and calm_at is not None and at - calm_at >= CALM:
            found.append(Episode(since, calm_at, tuple(sorted(providers)), len(circuits)))
            since, providers, circuits = None, set(), set()
        if to_state == "Open":
            since = since or at
            opened.add((instance, circuit))
            providers.add(provider)
            circuits.add(circuit)
        else:
            opened.discard((instance, circuit))
        calm_at = None if opened else at
    if since is not None:
        found.append(Episode(since, calm_at, tuple(sorted(providers)), len(circuits)))
    return found
