"""A new epoch, when the database turns out to be older than what a gateway was told (design 5.1).

Invariant: compare-and-set: of any number of gateways that come back to a restored backup, the first
one mints the epoch and the others find it minted. The audit says whose word it was. A gateway whose
word has minted one within a day has to wait for the next (``domain/epochs``); after a restore the
record of its mints is as old as the rest of the database, so a true one waits for nobody's lies.
"""

from __future__ import annotations

import math
from datetime import datetime

from psycopg import AsyncConnection

from controlplane.domain import epochs
from controlplane.domain.text import readable

_LONGEST_WHY = 1000
_CLAIM = """
INSERT INTO epoch_claim (gateway_id) VALUES (%(gateway)s) ON CONFLICT DO NOTHING
"""
_MINTS = """
SELECT c.mints, r.epoch::text = %(seen)s FROM epoch_claim c CROSS JOIN revision r
WHERE c.gateway_id = %(gateway)s FOR UPDATE OF c
"""
_REFUSE = """
UPDATE epoch_claim SET refused_at = %(now)s, why = %(why)s,
    refused = CASE WHEN refused_at > %(now)s - interval '24 hours' THEN refused ELSE 0 END + 1
WHERE gateway_id = %(gateway)s
"""
_RENEW = """
WITH minted AS (
    UPDATE revision SET epoch = gen_random_uuid() WHERE epoch::text = %(seen)s
    RETURNING epoch::text AS epoch, value
), noted AS (
    UPDATE epoch_claim SET mints = %(mints)s::timestamptz[] || %(now)s::timestamptz, why = %(why)s
    FROM minted WHERE gateway_id = %(gateway)s
)
INSERT INTO audit_entry (at, actor, actor_kind, action, object_kind, object_name, reason,
                         before, after, address, request_id, resource_version)
SELECT %(now)s, 'system', 'system', 'new_epoch', 'Installation', 'switchgear', %(why)s,
       jsonb_build_object('epoch', %(seen)s::text), jsonb_build_object('epoch', epoch), '', '',
       value
FROM minted RETURNING after ->> 'epoch'
"""


class EpochRefused(Exception):
    """This gateway's word has minted an epoch lately. ``wait_s``: when its word counts again."""

    def __init__(self, wait_s: int) -> None:
        super().__init__(
            "This gateway has claimed before that the database is older than what it was told, and"
            f" its word counts again in {wait_s} s. Unless a backup was restored twice, it claims"
            " what it was never told."
        )
        self.wait_s = wait_s


async def renew(
    conn: AsyncConnection, gateway: int, seen: str, why: str, now: datetime
) -> str | None:
    """Mint an epoch in the place of ``seen``; None when somebody has done so already.

    Raises ``EpochRefused``. ``conn`` must autocommit.
    """
    values = {
        "gateway": gateway,
        "seen": seen,
        "why": readable(why)[:_LONGEST_WHY],
        "now": now,
    }
    async with conn.transaction():
        await conn.execute(_CLAIM, values)
        row = await (await conn.execute(_MINTS, values)).fetchone()
        assert row is not None
        mints, is_current = row
        if not is_current:
            return None
        wait = epochs.wait(mints, now)
        if not wait:
            values["mints"] = epochs.recent(mints, now)
            minted = await (await conn.execute(_RENEW, values)).fetchone()
            return None if minted is None else str(minted[0])
        await conn.execute(_REFUSE, values)
    raise EpochRefused(math.ceil(wait.total_seconds()))
