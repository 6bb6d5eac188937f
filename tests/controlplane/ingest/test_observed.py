"""Transitions and status reports meet in one row, and any order of them ends the same."""

import asyncio
import itertools
import json
import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection

from controlplane.domain.circuit import Circuit
from controlplane.models.observed import BudgetRow, StateRow, fold_budgets, fold_states
from controlplane.models.pool import pool
from controlplane.models.registry import Boot, circuit_ids, instance_rows
from tests.controlplane.ingest.batches import now
from tests.controlplane.ingest.conftest import Sender

T0 = now()
COUNTERS = {"calls": 9, "failures": 5, "slow": 0, "consecutive": 5}


async def instance_row(
    conn: AsyncConnection,
    gateway_id: int,
    boot: uuid.UUID,
    at: datetime,
    *,
    slot: str = "h/0",
    alive_at: datetime | None = None,
) -> tuple[int, bool]:
    """One boot's row id, and whether it is the current boot of its slot."""
    told = Boot(gateway_id, boot, slot, alive_at or at)
    (found,) = (await instance_rows(conn, [told], at)).values()
    return found


async def known(sender: Sender) -> tuple[int, int]:
    async with (await pool()).connection() as conn:
        ids = await circuit_ids(conn, [Circuit("openai", "gpt-4o")], T0)
        instance_id, _ = await instance_row(conn, sender.gateway_id, uuid.UUID(int=5), T0)
    return instance_id, ids[Circuit("openai", "gpt-4o")]


def word(sender: Sender, ids: tuple[int, int], number: int, state: str, **more: Any) -> StateRow:
    given: dict[str, Any] = {
        "gateway_id": sender.gateway_id,
        "instance_id": ids[0],
        "circuit_id": ids[1],
        "number": number,
        "state": state,
        "since": T0 + timedelta(seconds=number),
        "cause": f"cause-{number}",
        "mode": "Auto",
        "reported_at": T0 + timedelta(seconds=number),
        "report": False,
        "counters": COUNTERS,
    }
    given |= {"counters": None} if more.get("report") else {}
    return StateRow(**(given | more))


async def fold_each(rows: Any) -> None:
    for row in rows:
        async with (await pool()).connection() as conn:
            await fold_states(conn, [row])


@pytest.mark.parametrize("together", [False, True])
async def test_any_order_of_transitions_and_reports_ends_the_same(
    sender: Sender, together: bool
) -> None:
    ids = await known(sender)
    later = T0 + timedelta(seconds=9)
    words = [
        word(sender, ids, 1, "Open"),
        word(sender, ids, 2, "HalfOpen"),
        word(sender, ids, 1, "Open", report=True, mode="ForceOpen", reported_at=later),
        word(
            sender,
            ids,
            2,
            "HalfOpen",
            report=True,
            mode="ObserveOnly",
            override_uid="o-1",
            reported_at=later + timedelta(seconds=1),
            ramp_percent=40,
        ),
    ]
    for order in itertools.permutations(words):
        await sender.query("DELETE FROM circuit_state WHERE gateway_id = %s", [sender.gateway_id])
        if together:
            async with (await pool()).connection() as conn:
                await fold_states(conn, order)
        else:
            await fold_each(order)
        assert await sender.rows(
            "circuit_state", "number, state, cause, mode, override_uid, ramp_percent, counters"
        ) == [(2, "HalfOpen", "cause-2", "ObserveOnly", "o-1", 40, _json(COUNTERS))]


def _json(value: dict[str, int]) -> Any:
    """jsonb as the plain cursor reads it."""
    return json.dumps(dict(sorted(value.items(), key=lambda kv: (len(kv[0]), kv[0]))))


