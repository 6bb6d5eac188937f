"""Sends the spool's batches to the control plane, one at a time and in order.

Invariants: a batch leaves the outbox only with a receipt, or when the control plane said that it
will never accept it; whatever else happens, the very same batch is sent again, with full jitter and
never before a ``Retry-After``. Nothing of the request path waits for any of this.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import random
from collections.abc import Callable

import msgspec

from controlplane.domain.backoff import BackoffPolicy
from controlplane.wire.events import Receipt
from gateway.clock import Clock
from gateway.contact import Answer, Contact, NoAnswer
from gateway.outbox import Outbox, Sealed
from gateway.spool import Spool

log = logging.getLogger(__name__)

LINGER_S = 0.5
"""How long a first event waits for company: what the wall's figures lag behind by."""

GZIP_FROM = 1024
UNACCEPTABLE = (400, 413, 415, 422)
REFUSED = (401, 403)
REFUSED_WAIT_S = 30.0

BACKOFF = BackoffPolicy(base_seconds=0.5, factor=2.0, cap_seconds=30.0)


class Sender:
    """Empties one outbox."""

    def __init__(
        self,
        contact: Contact,
        clock: Clock,
        outbox: Outbox,
        known: Callable[[], tuple[str, int]],
        on_receipt: Callable[[Receipt], None],
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._contact = contact
        self._clock = clock
        self._outbox = outbox
        self._known = known  # epoch and generation last seen, for the batch's head
        self._on_receipt = on_receipt
        self._draw = draw
        self._failures = 0

    async def send_all(self) -> None:
        """Return when the outbox is empty; never gives up."""
        while (batch := self._outbox.head()) is not None:
            wait = await self._send(batch)
            if wait > 0:
                await self._clock.sleep(wait)

    async def _send(self, batch: Sealed) -> float:
        """Send one batch; returns how long to wait before the next try, 0 when it has left."""
        try:
            body = await asyncio.to_thread(self._outbox.body, batch, *self._known())
        except OSError as error:
            self._outbox.set_aside(batch, f"cannot be read: {error}")
            return 0.0
        zipped = len(body) > GZIP_FROM
        if zipped:
            body = await asyncio.to_thread(gzip.compress, body, 1)
        try:
            answer = await self._contact.send_events(body, zipped)
        except NoAnswer as error:
            return self._later(str(error), None)
        return self._judge(batch, answer)

    def _judge(self, batch: Sealed, answer: Answer) -> float:
        if answer.status == 200:
            return self._received(batch, answer)
        if answer.status in UNACCEPTABLE:
            self._outbox.set_aside(batch, f"{answer.status} {_detail(answer)}")
            return 0.0
        if answer.status in REFUSED:
            self._failures += 1
            log.error("events are refused with %d: check the gateway's token", answer.status)
            return REFUSED_WAIT_S * (0.5 + self._draw())
        return self._later(f"{answer.status} {_detail(answer)}", answer.retry_after_s)

    def _received(self, batch: Sealed, answer: Answer) -> float:
        try:
            receipt = msgspec.json.decode(answer.body, type=Receipt)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            # 200 from something that is not the control plane proves nothing.
            return self._later(f"not a receipt: {error}", None)
        if receipt.seq != batch.seq:
            return self._later(f"the receipt of batch {receipt.seq}", None)
        self._failures = 0
        for unread in receipt.unread[:3]:
            log.error("event %d of batch %d: %s", unread.index, batch.seq, unread.reason)
        self._outbox.acknowledge(batch, receipt.epoch, self._clock.wall())
        if again := self._outbox.told(receipt.epoch, receipt.contiguous):
            log.warning(
                "the control plane is of another epoch and has up to batch %d of %s: %d go again",
                receipt.contiguous,
                self._outbox.identity.instance,
                again,
            )
        self._on_receipt(receipt)
        return 0.0

    def heard(self, epoch: str) -> bool:
        """Somebody said which epoch it is; True when there is a batch to send for it."""
        return self._outbox.ask(epoch)

    def _later(self, why: str, retry_after_s: float | None) -> float:
        self._failures += 1
        # An outage of hours must not fill the log: the 1st, 2nd, 4th, 8th … failure speaks.
        if self._failures & (self._failures - 1) == 0:
            log.warning("events wait, try %d: %s", self._failures, why)
        # A full jitter of nothing would be a busy loop.
        return max(0.05, BACKOFF.wait(self._failures, self._draw(), retry_after_s))


class Reporter:
    """Seals the spool's open segment when it is time, and sends."""

    def __init__(self, spool: Spool, sender: Sender, clock: Clock) -> None:
        self._spool = spool
        self._sender = sender
        self._clock = clock
        self._first = asyncio.Event()
        self._urgent = asyncio.Event()
        spool.on_first = self._first.set
        spool.on_urgent = self._urgent.set

    async def run(self) -> None:
        """Until cancelled. A transition goes at once, the rest after ``LINGER_S``."""
        await self._sender.send_all()
        while True:
            if not self._spool.pending and not len(self._spool.outbox):
                await self._first.wait()
            await self._clock.first(self._urgent, LINGER_S)
            self._first.clear()
            self._urgent.clear()
            self._spool.seal()
            await self._sender.send_all()

    def heard(self, epoch: str) -> None:
        """The control plane's epoch, from whatever answer: another one is asked what it has."""
        if self._sender.heard(epoch):
            self._first.set()

    async def flush(self) -> None:
        """Seal and send everything; the caller bounds the time. Not while ``run`` runs."""
        self._spool.seal()
        await self._sender.send_all()


def _detail(answer: Answer) -> str:
    return answer.body[:300].decode("utf-8", "replace")
