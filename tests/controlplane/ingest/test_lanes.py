"""Groups: who shares a commit with whom, and that a group which fails leaves nothing behind."""

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import psycopg
import pytest
from asgiref.sync import sync_to_async

from controlplane.domain.rollup import COUNTERS, MONEY
from controlplane.ingest import lanes, rollup, store
from controlplane.ingest.commit import Answer, Waiting
from controlplane.ingest.costs import forget_prices
from controlplane.ingest.prepare import Arrived
from controlplane.ingest.read import read_batch
from controlplane.ingest.receipts import Stored
from controlplane.models import Price
from controlplane.models.pool import pool
from tests.controlplane.ingest.batches import attempt, batch, encoded, transition
from tests.controlplane.ingest.conftest import Sender
from tests.controlplane.ingest.test_cost_at_ingest import add_prices

BEGIN = datetime.now(UTC) - timedelta(minutes=1)


async def _sizes_of_groups(patch: pytest.MonkeyPatch, senders: int, groups: int) -> list[int]:
    """The groups that so many senders get who each send again at their answer.

    Commits and their times are made up here, so that nothing depends on how fast this machine is.
    """
    sizes: list[int] = []
    first, enough = asyncio.Event(), asyncio.Event()

    async def commit(_: object, group: list[Waiting]) -> None:
        sizes.append(len(group))
        first.set()
        if len(sizes) == groups:
            enough.set()
        for _turn in range(5):
            await asyncio.sleep(0)
        for one in group:
            if not one.answer.done():
                one.answer.set_result(Answer(Stored(1, 0, [], 1), "", 0))

    clock = iter(range(0, 1_000_000, 60))
    patch.setattr(lanes, "commit", commit)
    patch.setattr(lanes, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    patch.setattr(lanes, "_LONGEST_GATHER_S", 60.0)
    committer = lanes.Committer()

    async def send(number: int) -> None:
        for seq in range(1, 1000):
            now = datetime.now(UTC)
            read = read_batch(encoded(batch(attempt(), seq=seq)), now=now, retention=kept)
            await committer.store(Arrived(number, read, now))

    kept = timedelta(days=35)
    sending = [asyncio.create_task(send(0))]
    await first.wait()
    sending += [asyncio.create_task(send(number)) for number in range(1, senders)]
    async with asyncio.timeout(30):
        await enough.wait()
    for task in sending:
        task.cancel()
    await asyncio.gather(*sending, return_exceptions=True)
    return sizes


async def test_senders_of_small_batches_come_to_share_one_commit(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever came first goes alone; without gathering, it and the rest take turns for ever."""
    sizes = await _sizes_of_groups(monkeypatch, senders=6, groups=8)
    assert sizes == [1, *[6] * 7]


async def test_two_lanes_come_to_share_their_senders(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One group is decoded while Postgres works on the other only if both are of some size."""
    monkeypatch.setattr(lanes, "_SECOND_LANE_EVENTS", 1)
    sizes = await _sizes_of_groups(monkeypatch, senders=8, groups=16)
    assert sizes[-8:] == [4] * 8


async def test_who_is_alone_never_waits(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await _sizes_of_groups(monkeypatch, senders=1, groups=5) == [1] * 5


async def test_a_batch_is_priced_by_what_was_desired_when_it_came(sender: Sender) -> None:
    """A group is prepared under the version that was read last; a newer one makes it anew."""
    price_id, _ = await sync_to_async(add_prices)()
    forget_prices()
    await sender.send(batch(attempt(tokens={"input": 0, "cached_read": 0, "output": 100})))
    await sync_to_async(Price.objects.filter(pk=price_id).update)(per_million=20)
    await sender.query("UPDATE revision SET value = value + 1")
    await sender.send(batch(attempt(tokens={"input": 0, "cached_read": 0, "output": 100}), seq=2))
    costs = await sender.rows("attempt", "cost_native")
    assert [float(row[0]) for row in costs] == [0.001, 0.002]


async def test_a_transaction_that_was_cut_short_is_of_no_consequence_to_the_next(
    sender: Sender,
) -> None:
    """Statements of a pipeline behind the one that failed were never prepared on the server."""
    seq = 0
    for number in range(1, 13):
        twice = transition(number, "Open", BEGIN)
        for events in ([twice], [twice, attempt()]):
            seq += 1
            receipt = await sender.send(batch(*events, seq=seq))
            assert receipt["stored"] == 1
    assert await sender.count("transition") == await sender.count("attempt") == 12


async def test_a_commit_that_postgres_turned_into_a_rollback_is_no_commit(sender: Sender) -> None:
    async with (await pool()).connection() as conn:
        await conn.execute("BEGIN")
        with pytest.raises(psycopg.errors.DivisionByZero):
            await conn.execute("SELECT 1 / 0")
        ended = await conn.execute("COMMIT")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            store._check_ended(ended)


def test_every_value_of_a_minute_is_added_by_some_statement() -> None:
    everything, places = rollup._add_statement((False,) * 4)
    assert places == tuple(range(len(COUNTERS) + len(MONEY)))
    assert all(f" {name} = r.{name} + EXCLUDED.{name}" in everything for name in COUNTERS)
    usual, fewer = rollup._add_statement((True,) * 4)
    left_out = set(places) - set(fewer)
    assert left_out == {place for family in rollup._PLACES for place in family}
    assert "refused" not in usual
