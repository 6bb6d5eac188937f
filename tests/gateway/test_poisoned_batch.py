"""A batch that the control plane can never take holds up nobody, and is not lost in silence."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest_asyncio
from aiohttp import web

from gateway.adoption import adopt
from gateway.agent import Agent
from gateway.contact import Contact
from gateway.outbox import Identity
from gateway.report import MOST_BLAMED, Reporter, Sender
from gateway.spool import Spool
from tests.gateway.build import attempt, config
from tests.gateway.control_plane import ControlPlane, serving
from tests.gateway.fake_clock import FakeClock, until


class Choosy(ControlPlane):
    """Answers 500 to batches of these numbers, for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.bad: set[int] = {1}
        self.bad_boot = ""
        self.down = False
        self.tried: list[int] = []

    async def events(self, request: web.Request) -> web.Response:
        told = json.loads(await request.read())
        seq = told["seq"]
        self.tried.append(seq)
        if self.down or seq in self.bad or told["instance"] == self.bad_boot:
            return web.Response(status=503 if self.down else 500)
        return await super().events(request)

    @property
    def stored(self) -> list[int]:
        return [batch["seq"] for batch in self.batches]

    def stored_of(self, boot: UUID) -> list[int]:
        return [batch["seq"] for batch in self.batches if batch["instance"] == str(boot)]


@pytest_asyncio.fixture
async def double() -> AsyncIterator[Choosy]:
    running = Choosy()
    async with serving(running):
        yield running


def sender_of(contact: Contact, clock: FakeClock, spool: Spool) -> Sender:
    def ignore(_: object) -> None: ...

    return Sender(
        contact, clock, spool.outbox, lambda: ("e1", 5), ignore, lambda: 1.0, more=spool.seal
    )


def aside(root: Path) -> list[Path]:
    return list(root.rglob("*.aside"))


def batches(spool: Spool, count: int) -> None:
    for _ in range(count):
        spool.append(attempt())
        spool.seal()


async def test_others_go_before_it_and_it_is_tried_on(
    double: Choosy, clock: FakeClock, contact: Contact, spool: Spool
) -> None:
    batches(spool, 4)
    task = asyncio.create_task(sender_of(contact, clock, spool).send_all())
    await clock.advance_until(task.done)
    assert double.stored == [2, 3, 4]
    assert double.tried == [1, 1, 1, 1, 2, 1, 3, 4]
    assert len(spool.outbox) == 1
    assert not spool.dropped
    double.bad.clear()
    clock.step(30.0)
    await sender_of(contact, clock, spool).send_all()
    assert double.stored == [2, 3, 4, 1]


async def test_two_of_them_hold_up_nobody_either(
    double: Choosy, clock: FakeClock, contact: Contact, spool: Spool
) -> None:
    double.bad = {1, 2}
    batches(spool, 5)
    task = asyncio.create_task(sender_of(contact, clock, spool).send_all())
    await clock.advance_until(task.done)
    assert sorted(double.stored) == [3, 4, 5]
    assert len(spool.outbox) == 2


async def test_with_nothing_else_sealed_the_open_segment_is(
    double: Choosy, clock: FakeClock, contact: Contact, spool: Spool
) -> None:
    """In its second half of a full batch a gateway would otherwise wait for the other half."""
    batches(spool, 1)
    reporter = Reporter(spool, sender_of(contact, clock, spool), clock)
    task = asyncio.create_task(reporter.run())
    await until(lambda: double.tried)
    spool.append(attempt())
    await clock.advance_until(lambda: double.stored == [2])
    spool.append(attempt())
    await clock.advance_until(lambda: double.stored == [2, 3])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_it_is_a_counted_loss_at_last_and_its_file_is_kept(
    double: Choosy, clock: FakeClock, contact: Contact, spool: Spool, tmp_path: Path
) -> None:
    batches(spool, 2)
    reporter = Reporter(spool, sender_of(contact, clock, spool), clock)
    task = asyncio.create_task(reporter.run())
    began = clock.monotonic()
    while spool.dropped.total() == 0:
        await clock.advance_until(
            lambda: spool.dropped.total() or (spool.outbox.due_at or 0) > clock.monotonic() + 1
        )
        if spool.outbox.due_at is not None:
            spool.append(attempt())  # others are accepted meanwhile
            accepted = len(double.batches)
            await clock.advance_until(lambda known=accepted: len(double.batches) > known)
            await clock.advance(max(0.0, spool.outbox.due_at - clock.monotonic()))
            await asyncio.sleep(0.01)
    assert clock.monotonic() - began > 3600
    assert spool.status().dropped_by_kind == {"attempt": 1}
    assert len(aside(tmp_path)) == 1
    assert double.tried.count(1) == 4 + MOST_BLAMED
    assert 1 not in double.stored
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_an_outage_blames_no_batch(
    double: Choosy, clock: FakeClock, contact: Contact, spool: Spool
) -> None:
    double.bad, double.down = set(), True
    batches(spool, 3)
    task = asyncio.create_task(sender_of(contact, clock, spool).send_all())
    await clock.advance_until(lambda: len(double.tried) > 40, timeout=60)
    assert not spool.dropped
    double.down = False
    await clock.advance_until(task.done)
    assert sorted(double.stored) == [1, 2, 3]
    assert not len(spool.outbox)


async def test_an_adopted_one_holds_up_no_other_dead_worker(
    double: Choosy, clock: FakeClock, tmp_path: Path
) -> None:
    """The spools of dead workers are sent one after another: the first has nothing but the bad one,
    and what others of this worker are told of is evidence enough.
    """
    boots = sorted(uuid4() for _ in range(2))
    for boot, count in zip(boots, (1, 3), strict=True):
        dead = Spool(tmp_path / "spool", 0, Identity(boot, "host/0", "demo"), clock)
        batches(dead, count)
        dead.close()
    double.bad, double.bad_boot = set(), str(boots[0])
    async with Agent(config(tmp_path, double.url), host="h", clock=clock) as agent:
        agent.spool.append(attempt())
        await clock.advance_until(lambda: set(double.stored_of(boots[1])) == {1, 2, 3})
        await clock.advance_until(lambda: agent._adopted and agent._adopted[0].outbox.due_at)
        assert [len(one.outbox) for one in agent._adopted] == [1]
    left = {
        one.outbox.identity.instance: len(one.outbox) for one in adopt(tmp_path / "spool", "demo")
    }
    assert left[boots[0]] == 1
