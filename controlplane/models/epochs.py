"""A new epoch, when the database turns out to be older than what a gateway was told (design 5.1).

Invariant: compare-and-set: of any number of gateways that come back to a restored backup, the first
one mints the epoch and the others find it minted. The audit says whose word it was.
"""

from __future__ import annotations

from datetime import datetime

from psycopg import AsyncConnection

_RENEW = """
WITH minted AS (
    UPDATE revision SET epoch = gen_random_uuid() WHERE epoch::text = %(seen)s
    RETURNING epoch::text AS epoch, value
)
INSERT INTO audit_entry (at, actor, actor_kind, action, object_kind, object_name, reason,
                         before, after, address, request_id, resource_version)
SELECT %(now)s, 'system', 'system', 'new_epoch', 'Installation', 'switchgear', %(why)s,
       jsonb_build_object('epoch', %(seen)s::text), jsonb_build_object('epoch', epoch), '', '',
       value
FROM minted RETURNING after ->> 'epoch'
"""


async def renew(conn: AsyncConnection, seen: str, why: str, now: datetime) -> str | None:
    """Mint an epoch in the place of ``seen``; None when somebody has done so already."""
    values = {"seen": seen, "why": why[:1000], "now": now}
    row = await (await conn.execute(_RENEW, values)).fetchone()
    return None if row is None else str(row[0])
