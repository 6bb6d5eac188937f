"""Receipts: the control plane's memory of which batches it has stored.

Invariant: a batch's receipt is written first and committed with its events, so a batch is stored
wholly or not at all, and a repeat, even one that runs at the same time, is answered from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec
from psycopg import AsyncConnection, AsyncCursor

from controlplane.ingest.arrays import array_of, array_of_times, zeros
from controlplane.ingest.facts import Facts
from controlplane.ingest.prepare import Prepared
from controlplane.ingest.read import DeadLetter
from controlplane.models.pool import named_sql
from controlplane.wire.events import Unread

_CONTIGUOUS = Path(__file__).parent / "sql" / "contiguous.sql"
_CLAIM = """
INSERT INTO receipt (gateway_id, instance_id, seq, received_at, sent_at,
                     stored, duplicates, late, skewed)
SELECT * FROM unnest(%s::int[], %s::bigint[], %s::bigint[], %s::timestamptz[], %s::timestamptz[],
                     %s::int[], %s::int[], %s::int[], %s::int[])
    AS r(gateway_id, instance_id, seq, received_at, sent_at, stored, duplicates, late, skewed)
ORDER BY gateway_id, instance_id, seq
ON CONFLICT (gateway_id, instance_id, seq) DO NOTHING RETURNING instance_id, seq
"""
_FILL = """
UPDATE receipt SET stored = %s, duplicates = %s, unread = %s::jsonb
WHERE gateway_id = %s AND instance_id = %s AND seq = %s
"""
_EARLIER = """
SELECT r.instance_id, r.seq, r.stored, r.duplicates, r.unread, i.contiguous_seq
FROM receipt r
JOIN unnest(%s::int[], %s::bigint[], %s::bigint[]) AS w(gateway_id, instance_id, seq)
  USING (gateway_id, instance_id, seq)
JOIN instance i ON i.id = r.instance_id
"""
_LOCK_INSTANCES = """
SELECT id, contiguous_seq, highest_seq FROM instance
WHERE id = ANY(%s::bigint[]) ORDER BY id FOR NO KEY UPDATE
"""
_MOVE_ON = """
UPDATE instance AS i SET contiguous_seq = w.contiguous,
    highest_seq = GREATEST(i.highest_seq, w.highest),
    last_seen_at = GREATEST(i.last_seen_at, w.seen)
FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::timestamptz[])
    AS w(id, contiguous, highest, seen)
WHERE i.id = w.id
"""
# Holes in an instance's numbers, while its row is held; one is parted by a number that comes after
# all. Numbers that come in order, as nearly all do, touch none.
_OPEN_GAP = """
INSERT INTO batch_gap (instance_id, first_seq, last_seq, since) VALUES (%s, %s, %s, %s)
"""
_FILL_GAP = """
WITH filled AS (
    DELETE FROM batch_gap
    WHERE instance_id = %(instance)s AND first_seq <= %(seq)s AND last_seq >= %(seq)s
    RETURNING first_seq, last_seq, since
)
INSERT INTO batch_gap (instance_id, first_seq, last_seq, since)
SELECT %(instance)s, part.first_seq, part.last_seq, filled.since
FROM filled CROSS JOIN LATERAL (
    VALUES (filled.first_seq, %(seq)s::bigint - 1), (%(seq)s::bigint + 1, filled.last_seq)
) AS part(first_seq, last_seq)
WHERE part.first_seq <= part.last_seq
"""
_DEAD_LETTERS = """
INSERT INTO dead_letter (gateway_id, instance_id, seq, index, received_at, reason, body)
SELECT * FROM unnest(%s::int[], %s::bigint[], %s::bigint[], %s::int[], %s::timestamptz[],
                     %s::text[], %s::bytea[])
"""

Key = tuple[int, int]
"""Instance and seq."""


class InstanceGone(Exception):
    """An instance of the group is not there any more: its gateway was deleted."""


class OlderDatabase(Exception):
    """A gateway has a receipt of this epoch that this database never gave: it is a restored backup.

    The text says whose word that is; ``gateway_id`` and ``instance`` (the boot) too.
    """

    def __init__(self, prepared: Prepared, what: str) -> None:
        batch = prepared.batch
        super().__init__(f"instance {batch.instance} ({batch.slot}) was {what}")
        self.gateway_id, self.instance = prepared.origin.gateway_id, batch.instance


@dataclass(frozen=True, slots=True)
class Stored:
    """What a receipt says of its batch."""

    stored: int
    duplicates: int
    unread: list[Unread]
    contiguous: int


@dataclass(slots=True)
class Place:
    """Where an instance's numbering stands; ``highest`` as it was before this group."""

    contiguous: int
    highest: int


def key_of(prepared: Prepared) -> Key:
    """What a batch is known by."""
    return (prepared.origin.instance_id, prepared.batch.seq)


@dataclass(frozen=True, slots=True)
class Claim:
    """What was asked of Postgres: receipts to write, instances to lock."""

    wrote: AsyncCursor
    locked: AsyncCursor
    instances: int

    async def taken(self) -> tuple[set[Key], dict[int, Place]]:
        """The receipts that were not there, and where each instance's numbering stands.

        Raises ``InstanceGone``.
        """
        places = {row[0]: Place(row[1], row[2]) for row in await self.locked.fetchall()}
        if len(places) < self.instances:
            raise InstanceGone
        return {(row[0], row[1]) for row in await self.wrote.fetchall()}, places


