"""Liveness and readiness.

Invariant: ``/healthz`` says only that this process answers; ``/readyz`` that it can reach Postgres.
"""

from __future__ import annotations

from controlplane.api.hot.http import Receive, Scope, Send, answer_json
from controlplane.errors import Busy
from controlplane.models.pool import pool


async def healthz(scope: Scope, receive: Receive, send: Send) -> None:
    """200 while the loop runs."""
    await answer_json(send, {"status": "ok"})


async def readyz(scope: Scope, receive: Receive, send: Send) -> None:
    """200 when a query of the revision row comes back, else 503."""
    try:
        async with (await pool()).connection(timeout=2) as connection:
            await connection.execute("SELECT value FROM revision")
    except Exception as error:
        raise Busy(f"Postgres does not answer: {type(error).__name__}", retry_after_s=1) from error
    await answer_json(send, {"status": "ready"})
