"""The hot paths' way to Postgres: one async psycopg pool in each web process, no ORM.

Invariant: every connection carries the time limits of design 6, so no statement of ours holds a
lock for longer than they say; named SQL lives in files and is read once.
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from weakref import WeakKeyDictionary

import psycopg
from django.conf import settings
from psycopg_pool import AsyncConnectionPool, PoolTimeout

_LIMITS = (
    "-c idle_in_transaction_session_timeout=5000 -c lock_timeout=2000"
    " -c statement_timeout=10000 -c timezone=UTC -c jit=off"
)

# What says nothing of the statement, only that this connection is no more: try again on another.
# Postgres ends a transaction that was idle for too long (a process that was stopped, or starved on
# a busy machine) with an error that its driver counts among those of the program; so it does where
# a standby answers in the place of what it was to replace, and where a commit became a rollback.
AWAY = (
    psycopg.OperationalError,
    PoolTimeout,
    psycopg.errors.IdleInTransactionSessionTimeout,
    psycopg.errors.ReadOnlySqlTransaction,
    psycopg.errors.InFailedSqlTransaction,
)


def is_timeout(error: BaseException) -> bool:
    """True when Postgres has ended a statement at its time limit: it answers, only not that."""
    return isinstance(error.__cause__, psycopg.errors.QueryCanceled)


def conninfo(**extra: str) -> str:
    """The libpq connection string of the default database."""
    database = settings.DATABASES["default"]
    parts = {
        "dbname": database["NAME"],
        "user": database["USER"],
        "password": database["PASSWORD"],
        "host": database["HOST"],
        "port": database["PORT"],
        "connect_timeout": "5",
        "options": _LIMITS,
    }
    return psycopg.conninfo.make_conninfo(**{k: v for k, v in parts.items() if v}, **extra)


# A connection that was good so lately is believed: asking it first doubles the round trips of a
# busy second. After a restart of Postgres a caller within that second is told to try again.
_BELIEVED_SECONDS = 1.0
_good_at: WeakKeyDictionary[psycopg.AsyncConnection, float] = WeakKeyDictionary()


async def _check(connection: psycopg.AsyncConnection) -> None:
    """Ask a connection whether it is still one, unless it was lately. Raises ``psycopg.Error``."""
    now = time.monotonic()
    if now - _good_at.get(connection, float("-inf")) > _BELIEVED_SECONDS:
        await AsyncConnectionPool.check_connection(connection)
        _good_at[connection] = now


_pool: AsyncConnectionPool | None = None


async def pool() -> AsyncConnectionPool:
    """This process's pool, opened at its first use within the running loop."""
    global _pool
    if _pool is None:
        _pool = AsyncConnectionPool(
            conninfo(),
            min_size=1,
            max_size=8,
            open=False,
            timeout=5,
            # Given up soon, an attempt is made anew with the next question. With 30 s of growing
            # waits, Postgres was back for 9 s after 20 s of absence before anybody asked it again.
            reconnect_timeout=2,
            kwargs={"autocommit": True},
            check=_check,
        )
        await _pool.open(wait=False)
    return _pool


async def close_pool() -> None:
    """Close the pool; the next ``pool()`` opens a new one (a test's next loop, a restart)."""
    global _pool
    if _pool is not None:
        closing, _pool = _pool, None
        await closing.close(timeout=2)


@cache
def named_sql(path: Path) -> str:
    """The text of a named SQL file."""
    return path.read_text(encoding="utf-8")
