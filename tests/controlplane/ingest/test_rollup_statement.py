"""What adds to the rollup is one statement: planned once, its tables locked as a rebuild does."""

import asyncio

import psycopg
import pytest
from asgiref.sync import sync_to_async
from psycopg import AsyncConnection

from controlplane.domain.rollup import MinuteSums, RequestSums
from controlplane.ingest import rollup
from controlplane.ingest.rebuild import _MINUTES
from controlplane.models.pool import conninfo, pool
from tests.controlplane.ingest.conftest import Sender
from tests.telemetry import forget_telemetry

# As many as twenty small batches add to.
KEYS = [(gateway, circuit, 29_000_000) for gateway in range(20) for circuit in range(10)]
_OFTEN_ENOUGH_TO_BE_PLANNED_FOR_GOOD = 15


def _added(monkeypatch: pytest.MonkeyPatch) -> rollup.Additions:
    minutes = {}
    for key in KEYS:
        minutes[key] = MinuteSums()
        minutes[key].counts[0] = 1 + key[1]
        minutes[key].latency = {1: 1} if key[1] else {}
    ends = RequestSums()
    ends.add(success=True, latency_ms=5, waited_ms=0)
    monkeypatch.setattr(rollup, "counted", lambda _: (minutes, {(1, 29_000_000): ends}))
    return rollup.additions({})


async def _locked_by(watcher: AsyncConnection, waiting: int) -> set[str]:
    """The tables of the rollup that a backend holds at the moment in which it waits for one."""
    while True:
        rows = await watcher.execute(
            "SELECT granted, relation::regclass::text FROM pg_locks"
            " WHERE pid = %s AND locktype = 'relation' AND mode = 'RowExclusiveLock'",
            (waiting,),
        )
        found = await rows.fetchall()
        if not all(granted for granted, _ in found):
            return {name for granted, name in found if granted and name in _MINUTES}
        await asyncio.sleep(0)


async def test_it_adds_each_value_to_its_own_minute_and_is_planned_once(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = _added(monkeypatch)
    async with (await pool()).connection() as conn, conn.transaction(force_rollback=True):
        before = await (await conn.execute("SELECT count(*) FROM rollup_minute_part")).fetchone()
        for _ in range(_OFTEN_ENOUGH_TO_BE_PLANNED_FOR_GOOD):
            await added.send(conn)
        plans = await conn.execute(
            "SELECT custom_plans, generic_plans FROM pg_prepared_statements"
            " WHERE statement LIKE '%INTO rollup_minute AS%' AND generic_plans + custom_plans > 0"
        )
        ((custom, generic),) = await plans.fetchall()
        minutes = await conn.execute(
            "SELECT gateway_id, circuit_id, attempts FROM rollup_minute"
            " WHERE minute = to_timestamp(29000000 * 60::bigint) ORDER BY 1, 2"
        )
        assert await minutes.fetchall() == [(g, c, (1 + c) * 15) for g, c, _ in KEYS]
        after = await (await conn.execute("SELECT count(*) FROM rollup_minute_part")).fetchone()
        ends = await conn.execute(
            "SELECT requests, succeeded FROM rollup_minute_request"
            " WHERE minute = to_timestamp(29000000 * 60::bigint)"
        )
        assert await ends.fetchall() == [(15, 15)]
    assert before is not None
    assert after is not None
    assert after[0] - before[0] == 15 * 180, "a minute without times has no part"
    # The first five are not prepared; then Postgres tries five plans before it trusts one for all.
    assert (custom, generic) == (5, 5)


async def test_its_tables_are_locked_in_the_order_of_a_rebuild(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each holds what the other waits for."""
    added = _added(monkeypatch)
    tables = list(_MINUTES)
    async with (
        await AsyncConnection.connect(conninfo(), autocommit=True) as holder,
        await AsyncConnection.connect(conninfo(), autocommit=True) as watcher,
        await AsyncConnection.connect(conninfo(), autocommit=True) as conn,
    ):
        # First as it is parsed, then as it is planned, then with the plan that is kept.
        for repeats in (0, 5, _OFTEN_ENOUGH_TO_BE_PLANNED_FOR_GOOD):
            for _ in range(repeats):  # committed: psycopg forgets after a rollback what is prepared
                await added.send(conn)
            for place, table in enumerate(tables):
                async with holder.transaction(force_rollback=True):
                    await holder.execute(f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")
                    sent = asyncio.create_task(added.send(conn))
                    held = await _locked_by(watcher, conn.info.backend_pid)
                    await watcher.execute("SELECT pg_cancel_backend(%s)", (conn.info.backend_pid,))
                    with pytest.raises(psycopg.errors.QueryCanceled):
                        await sent
                assert held == set(tables[:place]), (repeats, table)
    await sync_to_async(forget_telemetry)()
