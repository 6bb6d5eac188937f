"""Receipts: the control plane's memory of which batches it has stored.

Invariant: a batch's receipt is written first and committed with its events, so a batch is stored
wholly or not at all, and a repeat, even one that runs at the same time, is answered from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
from psycopg import AsyncConnection

from controlplane.ingest.read import DeadLetter, ReadBatch
from controlplane.ingest.rows import Origin
from controlplane.models.pool import named_sql
from controlplane.wire.events import Unread

_CONTIGUOUS = Path(__file__).parent / "sql" / "contiguous.sql"
_CLAIM = """
INSERT INTO receipt (gateway_id, instance_id, seq, received_at, sent_at,
                     stored, duplicates, late, skewed)
VALUES (%s, %s, %s, %s, %s, 0, 0, 0, 0)
ON CONFLICT (gateway_id, instance_id, seq) DO NOTHING RETURNING seq
"""
_FILL = """
UPDATE receipt SET stored = %s, duplicates = %s, late = %s, skewed = %s, unread = %s::jsonb
WHERE gateway_id = %s AND instance_id = %s AND seq = %s
"""
_EARLIER = """
SELECT r.stored, r.duplicates, r.unread, i.contiguous_seq
FROM receipt r JOIN instance i ON i.id = r.instance_id
WHERE r.gateway_id = %s AND r.instance_id = %s AND r.seq = %s
"""
_LOCK_INSTANCE = "SELECT contiguous_seq FROM instance WHERE id = %s FOR NO KEY UPDATE"
_MOVE_ON = """
UPDATE instance SET contiguous_seq = %s, highest_seq = GREATEST(highest_seq, %s),
                    last_seen_at = GREATEST(last_seen_at, %s)
WHERE id = %s
"""
_DEAD_LETTERS = """
INSERT INTO dead_letter (gateway_id, instance_id, seq, index, received_at, reason, body)
SELECT %s, %s, %s, index, %s, reason, body
FROM unnest(%s::int[], %s::text[], %s::bytea[]) AS d(index, reason, body)
"""


@dataclass(frozen=True, slots=True)
class Stored:
    """What a receipt says of its batch."""

    stored: int
    duplicates: int
    unread: list[Unread]
    contiguous: int


async def claim(conn: AsyncConnection, batch: ReadBatch, origin: Origin) -> bool:
    """Write the receipt; False when it was there. Waits for another transaction with the same."""
    cursor = await conn.execute(
        _CLAIM,
        (origin.gateway_id, origin.instance_id, batch.seq, origin.received_at, batch.sent_at),
    )
    return await cursor.fetchone() is not None


async def earlier(conn: AsyncConnection, batch: ReadBatch, origin: Origin) -> Stored:
    """The answer to a batch that is stored already."""
    cursor = await conn.execute(_EARLIER, (origin.gateway_id, origin.instance_id, batch.seq))
    row = await cursor.fetchone()
    assert row is not None
    unread = msgspec.convert(row[2], list[Unread])
    return Stored(row[0], row[1], unread, row[3])


async def lock_instance(conn: AsyncConnection, origin: Origin) -> int:
    """Hold the instance until commit and return its contiguous seq.

    Batches of one instance pass here one after another, each seeing the receipts of all before it;
    so ``contiguous`` is right whatever order they commit in. Locked before anything that status
    reports lock after it.
    """
    cursor = await conn.execute(_LOCK_INSTANCE, (origin.instance_id,))
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def move_on(conn: AsyncConnection, batch: ReadBatch, origin: Origin, contiguous: int) -> int:
    """Put the instance's highest and contiguous seq forward; returns the latter."""
    if batch.seq == contiguous + 1:
        # Only the batch that fills the first hole can move it, so no other looks for the run.
        cursor = await conn.execute(
            named_sql(_CONTIGUOUS),
            {
                "gateway": origin.gateway_id,
                "instance": origin.instance_id,
                "contiguous": contiguous,
            },
        )
        row = await cursor.fetchone()
        assert row is not None
        contiguous = max(contiguous, row[0] or 0)
    seen = min(batch.newest(), origin.received_at)
    await conn.execute(_MOVE_ON, (contiguous, batch.seq, seen, origin.instance_id))
    return contiguous


async def fill(
    conn: AsyncConnection,
    batch: ReadBatch,
    origin: Origin,
    said: Stored,
    *,
    late: int,
    skewed: int,
) -> None:
    """Write into the receipt what it will answer from now on."""
    unread = msgspec.json.encode(said.unread).decode()
    where = (origin.gateway_id, origin.instance_id, batch.seq)
    await conn.execute(_FILL, (said.stored, said.duplicates, late, skewed, unread, *where))


async def keep_letters(
    conn: AsyncConnection, batch: ReadBatch, origin: Origin, letters: list[DeadLetter]
) -> None:
    """Keep what could not be read, with the reasons."""
    if not letters:
        return
    await conn.execute(
        _DEAD_LETTERS,
        (
            origin.gateway_id,
            origin.instance_id,
            batch.seq,
            origin.received_at,
            [letter.index for letter in letters],
            [letter.reason for letter in letters],
            [letter.body for letter in letters],
        ),
    )