async def claim(conn: AsyncConnection, group: Sequence[Prepared]) -> Claim:
    """Write receipts, hold the instances until commit. Waits for others with the same.

    Call it in a pipeline. Receipts say at once what is nearly always right, that every readable
    event is new; ``fill`` puts right the few that were not. Batches of one instance pass here one
    after another, each seeing the receipts of all before it; so ``contiguous`` is right whatever
    order they commit in. Instances are locked before anything that status reports lock after them.
    """
    columns = (
        array_of([one.origin.gateway_id for one in group]),
        array_of([one.origin.instance_id for one in group]),
        array_of([one.batch.seq for one in group]),
        array_of_times([one.origin.received_at for one in group]),
        array_of_times([one.batch.sent_at for one in group]),
        array_of([len(one.items) for one in group]),
        zeros(len(group)),
        array_of([one.batch.late for one in group]),
        array_of([one.batch.skewed for one in group]),
    )
    instances = sorted({one.origin.instance_id for one in group})
    wrote = await conn.execute(_CLAIM, columns)
    locked = await conn.execute(_LOCK_INSTANCES, (array_of(instances),))
    return Claim(wrote, locked, len(instances))


def check_told(group: Sequence[Prepared], places: dict[int, Place], facts: Facts) -> None:
    """Compare what gateways were told in this epoch with ``places`` before this group, and with
    their generations.

    Raises ``OlderDatabase``. Instances are locked, and a receipt is only given after its commit, so
    a higher number cannot be one that another process is about to commit.
    """
    for one in group:
        batch, highest = one.batch, places[one.origin.instance_id].highest
        known = facts.generations.get(one.origin.gateway_id)
        if batch.epoch != facts.version.epoch:
            continue
        if known is not None and batch.generation > known:
            raise OlderDatabase(
                one, f"told generation {batch.generation}; this database has {known}"
            )
        if batch.acknowledged > highest:
            raise OlderDatabase(
                one,
                f"given the receipt of batch {batch.acknowledged};"
                f" this database has up to {highest}",
            )


async def earlier(conn: AsyncConnection, group: Sequence[Prepared]) -> dict[Key, Stored]:
    """The answers to batches that are stored already."""
    if not group:
        return {}
    keys = [(one.origin.gateway_id, *key_of(one)) for one in group]
    cursor = await conn.execute(_EARLIER, [list(column) for column in zip(*keys, strict=True)])
    return {
        (row[0], row[1]): Stored(row[2], row[3], msgspec.convert(row[4], list[Unread]), row[5])
        for row in await cursor.fetchall()
    }


async def move_on(
    conn: AsyncConnection, claimed: Sequence[Prepared], places: dict[int, Place]
) -> None:
    """Put the instances' highest and contiguous seq forward, in the rows and in ``places``."""
    seqs: dict[int, list[int]] = {}
    seen: dict[int, datetime] = {}
    gateways: dict[int, int] = {}
    received: dict[int, datetime] = {}
    for one in claimed:
        instance, at = one.origin.instance_id, min(one.batch.newest, one.origin.received_at)
        seqs.setdefault(instance, []).append(one.batch.seq)
        seen[instance] = max(seen.get(instance, at), at)
        gateways[instance] = one.origin.gateway_id
        received[instance] = one.origin.received_at
    ids = sorted(seqs)
    for instance in ids:
        place, new = places[instance], set(seqs[instance])
        if place.highest > place.contiguous and place.contiguous + 1 in new:
            # A hole is filled: what lies behind it is known by the receipts alone.
            place.contiguous = await _run_end(conn, gateways[instance], instance, place.contiguous)
        while place.contiguous + 1 in new:
            place.contiguous += 1
        await _keep_gaps(conn, instance, place.highest, sorted(new), received[instance])
    contiguous = array_of([places[i].contiguous for i in ids])
    highest = array_of([max(seqs[i]) for i in ids])
    last_seen = array_of_times([seen[i] for i in ids])
    await conn.execute(_MOVE_ON, (array_of(ids), contiguous, highest, last_seen))


async def _keep_gaps(
    conn: AsyncConnection, instance: int, highest: int, new: Sequence[int], at: datetime
) -> None:
    """Note the holes that ``new`` numbers leave above ``highest``, and fill those below it."""
    for seq in new:
        if seq <= highest:
            await conn.execute(_FILL_GAP, {"instance": instance, "seq": seq})
            continue
        if seq > highest + 1:
            await conn.execute(_OPEN_GAP, (instance, highest + 1, seq - 1, at))
        highest = seq


async def _run_end(conn: AsyncConnection, gateway: int, instance: int, contiguous: int) -> int:
    values = {"gateway": gateway, "instance": instance, "contiguous": contiguous}
    row = await (await conn.execute(named_sql(_CONTIGUOUS), values)).fetchone()
    return max(contiguous, (row and row[0]) or 0)


async def fill(conn: AsyncConnection, prepared: Prepared, said: Stored) -> None:
    """Write into a receipt what it will answer from now on, if ``claim`` guessed otherwise."""
    if said.stored == len(prepared.items) and not said.unread:
        return
    unread = msgspec.json.encode(said.unread).decode()
    where = (prepared.origin.gateway_id, *key_of(prepared))
    await conn.execute(_FILL, (said.stored, said.duplicates, unread, *where))


async def keep_letters(
    conn: AsyncConnection, letters: Sequence[tuple[Prepared, DeadLetter]]
) -> None:
    """Keep what could not be read or stored, with the reasons."""
    if not letters:
        return
    rows = [
        (
            one.origin.gateway_id,
            *key_of(one),
            letter.index,
            one.origin.received_at,
            letter.reason,
            letter.body,
        )
        for one, letter in letters
    ]
    await conn.execute(_DEAD_LETTERS, [list(column) for column in zip(*rows, strict=True)])
