"""A fault of one event costs that event; a fault of the control plane costs nobody anything."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from controlplane.domain.rollup import MinuteSums
from controlplane.ingest import commit, isolate, prepare
from controlplane.ingest.read import read_batch
from tests.controlplane.ingest.batches import attempt, batch, encoded, now, outcome, refusal
from tests.controlplane.ingest.conftest import Sender

POISON = "poison"


@pytest.fixture
def faulty_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug of ours that one value brings out, where minutes are summed."""
    real = MinuteSums.add_attempt

    def add(self: MinuteSums, event: Any, cost: Any) -> None:
        if event.reason == POISON:
            raise TypeError("no such reason")
        real(self, event, cost)

    monkeypatch.setattr(MinuteSums, "add_attempt", add)


@pytest_asyncio.fixture
async def refusing(sender: Sender) -> AsyncIterator[Callable[[str], Any]]:
    """Have Postgres refuse each attempt whose reason is ``POISON`` with an error of this code."""

    async def refuse(code: str) -> None:
        await sender.query(
            "CREATE OR REPLACE FUNCTION tests_refuse() RETURNS trigger LANGUAGE plpgsql AS $$"
            f" BEGIN RAISE EXCEPTION 'refused here' USING ERRCODE = '{code}'; END $$"
        )
        await sender.query(
            "CREATE OR REPLACE TRIGGER tests_refuse BEFORE INSERT ON attempt FOR EACH ROW"
            f" WHEN (NEW.reason = '{POISON}') EXECUTE FUNCTION tests_refuse()"
        )

    yield refuse
    await sender.query("DROP TRIGGER IF EXISTS tests_refuse ON attempt")
    await sender.query("DROP FUNCTION IF EXISTS tests_refuse")


async def test_an_event_that_cannot_be_folded_is_parted_from_its_neighbours(
    sender: Sender, faulty_fold: None
) -> None:
    bad = attempt(reason=POISON)
    receipt = await sender.send(
        batch(attempt(), outcome(), bad, *(attempt() for _ in range(9)), refusal())
    )
    assert receipt["stored"] == 12
    assert receipt["unread"] == [{"index": 2, "reason": "cannot be stored: TypeError"}]
    assert await sender.count("attempt") == 10
    assert await sender.rows("rollup_minute", "sum(attempts)") == [(10,)]
    ((body,),) = await sender.rows("dead_letter", "body")
    assert bytes(body) == encoded(bad)


async def test_a_sum_that_a_column_cannot_hold_costs_only_what_overflows_it(
    sender: Sender,
) -> None:
    """Nothing made up: a minute that is full refuses each later event of its own for ever."""
    full = now() - timedelta(minutes=30)
    await sender.send(batch(attempt(full)))
    await sender.query("UPDATE rollup_minute SET attempts = 2147483647")
    receipt = await sender.send(batch(attempt(), attempt(full), attempt(), seq=2))
    assert receipt["stored"] == 2
    assert receipt["unread"] == [{"index": 1, "reason": "cannot be stored: integer out of range"}]
    alone = await sender.send(batch(attempt(full), seq=3))
    assert (alone.get("stored", 0), len(alone["unread"])) == (0, 1)


