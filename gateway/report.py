"""Sends the spool's batches to the control plane, one at a time and in order.

Invariants: a batch leaves the outbox only with a receipt, or when the control plane said that it
will never accept it; whatever else happens, the very same batch is sent again, with full jitter and
never before a ``Retry-After``. One that fails while others are accepted holds up none of them: they
go before it, it is tried again for hours, and then it is set aside as a loss that is told of. What
fails with all others, as in an outage, is never given up. Nothing of the request path waits for any
of this.
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

PATIENCE = 4
"""Failures of one batch before another is tried in its place, to learn whose fault it is."""
HOLD = BackoffPolicy(base_seconds=30.0, factor=2.0, cap_seconds=1800.0)
MOST_BLAMED = 10
"""Failures between which others were accepted: over an hour of them, then it is given up."""


class Accepted:
    """How many batches the control plane has taken from this worker, of whichever outbox."""

    def __init__(self) -> None:
        self.count = 0


class Sender:
    """Empties one outbox. ``more``: called when another batch is wanted than the one that fails.

    One that ``shares`` its time returns after such a failure, for another outbox to be tried.
    """

    def __init__(
        self,
        contact: Contact,
        clock: Clock,
        outbox: Outbox,
        known: Callable[[], tuple[str, int]],
        on_receipt: Callable[[Receipt], None],
        draw: Callable[[], float] = random.random,
        *,
        accepted: Accepted | None = None,
        more: Callable[[], None] | None = None,
        shares: bool = False,
    ) -> None:
        self._contact = contact
        self._clock = clock
        self._outbox = outbox
        self._known = known  # epoch and generation last seen, for the batch's head
        self._on_receipt = on_receipt
        self._draw = draw
        self._accepted = accepted or Accepted()
        self._more = more
        self._shares = shares
        self._failures = 0
        self._failed: Sealed | None = None

    async def send_all(self) -> None:
        """Return when all is sent or held, or another outbox is to be tried."""
        while (batch := self._next()) is not None:
            wait = await self._send(batch)
            if wait > 0:
                await self._clock.sleep(wait)
                if self._shares and batch.tries >= PATIENCE:
                    return

    @property
    def due_at(self) -> float | None:
        """When there is something to send, on the monotonic clock; None: nothing waits."""
        return self._outbox.due_at

    def _next(self) -> Sealed | None:
        """The oldest; after its ``PATIENCE``, every second time another."""
        now = self._clock.monotonic()
        head = self._outbox.head(now)
        if head is None or head.tries < PATIENCE or head is not self._failed:
            return head
        if self._more is not None and len(self._outbox) == 1:
            self._more()
        return self._outbox.other_than(head, now) or self._outbox.head(now)

    async def _send(self, batch: Sealed) -> float:
        """Send one batch; returns how long to wait before the next try, 0 when it has left."""
        try:
            known, now = self._known(), self._clock.wall()
            body = await asyncio.to_thread(self._outbox.body, batch, *known, now)
        except OSError as error:
            self._outbox.set_aside(batch, f"cannot be read: {error}")
            return 0.0
        zipped = len(body) > GZIP_FROM
        if zipped:
            body = await asyncio.to_thread(gzip.compress, body, 1)
        try:
            answer = await self._contact.send_events(body, zipped)
        except NoAnswer as error:
            return self._later(batch, str(error), None)
        return self._judge(batch, answer)

    def _judge(self, batch: Sealed, answer: Answer) -> float:
        if answer.status == 200:
            return self._received(batch, answer)
        if answer.status in UNACCEPTABLE:
            self._set_aside(batch, f"{answer.status} {_detail(answer)}")
            return 0.0
        if answer.status in REFUSED:
            self._failures += 1
            log.error("events are refused with %d: check the gateway's token", answer.status)
            return REFUSED_WAIT_S * (0.5 + self._draw())
        return self._later(batch, f"{answer.status} {_detail(answer)}", answer.retry_after_s)

    def _received(self, batch: Sealed, answer: Answer) -> float:
        try:
            receipt = msgspec.json.decode(answer.body, type=Receipt)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            # 200 from something that is not the control plane proves nothing.
            return self._later(batch, f"not a receipt: {error}", None)
        if receipt.seq != batch.seq:
            return self._later(batch, f"the receipt of batch {receipt.seq}", None)
        self._failures = 0
        self._failed = None
        self._accepted.count += 1
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

    def _later(self, batch: Sealed, why: str, retry_after_s: float | None) -> float:
        self._failed = batch
        batch.failed(self._accepted.count, PATIENCE)
        if batch.blamed >= MOST_BLAMED:
            self._set_aside(batch, f"it fails while others are accepted: {why}")
            return 0.0
        if batch.blamed:
            log.error("batch %d is held, others are accepted: %s", batch.seq, why)
            held = HOLD.wait(batch.blamed, (1 + self._draw()) / 2, retry_after_s)
            batch.held_until = self._clock.monotonic() + held
            return 0.0
        self._failures += 1
        # An outage of hours must not fill the log: the 1st, 2nd, 4th, 8th … failure speaks.
        if self._failures & (self._failures - 1) == 0:
            log.warning("events wait, try %d: %s", self._failures, why)
        # A full jitter of nothing would be a busy loop.
        return max(0.05, BACKOFF.wait(self._failures, self._draw(), retry_after_s))

    def _set_aside(self, batch: Sealed, why: str) -> None:
        self._failed = None
        self._outbox.set_aside(batch, why)


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
            await self._something_to_send()
            await self._clock.first(self._urgent, LINGER_S)
            self._first.clear()
            self._urgent.clear()
            self._spool.seal()
            await self._sender.send_all()

    async def _something_to_send(self) -> None:
        if self._spool.pending:
            return
        due_at = self._sender.due_at
        if due_at is None:
            await self._first.wait()
        elif (wait := due_at - self._clock.monotonic()) > 0:
            await self._clock.first(self._first, wait)

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
