"""Who and what a gateway speaks of: rows of circuits and of instances, made at their first mention.

Invariants: a circuit's id never changes, so a process may keep it for ever once it is committed;
a boot that lost its slot never gets it back, so events of a dead worker that arrive late, under its
old boot id, are history and never the present (design 5.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus

from controlplane.domain.circuit import Circuit

_CACHE_LIMIT = 50_000
# A boot that was stored without ever having its slot: replaced before it was first seen.
_NEVER_CURRENT = timedelta(microseconds=1)
_known: dict[Circuit, int] = {}
# Instances whose next batch can change nothing about their slot: only those are remembered.
_settled: dict[tuple[int, UUID], int] = {}

# A gateway that sends more names than these has its further ones counted as one circuit.
MOST_CIRCUITS = 500
OTHER = Circuit("(other)", "(other)")
_of_gateway: dict[tuple[int, Circuit], int] = {}
_folded: set[int] = set()

_LOCK_CIRCUITS = "SELECT pg_advisory_xact_lock(hashtextextended('switchgear_circuits', %s))"
_CIRCUITS_OF_GATEWAY = "SELECT circuit_id FROM gateway_circuit WHERE gateway_id = %s"
_ADD_TO_GATEWAY = """
INSERT INTO gateway_circuit (gateway_id, circuit_id) SELECT %s, unnest(%s::bigint[])
ON CONFLICT DO NOTHING
"""
_FIND_CIRCUITS = """
SELECT c.id, c.provider, c.model, c.region
FROM circuit c
JOIN unnest(%s::text[], %s::text[], %s::text[]) AS w(provider, model, region)
  USING (provider, model, region)
"""
_ADD_CIRCUITS = """
INSERT INTO circuit (provider, model, region, first_seen_at)
SELECT provider, model, region, %s
FROM unnest(%s::text[], %s::text[], %s::text[]) AS w(provider, model, region)
ON CONFLICT (provider, model, region) DO NOTHING
"""
_FIND_INSTANCE = """
SELECT id, replaced_at IS NULL AND goodbye_at IS NULL, replaced_at < first_seen_at
FROM instance WHERE gateway_id = %s AND boot_id = %s
"""
_LOCK_SLOT = "SELECT pg_advisory_xact_lock(hashtextextended(%s, %s))"
_REPLACE = """
UPDATE instance SET replaced_at = GREATEST(%(now)s, first_seen_at)
WHERE gateway_id = %(gateway)s AND slot = %(slot)s AND boot_id <> %(boot)s
  AND replaced_at IS NULL AND goodbye_at IS NULL AND last_seen_at <= %(alive_at)s
"""
_SLOT_IS_TAKEN = """
SELECT EXISTS (SELECT FROM instance WHERE gateway_id = %(gateway)s AND slot = %(slot)s
               AND boot_id <> %(boot)s AND replaced_at IS NULL AND goodbye_at IS NULL)
"""
_PUT_INSTANCE = """
INSERT INTO instance (gateway_id, boot_id, slot, first_seen_at, last_seen_at, replaced_at,
                      version, status_seq, epoch, received_generation, applied_generation,
                      applied_hash, config_source, items, spool, clock, capabilities,
                      contiguous_seq, highest_seq)
VALUES (%(gateway)s, %(boot)s, %(slot)s, %(now)s, %(alive_at)s, %(replaced_at)s,
        '', 0, '', 0, 0, '', '', '[]', '{}', '{}', '[]', 0, 0)
ON CONFLICT (gateway_id, boot_id) DO UPDATE SET replaced_at = EXCLUDED.replaced_at
    WHERE instance.replaced_at < instance.first_seen_at AND EXCLUDED.replaced_at IS NULL