async def test_of_two_reports_of_one_number_the_later_holds(sender: Sender) -> None:
    ids = await known(sender)
    soon, later = T0 + timedelta(seconds=1), T0 + timedelta(seconds=2)
    one = word(sender, ids, 1, "Open", report=True, mode="ForceOpen", reported_at=later)
    other = word(sender, ids, 1, "Open", report=True, mode="Auto", reported_at=soon)
    await fold_each([one, other])
    assert await sender.rows("circuit_state", "mode, reported_at") == [("ForceOpen", later)]


async def test_buckets_move_forward_by_time(sender: Sender) -> None:
    ids = await known(sender)

    def said(balance: int, at: datetime) -> BudgetRow:
        return BudgetRow(
            gateway_id=sender.gateway_id,
            instance_id=ids[0],
            scope="system/",
            balance=balance,
            earned=1,
            spent=1,
            refused=0,
            window_s=60,
            reported_at=at,
        )

    async with (await pool()).connection() as conn:
        assert await fold_budgets(conn, [said(3, T0), said(2, T0 - timedelta(seconds=1))]) == 1
        assert await fold_budgets(conn, [said(9, T0 - timedelta(seconds=2))]) == 0
    assert await sender.rows("budget_state", "balance") == [(3,)]


async def test_circuit_ids_are_stable_and_shared(sender: Sender) -> None:
    wanted = {Circuit("openai", f"m-{n}", "eu") for n in range(50)}
    async with (await pool()).connection() as one, (await pool()).connection() as other:
        first = await circuit_ids(one, wanted, T0)
        async with other.transaction():
            assert await circuit_ids(other, list(wanted)[:7], T0) == {
                c: first[c] for c in list(wanted)[:7]
            }
    assert len(set(first.values())) == 50


async def test_a_circuit_that_was_rolled_back_is_not_remembered(sender: Sender) -> None:
    async with (await pool()).connection() as conn:
        async with conn.transaction(force_rollback=True):
            lost = await circuit_ids(conn, [Circuit("a", "b")], T0)
        kept = await circuit_ids(conn, [Circuit("a", "b")], T0)
    assert kept != lost
    assert await sender.query("SELECT id FROM circuit WHERE provider = 'a'") == [
        (kept[Circuit("a", "b")],)
    ]


async def test_a_slot_has_one_current_boot_even_when_two_register_at_once(
    sender: Sender,
) -> None:
    async def register(number: int) -> tuple[int, bool]:
        async with (await pool()).connection() as conn:
            boot = uuid.UUID(int=number)
            return await instance_row(conn, sender.gateway_id, boot, now(), slot="h/7")

    found = await asyncio.gather(*(register(n) for n in range(1, 7)))
    assert len({instance_id for instance_id, _ in found}) == 6
    current = await sender.query(
        "SELECT count(*) FROM instance WHERE gateway_id = %s AND slot = 'h/7'"
        " AND replaced_at IS NULL AND goodbye_at IS NULL",
        [sender.gateway_id],
    )
    assert current == [(1,)]


async def test_a_boot_that_lost_its_slot_never_gets_it_back(sender: Sender) -> None:
    old, new = uuid.UUID(int=1), uuid.UUID(int=2)
    async with (await pool()).connection() as conn:

        async def report(boot: uuid.UUID) -> bool:
            return (await instance_row(conn, sender.gateway_id, boot, now()))[1]

        assert await report(old)
        assert await report(new)
        assert not await report(old)
        assert await report(new)


async def test_a_boot_first_heard_by_an_old_batch_takes_its_slot_with_its_first_report(
    sender: Sender,
) -> None:
    old, new = uuid.UUID(int=1), uuid.UUID(int=2)
    async with (await pool()).connection() as conn:
        of = (conn, sender.gateway_id)
        assert (await instance_row(*of, old, now()))[1]
        earlier = now() - timedelta(minutes=1)
        assert not (await instance_row(*of, new, now(), alive_at=earlier))[1]
        assert (await instance_row(*of, new, now()))[1]
        assert not (await instance_row(*of, old, now()))[1]