async def test_an_event_that_cannot_be_priced_is_parted(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = prepare.cost_of

    def cost_of(event: Any, book: Any) -> Any:
        return real(event, book) if event.reason != POISON else real(event, 1 // 0)

    monkeypatch.setattr(prepare, "cost_of", cost_of)
    receipt = await sender.send(batch(attempt(), attempt(reason=POISON), attempt()))
    assert receipt["stored"] == 2
    assert [one["index"] for one in receipt["unread"]] == [1]


async def test_neighbours_in_the_same_commit_are_stored(
    make_sender: Callable[[], Any], faulty_fold: None
) -> None:
    senders = [await make_sender() for _ in range(4)]
    for one in senders:
        await one.send(batch(attempt()))
    bad = [attempt(), attempt(reason=POISON)]
    receipts = await asyncio.gather(
        *(one.send(batch(*(bad if place == 2 else [attempt()]), seq=2))
          for place, one in enumerate(senders))
    )  # fmt: skip
    assert [receipt["stored"] for receipt in receipts] == [1, 1, 1, 1]
    assert [len(receipt.get("unread", [])) for receipt in receipts] == [0, 0, 1, 0]


async def test_what_fails_for_every_event_blames_none(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release with a fault in it: the spools hold everything until it is mended."""
    whole = batch(attempt(), attempt(), outcome())
    with monkeypatch.context() as patch:
        patch.setattr(MinuteSums, "add_attempt", lambda *_: (_ for _ in ()).throw(KeyError("x")))
        for _ in range(3):
            assert (await sender.post(whole)).status == 500
    assert await sender.count("dead_letter") == await sender.count("receipt") == 0
    assert (await sender.send(whole))["stored"] == 3


async def test_an_event_alone_is_blamed_once_others_of_its_kind_are_stored(
    sender: Sender, make_sender: Callable[[], Any], faulty_fold: None
) -> None:
    bad = batch(attempt(reason=POISON))
    other = await make_sender()
    for _ in range(2):
        assert (await sender.post(bad)).status == 500
    await other.send(batch(outcome()))
    assert (await sender.post(bad)).status == 500
    await other.send(batch(attempt(), seq=2))
    receipt = await sender.send(bad)
    assert (receipt.get("stored", 0), len(receipt["unread"])) == (0, 1)
    # The repeat is answered from the receipt.
    assert (await sender.send(bad))["unread"] == receipt["unread"]


@pytest.mark.parametrize("dies_at", range(1, 12))
async def test_a_connection_that_dies_in_the_middle_of_the_search_leaves_nothing_behind(
    sender: Sender, faulty_fold: None, monkeypatch: pytest.MonkeyPatch, dies_at: int
) -> None:
    """Whichever of its transactions it is: the batch comes again, and everything is there once."""
    real, calls = commit.store, itertools.count(1)
    content = batch(*(attempt(reason=POISON if n == 5 else "") for n in range(8)), outcome())

    async def store(conn: Any, *given: Any, **more: Any) -> Any:
        if next(calls) == dies_at:
            await conn.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return await real(conn, *given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(commit, "store", store)
        first = await sender.post(content)
        assert first.status == (503 if next(calls) > dies_at else 200), first.body
    receipt = await sender.send(content)
    assert receipt["stored"] == 8
    assert [one["index"] for one in receipt["unread"]] == [5]
    assert await sender.count("attempt") == 7
    assert await sender.count("dead_letter") == 1
    assert await sender.rows("rollup_minute", "sum(attempts)") == [(7,)]


@pytest.mark.parametrize("code", ["57014", "55P03", "53100", "53200", "58030", "25006", "57P01"])
async def test_what_passes_by_itself_is_503_and_keeps_the_batch_whole(
    sender: Sender, refusing: Callable[[str], Any], code: str
) -> None:
    """Cancelled, locked, disk full, out of memory, I/O, a standby, a shutdown."""
    await refusing(code)
    answer = await sender.post(batch(attempt(), attempt(reason=POISON)))
    assert answer.status == 503, answer.body
    assert await sender.count("dead_letter") == await sender.count("attempt") == 0


@pytest.mark.parametrize("code", ["54000", "22003", "P0001", "XX000"])
async def test_what_postgres_will_never_take_is_a_dead_letter(
    sender: Sender, refusing: Callable[[str], Any], code: str
) -> None:
    await refusing(code)
    receipt = await sender.send(batch(attempt(), attempt(reason=POISON), attempt()))
    assert receipt["stored"] == 2
    assert [one["index"] for one in receipt["unread"]] == [1]
    assert "refused here" in receipt["unread"][0]["reason"]


async def test_a_search_that_takes_too_long_goes_on_when_the_batch_comes_again() -> None:
    """Half of the events are bad and each look takes a second: none is refused without a look."""
    seconds = itertools.count()
    content = [attempt(reason=POISON if n % 2 else "") for n in range(64)]
    read = read_batch(encoded(batch(*content)), now=datetime.now(UTC), retention=timedelta(days=35))

    async def rehearse(part: Any) -> None:
        if any(event.reason == POISON for event in part.events.values()):  # type: ignore[union-attr]
            raise OverflowError

    def sieve(longest_s: float) -> isolate.Sieve:
        return isolate.Sieve(
            1, read, rehearse, clock=lambda: float(next(seconds)), longest_s=longest_s
        )

    for tries in itertools.count(1):
        try:
            kept = await sieve(20).run(OverflowError())
            break
        except isolate.Unfinished:
            assert tries < 20
    assert tries > 1
    assert sorted(kept.events) == list(range(0, 64, 2))
    assert [one.index for one in kept.unread] == list(range(1, 64, 2))


async def test_a_search_that_takes_too_long_proves_nothing_while_every_event_fails() -> None:
    """A release with a fault in it, mended before the batch comes again: nothing was to blame."""
    seconds = itertools.count()
    content = [attempt() for _ in range(64)]
    read = read_batch(encoded(batch(*content)), now=datetime.now(UTC), retention=timedelta(days=35))
    broken = True

    async def rehearse(part: Any) -> None:
        if broken and part.events:
            raise KeyError("x")

    def sieve() -> isolate.Sieve:
        return isolate.Sieve(1, read, rehearse, clock=lambda: float(next(seconds)), longest_s=20)

    with pytest.raises(isolate.Unfinished):
        await sieve().run(KeyError("x"))
    broken = False
    kept = await sieve().run(KeyError("x"))
    assert len(kept.events) == 64
    assert not kept.unread


async def test_a_batch_whose_search_is_not_finished_is_503_and_comes_again(
    sender: Sender, faulty_fold: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = batch(*(attempt(reason=POISON if n == 5 else "") for n in range(8)), seq=7)
    with monkeypatch.context() as patch:
        patch.setattr(isolate, "LONGEST_S", 0.0)
        answer = await sender.post(content)
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert await sender.count("attempt") == await sender.count("dead_letter") == 0
    receipt = await sender.send(content)
    assert receipt["stored"] == 7
    assert [one["index"] for one in receipt["unread"]] == [5]
