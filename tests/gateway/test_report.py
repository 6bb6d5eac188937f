"""A batch leaves only with a receipt, whatever the control plane and the network do."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp import web

from controlplane.wire.events import Receipt
from gateway.contact import Contact
from gateway.report import Reporter, Sender
from gateway.spool import Spool
from tests.gateway.build import attempt
from tests.gateway.control_plane import ControlPlane, serving
from tests.gateway.fake_clock import FakeClock, until


@pytest_asyncio.fixture
async def double() -> AsyncIterator[ControlPlane]:
    async with serving(ControlPlane()) as running:
        yield running


class Sending:
    """A sender at work and what it heard. The jitter's draw is always 1: the longest wait."""

    def __init__(self, contact: Contact, clock: FakeClock, spool: Spool) -> None:
        self.receipts: list[Receipt] = []
        self.spool = spool
        self.sender = Sender(
            contact, clock, spool.outbox, lambda: ("e1", 5), self.receipts.append, lambda: 1.0
        )

    def begin(self) -> asyncio.Task[None]:
        self.spool.append(attempt())
        self.spool.seal()
        return asyncio.create_task(self.sender.send_all())


@pytest.fixture
def sending(contact: Contact, clock: FakeClock, spool: Spool) -> Sending:
    return Sending(contact, clock, spool)


async def test_a_batch_arrives_with_its_head_and_the_token(
    double: ControlPlane, sending: Sending, spool: Spool
) -> None:
    await sending.begin()
    (batch,) = double.batches
    assert (batch["seq"], batch["slot"], batch["epoch"], batch["generation"]) == (
        1,
        "host/0",
        "e1",
        5,
    )
    assert batch["instance"] == str(spool.outbox.identity.instance)
    assert double.tokens == {"Bearer the-token"}
    assert [receipt.contiguous for receipt in sending.receipts] == [1]
    assert not len(spool.outbox)


@pytest.mark.parametrize(
    ("answers", "waits"),
    [
        ([web.Response(status=503)], [0.5]),
        ([web.Response(status=500)] * 3, [0.5, 1.0, 2.0]),
        ([web.Response(status=404)], [0.5]),
        ([None, None], [0.5, 1.0]),
        ([web.Response(status=503, headers={"Retry-After": "17"})], [17.0]),
        ([web.Response(status=429, headers={"Retry-After": "90"})], [90.0]),
        ([web.Response(status=401)], [45.0]),
        ([web.Response(status=403)], [45.0]),
        ([web.Response(text="a captive portal says hello")], [0.5]),
    ],
)
async def test_the_very_same_batch_is_sent_again(
    double: ControlPlane,
    clock: FakeClock,
    sending: Sending,
    answers: list[web.Response | None],
    waits: list[float],
) -> None:
    # A captive portal's 200 is stored by nobody: keep the double from counting it.
    double.script.extend(
        web.Response(status=200 if answer.status == 200 else answer.status, headers=answer.headers)
        if answer is not None
        else None
        for answer in answers
    )
    if any(answer is not None and answer.status == 200 for answer in answers):
        double.receipt = lambda seq: {"hello": seq}  # type: ignore[method-assign]
    task = sending.begin()
    for heard, wait in enumerate(waits, start=1):
        await until(lambda heard=heard: len(double.raw) == heard and clock.next_wake is not None)
        assert clock.next_wake == pytest.approx(wait)
        if heard == len(waits):
            double.__dict__.pop("receipt", None)
        await clock.advance(wait)
    await asyncio.wait_for(task, 5)
    sent = [json.loads(raw) for raw in double.raw]
    assert len(sent) == len(waits) + 1
    assert len({json.dumps(batch["events"]) for batch in sent}) == 1
    assert {batch["seq"] for batch in sent} == {1}


@pytest.mark.parametrize("status", [400, 413, 415, 422])
async def test_what_will_never_be_accepted_is_set_aside_and_the_next_goes_on(
    double: ControlPlane, sending: Sending, spool: Spool, status: int
) -> None:
    double.script.append(web.Response(status=status, text="seq: expected an integer"))
    await sending.begin()
    assert spool.dropped == {"attempt": 1}
    await sending.begin()
    assert [batch["seq"] for batch in double.batches] == [2]


async def test_a_long_batch_goes_compressed(
    double: ControlPlane, sending: Sending, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths: list[int] = []
    real = Contact.send_events

    async def noted(self: Contact, body: bytes, gzipped: bool) -> object:
        lengths.append(len(body))
        return await real(self, body, gzipped)

    monkeypatch.setattr(Contact, "send_events", noted)
    for _ in range(300):
        spool.append(attempt())
    await sending.begin()
    assert len(double.batches[0]["events"]) == 301
    assert lengths[0] < len(double.raw[0]) / 3


async def test_a_transition_goes_at_once_and_the_rest_waits_for_company(
    double: ControlPlane, clock: FakeClock, sending: Sending, spool: Spool
) -> None:
    from tests.gateway import build

    reporter = Reporter(spool, sending.sender, clock)
    task = asyncio.create_task(reporter.run())
    await asyncio.sleep(0)
    spool.append(attempt())
    spool.append(attempt())
    await until(lambda: clock.next_wake is not None)
    assert not double.batches
    await clock.advance(0.5)
    await until(lambda: len(double.batches) == 1)
    assert len(double.batches[0]["events"]) == 2
    build.live(clock, spool)  # type: ignore[arg-type]  # three boots are three transitions
    await until(lambda: len(double.batches) == 2)
    assert [event["kind"] for event in double.batches[1]["events"]] == ["transition"] * 3
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
