"""What became of each background job, written down for people (``reports/background``).

Invariant: a job that ended well stands as failing no more; ``failing_since`` is the first failure
after its last success. A success is written at most every half minute: a job may run every second.
"""

from __future__ import annotations

import psycopg
from psycopg import Connection

from controlplane.domain.text import readable

_LONGEST_ERROR = 500
_SUCCEEDED = """
INSERT INTO background_job AS j (name, succeeded_at) VALUES (%s, now())
ON CONFLICT (name) DO UPDATE SET succeeded_at = now(), failing_since = NULL, error = ''
WHERE j.failing_since IS NOT NULL OR j.succeeded_at IS NULL
   OR j.succeeded_at < now() - interval '30 seconds'
"""
_FAILED = """
INSERT INTO background_job AS j (name, failing_since, failed_at, error)
VALUES (%(name)s, now(), now(), %(error)s)
ON CONFLICT (name) DO UPDATE SET failing_since = COALESCE(j.failing_since, now()),
    failed_at = now(), error = EXCLUDED.error
"""


def succeeded(conn: Connection, name: str) -> None:
    """The job of this name has ended well. ``conn`` must autocommit."""
    conn.execute(_SUCCEEDED, (name,))


def failed(conn: Connection, name: str, error: Exception) -> None:
    """It has failed. ``conn`` must autocommit."""
    conn.execute(_FAILED, {"name": name, "error": words_of(error)})


def words_of(error: Exception) -> str:
    """An error in one bounded line that can be shown: its kind, its first line, its notes.

    Of Postgres' errors the primary message: context and detail may quote rows.
    """
    said = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    first = next(iter((said or str(error)).splitlines()), "")
    notes = "; ".join(getattr(error, "__notes__", ()))
    words = f"{type(error).__name__}: {first}" + (f" ({notes})" if notes else "")
    return readable(words.replace("\n", " "))[:_LONGEST_ERROR]
