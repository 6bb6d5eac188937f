"""Who and what a gateway speaks of: rows of circuits and of instances, made at their first mention.

Invariants: a circuit's id never changes, so a process may keep it for ever once it is committed;
a boot that lost its slot never gets it back, so events of a dead worker that arrive late, under its
old boot id, are history and never the present (design 5.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple
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
# Retention gives back places; a name that found none is asked for again so much later.
_FOLDED_FOR = timedelta(hours=1)
_folded_at: dict[int, datetime] = {}

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
_FIND_INSTANCES = """
SELECT i.gateway_id, i.boot_id, i.id, i.replaced_at IS NULL AND i.goodbye_at IS NULL,
       i.replaced_at < i.first_seen_at
FROM instance i JOIN unnest(%s::bigint[], %s::uuid[]) AS w(gateway_id, boot_id)
  USING (gateway_id, boot_id)
"""
_LOCK_SLOT = "SELECT pg_advisory_xact_lock(hashtextextended(%s, %s))"
_REPLACE = """
UPDATE instance SET replaced_at = GREATEST(%(now)s, first_seen_at)
WHERE gateway_id = %(gateway)s AND slot = %(slot)s AND boot_id <> %(boot)s
  AND replaced_at IS NULL AND goodbye_at IS NULL AND last_seen_at <= %(alive_at)s
"""
_PUT_INSTANCE = """
INSERT INTO instance (gateway_id, boot_id, slot, first_seen_at, last_seen_at, replaced_at,
                      version, status_seq, epoch, received_generation, applied_generation,
                      applied_hash, config_source, items, spool, clock, capabilities,
                      contiguous_seq, highest_seq)
VALUES (%(gateway)s, %(boot)s, %(slot)s::varchar, %(now)s, %(alive_at)s,
        CASE WHEN EXISTS (SELECT FROM instance
                          WHERE gateway_id = %(gateway)s AND slot = %(slot)s::varchar
                            AND boot_id <> %(boot)s AND replaced_at IS NULL AND goodbye_at IS NULL)
             THEN %(never_current)s END,
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
    if now - _folded_at.get(gateway_id, now) > _FOLDED_FOR:
        _forget_folded(gateway_id)
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
                _folded_at.setdefault(gateway_id, now)
                ids |= {c: other for c in missing if c not in ids}
        _of_gateway.update(((gateway_id, c), i) for c, i in ids.items())
    return {c: _of_gateway[gateway_id, c] for c in wanted}


def _forget_folded(gateway_id: int) -> None:
    del _folded_at[gateway_id]
    folded = [key for key, i in _of_gateway.items() if key[0] == gateway_id and i in _folded]
    for key in folded:
        del _of_gateway[key]


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
    _folded_at.clear()


def stands_for_many(circuit_id: int | None) -> bool:
    """True for ``OTHER``'s id: it has counts, but no one breaker."""
    return circuit_id in _folded


class Boot(NamedTuple):
    """One boot that has said something. ``alive_at`` is when it is known to have lived.

    That is ``now`` for a status report, the newest event's time for a batch.
    """

    gateway_id: int
    boot_id: UUID
    slot: str
    alive_at: datetime


async def instance_ids(
    conn: AsyncConnection, boots: Iterable[Boot], now: datetime
) -> dict[tuple[int, UUID], int]:
    """The row id of each boot, by gateway and boot id. Call it outside a transaction.

    What this process has seen settled is remembered; the rest is one look-up, and what is new one
    transaction: after a restart the first reports of a whole fleet come within a second.
    """
    wanted = {(boot.gateway_id, boot.boot_id): boot for boot in boots}
    missing = [boot for key, boot in wanted.items() if key not in _settled]
    found = await instance_rows(conn, missing, now) if missing else {}
    if len(_settled) > _CACHE_LIMIT:
        kept = {key: _settled[key] for key in wanted if key in _settled}
        _settled.clear()
        _settled.update(kept)
    _settled.update((key, row_id) for key, (row_id, current) in found.items() if current)
    return {key: found[key][0] if key in found else _settled[key] for key in wanted}


async def instance_rows(
    conn: AsyncConnection, boots: list[Boot], now: datetime
) -> dict[tuple[int, UUID], tuple[int, bool]]:
    """Each boot's row id, and whether it is the current boot of its slot; registers new boots.

    A new boot takes its slot if it lived after the last word of the boot that has it; otherwise it
    is stored as replaced already, and takes the slot only once it proves to be later (its first
    report). Safe to call inside or outside a transaction, inside one for one boot at most.
    """
    found = await _instances(conn, boots)
    new = [boot for boot in boots if _is_new(found.get((boot.gateway_id, boot.boot_id)))]
    if new:
        await _register(conn, new, now)
        found |= await _instances(conn, new)
    return {key: (row_id, current) for key, (row_id, current, _) in found.items()}


def _is_new(row: tuple[int, bool, bool] | None) -> bool:
    return row is None or (not row[1] and row[2])


async def _register(conn: AsyncConnection, boots: list[Boot], now: datetime) -> None:
    # A pipeline: three statements a boot, and not three round trips.
    async with conn.pipeline(), conn.transaction():
        # In one order, so that two processes that register the same slots cannot deadlock.
        for boot in sorted(boots, key=lambda b: (b.gateway_id, b.slot, min(b.alive_at, now))):
            values = {
                "gateway": boot.gateway_id,
                "boot": boot.boot_id,
                "slot": boot.slot,
                "now": now,
                "alive_at": min(boot.alive_at, now),
                "never_current": now - _NEVER_CURRENT,
            }
            # One slot at a time: two first words of two boots must not both find it free.
            await conn.execute(_LOCK_SLOT, (boot.slot, boot.gateway_id))
            await conn.execute(_REPLACE, values)
            await conn.execute(_PUT_INSTANCE, values)


async def _instances(
    conn: AsyncConnection, boots: list[Boot]
) -> dict[tuple[int, UUID], tuple[int, bool, bool]]:
    columns = ([boot.gateway_id for boot in boots], [boot.boot_id for boot in boots])
    cursor = await conn.execute(_FIND_INSTANCES, columns)
    rows = await cursor.fetchall()
    return {
        (gateway, boot): (row_id, cur, bool(never)) for gateway, boot, row_id, cur, never in rows
    }
