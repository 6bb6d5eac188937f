"""How the work behind the figures fares: beat and worker, each job, what is derived, which days.

Invariant: it is what is stored, as of one statement; ``background_conditions`` judges it. Times are
aware.
"""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path

import msgspec
from django.conf import settings
from django.db import connection
from msgspec import Struct
from psycopg import AsyncConnection

from controlplane.models.pool import named_sql

_SQL = Path(__file__).parent / "sql" / "background.sql"


class Job(Struct, frozen=True):
    """One background job as it was last seen."""

    name: str
    succeeded_at: datetime | None
    failing_since: datetime | None
    failed_at: datetime | None
    error: str


class Claim(Struct, frozen=True):
    """A gateway whose word minted epochs more than once within 24 hours, or was refused."""

    gateway: str
    mints: int
    refused: int
    why: str
    at: datetime


class Work(Struct, frozen=True, kw_only=True):
    """One reading. ``minute`` and ``hour`` are watermarks; days are of partitions, UTC."""

    at: datetime
    beat_at: datetime | None = None
    jobs: list[Job] = []
    claims: list[Claim] = []
    minute: datetime
    hour: datetime
    minutes_waiting: int = 0
    hours_waiting: int = 0
    retention_days: int
    first_day: date | None = None
    last_day: date | None = None

    def job(self, name: str) -> Job:
        """A job; one that has never run has neither failed nor succeeded."""
        found = (job for job in self.jobs if job.name == name)
        return next(found, Job(name, None, None, None, ""))


def read() -> Work:
    """The present, over Django's connection."""
    with connection.cursor() as cursor:
        cursor.execute(named_sql(_SQL), _values())
        return msgspec.json.decode(cursor.fetchone()[0], type=Work)


async def read_on(conn: AsyncConnection) -> Work:
    """The present, over a connection of the process's pool."""
    row = await (await conn.execute(named_sql(_SQL), _values())).fetchone()
    assert row is not None
    return msgspec.json.decode(row[0], type=Work)


def _values() -> dict[str, int]:
    return {"retention_days": settings.RAW_RETENTION_DAYS}


def database_bytes() -> int:
    """What the database takes on its disk: Postgres cannot say how much room is left there."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database())")
        return int(cursor.fetchone()[0])
