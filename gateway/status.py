"""Tells the control plane what this instance really enforces.

Invariants: a report is made from memory at the moment of sending, so it never says what is no
longer so; an applied snapshot is on the disk before a report names it; ``seq`` rises by one a
report. A change goes at once, changes within 50 ms go together, and without any a report goes every
10 s. A failed report is tried again after a growing wait, or as soon as the watch hears of the
control plane; a wait that it asked for is kept. Nothing of the request path waits for this.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from datetime import datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

import msgspec

from controlplane.domain.backoff import BackoffPolicy
from controlplane.wire.status import (
    Clock as ClockReport,
)
from controlplane.wire.status import (
    InstanceStatus,
    SpoolStatus,
    StatusReceipt,
)
from gateway.clock import Clock, ClockOffset
from gateway.contact import Answer, Contact, NoAnswer
from gateway.live import Live
from gateway.local_overrides import LocalOverrides
from gateway.watch import Watcher

log = logging.getLogger(__name__)

HEARTBEAT_S = 10.0
COALESCE_S = 0.05
SETTLE_S = 1.0
"""How long a report waits for the disk: a stalled one must not make this instance look silent. Then
it says what is enforced, and that a restart would not begin with it."""
REFUSED_WAIT_S = 30.0

BACKOFF = BackoffPolicy(base_seconds=0.5, factor=2.0, cap_seconds=8.0)
CAPABILITIES = [
    "override.expiry",
    "override.floor",
    "override.local",
    "mode.observeOnly",
    "budget.window",
    "route",
    "probe",
]


class _Again(NamedTuple):
    """When to send what was not taken. ``asked``: the control plane named the time itself."""

    after_s: float
    asked: bool


class StatusSender:
    """Reports of one boot, in order."""

    def __init__(
        self,
        contact: Contact,
        live: Live,
        spool: Callable[[], SpoolStatus],
        watcher: Watcher,
        clock: Clock,
        offset: ClockOffset,
        local: LocalOverrides,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._contact = contact
        self._live = live
        self._spool = spool
        self._watcher = watcher
        self._clock = clock
        self._offset = offset
        self._local = local
        self._draw = draw
        self._started_at = clock.wall()
        self._wake = asyncio.Event()
        self._wake.set()
        self._seq = 0
        self._failures = 0
        self._sent_at = float("-inf")

    def changed(self) -> None:
        """Something that a report says is different now."""
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._clock.first(self._wake, HEARTBEAT_S)
            since = self._clock.monotonic() - self._sent_at
            if since < COALESCE_S:
                await self._clock.sleep(COALESCE_S - since)
            await self._clock.first(self._watcher.settled, SETTLE_S)
            self._wake.clear()
            again = await self._send(goodbye=False)
            if again is None:
                continue
            if again.asked:
                # Neither a change nor a sign of life cuts a wait that the control plane asked for.
                await self._clock.sleep(again.after_s)
            else:
                # After it hung, what it missed meanwhile is told with the first word on the stream.
                self._watcher.alive.clear()
                await self._clock.first(self._watcher.alive, again.after_s)
            self._wake.set()

    async def goodbye(self) -> None:
        """The last report of this boot: it leaves the wall. Tried once; not while ``run`` runs."""
        await self._send(goodbye=True)

    async def _send(self, goodbye: bool) -> _Again | None:
        """Send one report; when it was not taken, returns when to try again."""
        report = self._report(goodbye)
        body = msgspec.json.encode(report)
        sent, began = self._clock.wall(), self._clock.monotonic()
        self._sent_at = began
        try:
            answer = await self._contact.send_status(str(self._live.boot_id), body)
        except NoAnswer as error:
            return self._later(str(error), None)
        if answer.status == 200:
            self._local.heard(report.local_overrides)
            return self._received(answer, sent, began)
        text = f"{answer.status} {answer.body[:300].decode('utf-8', 'replace')}"
        if answer.status in (401, 403):
            return self._later(text, REFUSED_WAIT_S)
        return self._later(text, answer.retry_after_s)

    def _received(self, answer: Answer, sent: datetime, began: float) -> _Again | None:
        rtt_s = self._clock.monotonic() - began
        try:
            receipt = msgspec.json.decode(answer.body, type=StatusReceipt)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return self._later(f"not a receipt: {error}", None)
        self._failures = 0
        self._offset.measured(sent, receipt.server_time, rtt_s, began)
        self._retime()
        self._watcher.heard(receipt.epoch, receipt.generation, receipt.instances)
        return None

    def _retime(self) -> None:
        """Tell what is armed how late it is: a snapshot off the disk, or one that came before any
        answer did, was armed by less than is known now."""
        now, rtt_s = self._clock.monotonic(), self._offset.rtt_s
        server = self._offset.server_time(now)
        if server is not None and rtt_s is not None:
            self._live.retime(server, now, rtt_s / 2)

    def _later(self, why: str, floor: float | None) -> _Again:
        self._failures += 1
        if self._failures & (self._failures - 1) == 0:
            log.warning("the status report waits, try %d: %s", self._failures, why)
        wait = BACKOFF.wait(self._failures, self._draw(), floor)
        return _Again(max(COALESCE_S, wait), asked=floor is not None)

    def _report(self, goodbye: bool) -> InstanceStatus:
        now, wall = self._clock.monotonic(), self._clock.wall()
        self._seq += 1
        live = self._live
        circuits = live.circuit_statuses(now)
        in_force = live.in_force
        offset = self._offset
        refused = self._watcher.refused
        return InstanceStatus(
            slot=live.slot,
            seq=self._seq,
            sent_at=wall,
            started_at=self._started_at,
            version=_version(),
            epoch=in_force.epoch,
            received_generation=self._watcher.received_generation,
            applied_generation=in_force.generation,
            applied_hash=in_force.hash,
            applied_at=in_force.applied_at,
            checkpointed_generation=self._watcher.checkpointed_generation,
            config_source=in_force.source,
            items=live.items()[:2000],
            circuits=circuits[:600],
            budgets=live.budget_statuses(now)[:2000],
            spool=self._spool(),
            clock=ClockReport(offset_s=offset.offset_s, rtt_s=offset.rtt_s),
            capabilities=CAPABILITIES,
            local_overrides=self._local.report()[:200],
            refused_generation=refused.of[1] if refused else 0,
            refused_reason=str(refused)[:1000] if refused else "",
            goodbye=goodbye,
        )


@cache  # it reads the installed packages: a millisecond, as long as the rest of a report
def _version() -> str:
    try:
        return version("switchgear")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "checkout"
