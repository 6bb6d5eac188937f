"""Liveness and readiness.

Invariant: ``/healthz`` says only that this process answers; ``/readyz`` that it can reach Postgres,
and beside that what guards the audit: a weak guard is told and never makes a process unready.
"""

from __future__ import annotations

from controlplane.api.hot.http import Receive, Scope, Send, answer_json
from controlplane.errors import Busy
from controlplane.models.pool import named_sql, pool
from controlplane.models.privileges import WEAKNESS


async def healthz(scope: Scope, receive: Receive, send: Send) -> None:
    """200 while the loop runs."""
    await answer_json(send, {"status": "ok"})


async def readyz(scope: Scope, receive: Receive, send: Send) -> None:
    """200 when a query of the revision row comes back, else 503."""
    try:
        async with (await pool()).connection(timeout=2) as connection:
            await connection.execute("SELECT value FROM revision")
            weak = await (await connection.execute(named_sql(WEAKNESS))).fetchone()
    except Exception as error:
        raise Busy(f"Postgres does not answer: {type(error).__name__}", retry_after_s=1) from error
    audit = {"guard": "trigger", "because": weak[0]} if weak else {"guard": "privilege"}
    await answer_json(send, {"status": "ready", "audit": audit})
