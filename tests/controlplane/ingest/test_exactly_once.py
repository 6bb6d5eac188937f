"""A batch is stored once, however often, in whatever batches and beside whatever else it comes."""

import asyncio
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from controlplane.ingest.rows import TABLES
from tests.controlplane.ingest.batches import (
    attempt,
    batch,
    budget,
    now,
    outcome,
    refusal,
    transition,
)
from tests.controlplane.ingest.conftest import Sender


def one_of_each() -> list[dict[str, Any]]:
    return [attempt(), refusal(), outcome(task="t-1"), transition(1, "Open"), budget()]


async def counters(sender: Sender) -> list[tuple[Any, ...]]:
    return await sender.rows(
        "rollup_minute", "sum(attempts), sum(refused_breaker), sum(input_tokens), sum(unpriced)"
    )


async def test_it_stores_a_batch_and_says_so(sender: Sender) -> None:
    receipt = await sender.send(batch(*one_of_each()))
    assert (receipt["seq"], receipt["contiguous"], receipt["stored"]) == (1, 1, 5)
    assert "duplicates" not in receipt
    assert "unread" not in receipt
    assert {table: await sender.count(table) for table in TABLES} == dict.fromkeys(TABLES, 1)
    assert await sender.count("budget_state") == 1
    assert await counters(sender) == [(1, 1, 100, 1)]


async def test_a_repeat_is_answered_from_the_first_receipt(sender: Sender) -> None:
    sent = batch(*one_of_each(), {"kind": "nonsense"})
    first = await sender.send(sent)
    again = await sender.send(sent)
    assert {**first, "server_time": ""} == {**again, "server_time": ""}
    assert await sender.count("attempt") == 1
    assert await sender.count("dead_letter") == 1
    assert await counters(sender) == [(1, 1, 100, 1)]


async def test_ten_at_once_are_one(sender: Sender) -> None:
    sent = batch(*one_of_each())
    answers = await asyncio.gather(*(sender.post(sent) for _ in range(10)))
    assert {answer.status for answer in answers} == {200}
    assert {answer.json()["stored"] for answer in answers} == {5}
    assert await sender.count("attempt") == 1
    assert await counters(sender) == [(1, 1, 100, 1)]


async def test_a_client_that_batches_anew_adds_only_what_is_new(sender: Sender) -> None:
    events = [attempt() for _ in range(6)]
    await sender.send(batch(*events[:4]))
    receipt = await sender.send(batch(*events[2:], seq=2))
    assert (receipt["stored"], receipt["duplicates"]) == (2, 2)
    assert await sender.count("attempt") == 6
    assert await counters(sender) == [(6, 0, 600, 6)]


async def test_an_event_that_stands_twice_in_a_batch_is_one(sender: Sender) -> None:
    twice = attempt()
    receipt = await sender.send(batch(twice, twice))
    assert (receipt["stored"], receipt["duplicates"]) == (1, 1)
    assert await counters(sender) == [(1, 0, 100, 1)]


async def test_overlapping_batches_at_once_neither_deadlock_nor_count_twice(
    sender: Sender,
) -> None:
    events = [attempt() for _ in range(40)]
    batches = [
        batch(*(events[i:] + events[:i]), seq=1, boot=uuid.UUID(int=i + 1), slot=f"h/{i}")
        for i in range(8)
    ]
    answers = await asyncio.gather(*(sender.post(b) for b in batches))
    assert {answer.status for answer in answers} == {200}
    assert sum(answer.json().get("stored", 0) for answer in answers) == 40
    assert await sender.count("attempt") == 40
    assert await counters(sender) == [(40, 0, 4000, 40)]


async def test_two_gateways_may_send_the_same_ids(
    make_sender: Callable[[], Any],
) -> None:
    one, other = await make_sender(), await make_sender()
    sent = batch(*one_of_each())
    assert (await one.send(sent))["stored"] == 5
    assert (await other.send(sent))["stored"] == 5


async def test_contiguous_waits_for_the_missing_batch(sender: Sender) -> None:
    assert [
        (await sender.send(batch(attempt(), seq=seq)))["contiguous"] for seq in (2, 4, 1, 5, 3)
    ] == [0, 0, 2, 2, 5]
    assert await sender.rows("instance", "contiguous_seq, highest_seq") == [(5, 5)]


async def test_contiguous_is_right_under_concurrent_commits(sender: Sender) -> None:
    batches = [batch(attempt(), seq=seq) for seq in range(1, 21)]
    answers = await asyncio.gather(*(sender.post(b) for b in reversed(batches)))
    assert {answer.status for answer in answers} == {200}
    assert await sender.rows("instance", "contiguous_seq, highest_seq") == [(20, 20)]


async def test_a_day_without_a_partition_is_made_and_the_batch_stored(sender: Sender) -> None:
    long_ago = now() - timedelta(days=20)
    receipt = await sender.send(batch(attempt(long_ago), attempt(), outcome(long_ago)))
    assert receipt["stored"] == 3
    assert await sender.rows("receipt", "late, skewed") == [(2, 0)]


async def test_an_event_ahead_of_the_clock_is_stored_and_counted_as_skewed(
    sender: Sender,
) -> None:
    receipt = await sender.send(batch(attempt(now() + timedelta(hours=23)), attempt()))
    assert receipt["stored"] == 2
    assert await sender.rows("receipt", "late, skewed") == [(0, 1)]
