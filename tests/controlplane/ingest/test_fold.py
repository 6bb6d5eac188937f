"""Breakers move forward only; a dead boot's late word is history; tasks close by one rule."""

import itertools
import uuid
from datetime import timedelta
from typing import Any

import pytest

from tests.controlplane.ingest.batches import (
    attempt,
    batch,
    budget,
    event,
    now,
    outcome,
    refusal,
    transition,
)
from tests.controlplane.ingest.conftest import Sender

OLD, NEW = uuid.UUID(int=10), uuid.UUID(int=11)


async def states(sender: Sender) -> list[tuple[Any, ...]]:
    return await sender.rows("circuit_state", "number, state, cause, (counters->>'failures')::int")


async def test_an_older_transition_that_comes_later_is_history_only(sender: Sender) -> None:
    await sender.send(batch(transition(2, "HalfOpen"), seq=1))
    await sender.send(batch(transition(1, "Open"), seq=2))
    assert await states(sender) == [(2, "HalfOpen", "OpenPeriodOver", 5)]
    assert await sender.count("transition") == 2


async def test_the_highest_number_of_a_batch_holds_whatever_its_place(sender: Sender) -> None:
    three = [transition(1, "Open"), transition(2, "HalfOpen"), transition(3, "Closed")]
    for seq, order in enumerate(itertools.permutations(three), 1):
        await sender.send(batch(*order, seq=seq, boot=uuid.UUID(int=seq), slot=f"h/{seq}"))
    assert {row[:2] for row in await states(sender)} == {(3, "Closed")}


async def test_each_instance_has_its_own_breaker(sender: Sender) -> None:
    ahead = now() + timedelta(seconds=90)
    await sender.send(batch(transition(5, "Open", ahead), boot=OLD, slot="h/0"))
    await sender.send(batch(transition(3, "Closed"), boot=NEW, slot="h/1"))
    assert {row[:2] for row in await states(sender)} == {(5, "Open"), (3, "Closed")}


async def current(sender: Sender) -> list[tuple[Any, ...]]:
    return await sender.rows("instance", "boot_id", "boot_id") and await sender.query(
        "SELECT i.boot_id, s.state FROM instance i LEFT JOIN circuit_state s"
        " ON s.instance_id = i.id WHERE i.gateway_id = %s"
        " AND i.replaced_at IS NULL AND i.goodbye_at IS NULL",
        [sender.gateway_id],
    )


async def test_a_new_boot_takes_the_slot_and_the_old_ones_late_words_are_history(
    sender: Sender,
) -> None:
    before = now() - timedelta(minutes=10)
    await sender.send(batch(transition(7, "Open", before), boot=OLD))
    await sender.send(batch(transition(1, "HalfOpen"), boot=NEW))
    assert await current(sender) == [(NEW, "HalfOpen")]
    await sender.send(
        batch(transition(8, "Closed", before + timedelta(seconds=1)), boot=OLD, seq=2)
    )
    assert await current(sender) == [(NEW, "HalfOpen")]
    assert await sender.count("transition") == 3


async def test_an_adopted_spool_of_a_boot_that_was_never_heard_does_not_take_the_slot(
    sender: Sender,
) -> None:
    await sender.send(batch(transition(1, "HalfOpen"), boot=NEW))
    before = now() - timedelta(minutes=10)
    await sender.send(batch(transition(9, "Open", before), boot=OLD))
    assert await current(sender) == [(NEW, "HalfOpen")]


async def test_a_bucket_keeps_its_newest_word(sender: Sender) -> None:
    early, later = now() - timedelta(seconds=30), now() - timedelta(seconds=20)
    await sender.send(batch(budget(later, balance=7), seq=1))
    await sender.send(batch(budget(early, balance=40), seq=2))
    assert await sender.rows("budget_state", "scope, balance") == [("system/", 7)]


async def tasks(sender: Sender) -> list[tuple[Any, ...]]:
    return await sender.rows(
        "task", "tenant, task, route, COALESCE(explicit_success, implicit_success)", "2"
    )


async def test_a_task_without_the_header_has_no_row(sender: Sender) -> None:
    await sender.send(batch(outcome(), outcome(task="")))
    assert await tasks(sender) == []
    assert await sender.count("outcome") == 2


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_an_explicit_word_beats_any_implicit_one_in_any_order(
    sender: Sender, order: tuple[int, ...]
) -> None:
    start = now() - timedelta(minutes=5)
    said = [
        outcome(start, task="t", success=False, route="first"),
        outcome(start + timedelta(minutes=1), task="t", success=True, explicit=True, route=""),
        outcome(start + timedelta(minutes=2), task="t", success=False, route="later"),
    ]
    for seq, index in enumerate(order, 1):
        await sender.send(batch(said[index], seq=seq))
    assert await tasks(sender) == [("acme", "t", "first", True)]
    ((last,),) = await sender.rows("task", "last_ended_at")
    assert last == start + timedelta(minutes=2)


async def test_the_rollup_counts_by_minute_and_circuit(sender: Sender) -> None:
    minute = (now() - timedelta(minutes=3)).replace(second=0, microsecond=0)
    await sender.send(
        batch(
            attempt(minute),
            attempt(
                minute + timedelta(seconds=59),
                role="retry",
                ordinal=2,
                verdict="retryable",
                counts_against_breaker=True,
                served=False,
                billing="not_billed",
                tokens=None,
            ),
            attempt(minute + timedelta(seconds=60), role="fallback", ordinal=2, model="other"),
            refusal(minute, gate="budget"),
            refusal(minute, gate="breaker", would_have=True),
        )
    )
    found = await sender.query(
        "SELECT r.minute, c.model, attempts, firsts, retries, fallbacks, succeeded, failed, served,"
        " refused_budget, would_refuse, unpriced FROM rollup_minute r"
        " JOIN circuit c ON c.id = r.circuit_id WHERE gateway_id = %s ORDER BY 1",
        [sender.gateway_id],
    )
    assert found == [
        (minute, "gpt-4o", 2, 1, 1, 0, 1, 1, 1, 1, 1, 1),
        (minute + timedelta(minutes=1), "other", 1, 0, 0, 1, 1, 0, 1, 0, 0, 1),
    ]


async def test_times_with_an_offset_are_the_same_moment(sender: Sender) -> None:
    at = now() - timedelta(minutes=2)
    shifted = event("attempt", at) | {k: v for k, v in attempt(at).items() if k != "id"}
    shifted["occurred_at"] = at.astimezone(tz=None).isoformat()
    await sender.send(batch(shifted))
    assert await sender.rows("attempt", "occurred_at") == [(at,)]