"""


async def circuit_ids(
    conn: AsyncConnection, circuits: Iterable[Circuit], now: datetime
) -> dict[Circuit, int]:
    """The row id of each circuit; unknown ones are added with ``first_seen_at`` = ``now``.

    Call it outside a transaction: then new rows are committed at once, no batch waits for another
    one's new circuit, and the ids are kept in this process. Inside one it works, without keeping.
    """
    wanted = sorted(set(circuits))
    missing = [circuit for circuit in wanted if circuit not in _known]
    if not missing:
        return {circuit: _known[circuit] for circuit in wanted}
    found = await _find(conn, missing)
    new = [circuit for circuit in missing if circuit not in found]
    if new:
        # Sorted, so that two processes that meet the same new circuits cannot deadlock.
        await conn.execute(_ADD_CIRCUITS, (now, *_columns(new)))
        found |= await _find(conn, new)
    if conn.info.transaction_status is TransactionStatus.IDLE:
        if len(_known) > _CACHE_LIMIT:
            _known.clear()
        _known.update(found)
    return {c: found[c] if c in found else _known[c] for c in wanted}


async def circuit_ids_of(
    conn: AsyncConnection, gateway_id: int, circuits: Iterable[Circuit], now: datetime
) -> dict[Circuit, int]:
    """The row id of each circuit that a gateway's events name; ``OTHER``'s for those too many.

    Call it outside a transaction. Whoever makes up names fills 500 rows and no more.
    """
    wanted = set(circuits)
    missing = sorted(c for c in wanted if (gateway_id, c) not in _of_gateway)
    if missing:
        if len(_of_gateway) > _CACHE_LIMIT:
            _of_gateway.clear()
            missing = sorted(wanted)
        async with conn.transaction():
            # One at a time for a gateway: two batches must not both take the last places.
            await conn.execute(_LOCK_CIRCUITS, (gateway_id,))
            rows = await conn.execute(_CIRCUITS_OF_GATEWAY, (gateway_id,))
            held = {row[0] for row in await rows.fetchall()}
            found = await _find(conn, missing)
            known = {c: i for c, i in found.items() if i in held}
            new = [c for c in missing if c not in known][: max(0, MOST_CIRCUITS - len(held))]
            added = await circuit_ids(conn, new, now)
            await conn.execute(_ADD_TO_GATEWAY, (gateway_id, sorted(added.values())))
            ids = known | added
            if len(ids) < len(missing):
                other = (await circuit_ids(conn, [OTHER], now))[OTHER]
                _folded.add(other)
                ids |= {c: other for c in missing if c not in ids}
        _of_gateway.update(((gateway_id, c), i) for c, i in ids.items())
    return {c: _of_gateway[gateway_id, c] for c in wanted}


async def _find(conn: AsyncConnection, circuits: list[Circuit]) -> dict[Circuit, int]:
    cursor = await conn.execute(_FIND_CIRCUITS, _columns(circuits))
    return {Circuit(p, m, r): found_id async for found_id, p, m, r in cursor}


def _columns(circuits: list[Circuit]) -> tuple[list[str], list[str], list[str]]:
    return (
        [c.provider for c in circuits],
        [c.model for c in circuits],
        [c.region for c in circuits],
    )


def forget_circuits() -> None:
    """Empty the process's caches: the database is another one (a new epoch, a test's clean-up)."""
    _known.clear()
    _settled.clear()
    _of_gateway.clear()
    _folded.clear()


def stands_for_many(circuit_id: int | None) -> bool:
    """True for ``OTHER``'s id: it has counts, but no one breaker."""
    return circuit_id in _folded


async def instance_id_of(
    conn: AsyncConnection,
    gateway_id: int,
    boot_id: UUID,
    slot: str,
    now: datetime,
    *,
    alive_at: datetime,
) -> int:
    """The id of ``instance_row``, remembered by this process. Call it outside a transaction."""
    key = (gateway_id, boot_id)
    known = _settled.get(key)
    if known is None:
        known, current = await instance_row(conn, gateway_id, boot_id, slot, now, alive_at=alive_at)
        if current:
            if len(_settled) > _CACHE_LIMIT:
                _settled.clear()
            _settled[key] = known
    return known


async def instance_row(
    conn: AsyncConnection,
    gateway_id: int,
    boot_id: UUID,
    slot: str,
    now: datetime,
    *,
    alive_at: datetime | None = None,
) -> tuple[int, bool]:
    """The instance's row id, and whether it is the current boot of its slot; registers a new boot.

    ``alive_at`` is when the boot is known to have lived: ``now`` for a status report (the default),
    the newest event's time for a batch. A new boot takes its slot if it lived after the last word
    of the boot that has it; otherwise it is stored as replaced already, and takes the slot only
    once it proves to be later (its first report). Safe to call inside or outside a transaction.
    """
    found = await _instance(conn, gateway_id, boot_id)
    if found is not None:
        instance_id, current, never_current = found
        if current or not never_current:
            return instance_id, current
    lived = min(alive_at or now, now)
    values = {"gateway": gateway_id, "boot": boot_id, "slot": slot, "now": now, "alive_at": lived}
    async with conn.transaction():
        # One slot at a time: two first words of two boots must not both find it free.
        await conn.execute(_LOCK_SLOT, (slot, gateway_id))
        await conn.execute(_REPLACE, values)
        cursor = await conn.execute(_SLOT_IS_TAKEN, values)
        row = await cursor.fetchone()
        assert row is not None
        replaced_at = now - _NEVER_CURRENT if row[0] else None
        await conn.execute(_PUT_INSTANCE, values | {"replaced_at": replaced_at})
        found = await _instance(conn, gateway_id, boot_id)
    assert found is not None
    return found[0], found[1]


async def _instance(
    conn: AsyncConnection, gateway_id: int, boot_id: UUID
) -> tuple[int, bool, bool] | None:
    cursor = await conn.execute(_FIND_INSTANCE, (gateway_id, boot_id))
    row = await cursor.fetchone()
    return None if row is None else (row[0], row[1], bool(row[2]))
