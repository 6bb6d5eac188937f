"""Twenty instances with two hundred real breakers each, which trip and recover on command.

The breakers, the status reports and the watch are the gateway's own; what is left out is the proxy
around them, so an attempt is one permit and one verdict. Reads JSON lines on stdin: first ``{"url",
"folder", "gateways": [[name, token], ...], "circuits": [[provider, model, region], ...],
"spared"}``, answered by ``"ready"``; then ``{"trip": [instance, circuit]}``, answered by when the
breaker opened (seconds of the epoch), ``{"rate": n}``, from which n transitions a second are aimed
at on the circuits past the first ``spared``, and ``{"count": 1}``, answered by the transitions so
far. Ends with stdin.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from collections import deque
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec

from controlplane.domain.circuit import Circuit
from controlplane.domain.gate import Refusal
from controlplane.domain.verdict import Kind, Scope, Verdict
from controlplane.wire.events import AnyEvent, Transition
from controlplane.wire.status import SpoolStatus
from gateway.checkpoint import Checkpoint
from gateway.clock import ClockOffset, SystemClock
from gateway.config import Config, ControlPlane, Listener, Provider, Route, Target
from gateway.contact import Contact
from gateway.live import Live
from gateway.local_overrides import LocalOverrides, Store
from gateway.status import StatusSender
from gateway.watch import Watcher

GOOD = Verdict(Kind.SUCCESS, "", False, False, Scope.NONE)
BAD = Verdict(Kind.RETRYABLE, "overloaded", True, True, Scope.MODEL)
TURN_SECONDS = 0.05
BATCH_SECONDS = 1.0
MOST_FAILURES = 200
# Open, HalfOpen and Closed again: what one trip comes to, within a quarter of a minute.
TRANSITIONS_OF_A_TRIP = 3


class Spool:
    """In memory: each second one batch of what the breakers did."""

    transitions = 0

    def __init__(self, boot_id: UUID, slot: str) -> None:
        self._head = {"instance": boot_id, "slot": slot}
        self._events: list[AnyEvent] = []
        self._seq = 0

    def append(self, event: AnyEvent) -> None:
        """Keep one event, and count it if it is a transition."""
        self._events.append(event)
        Spool.transitions += isinstance(event, Transition)

    async def send(self, contact: Contact) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(BATCH_SECONDS)
            if not self._events:
                continue
            self._seq += 1
            events, self._events = self._events, []
            more = {"seq": self._seq, "sent_at": datetime.now(UTC), "events": events}
            answer = await contact.send_events(msgspec.json.encode(self._head | more), False)
            if answer.status != 200:
                raise RuntimeError(f"events: {answer.status} {answer.body[:300]!r}")


class Fleet:
    """The instances, in the order of their gateways."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.circuits = [Circuit(*name) for name in order["circuits"]]
        self.lives: list[Live] = []
        self.rate = 0.0
        self._order = order
        self._clock = SystemClock()
        self._tripped: dict[tuple[int, int], None] = {}
        self._turns: deque[tuple[int, int]] = deque(
            (i, c)
            for c in range(order["spared"], len(self.circuits))
            for i in range(len(order["gateways"]))
        )

    async def join(self, stack: AsyncExitStack) -> list[asyncio.Task[None]]:
        """Every instance with its watch and its status reports."""
        tasks = []
        for name, token in self._order["gateways"]:
            live, runs = await self._instance(stack, name, token)
            self.lives.append(live)
            tasks += [asyncio.create_task(run()) for run in runs]
        while not all(live.in_force.generation for live in self.lives):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        return tasks

    async def _instance(self, stack: AsyncExitStack, name: str, token: str) -> tuple[Live, Any]:
        folder = Path(self._order["folder"]) / name
        providers = sorted({circuit.provider for circuit in self.circuits})
        config = Config(
            gateway=Listener(name, data_dir=folder),
            providers=tuple(Provider(p, "http://127.0.0.1:9") for p in providers),
            routes=(Route("assistant", tuple(Target(c) for c in self.circuits)),),
            control_plane=ControlPlane(self._order["url"], token),
        )
        clock = self._clock
        boot_id, slot = uuid4(), f"{socket.gethostname()}-{name}/0"
        spool = Spool(boot_id, slot)
        live = Live(config, boot_id, slot, clock, spool)
        assert config.control_plane is not None
        contact = await stack.enter_async_context(Contact(config.control_plane, name))
        offset = ClockOffset()
        watcher = Watcher(contact, live, Checkpoint(folder / "config.json", name), clock, offset)
        local = LocalOverrides(Store(folder / "local"), live.hold_local, clock)
        status = StatusSender(contact, live, SpoolStatus, watcher, clock, offset, local)
        live.on_change = status.changed
        return live, (watcher.run, status.run, partial(spool.send, contact))

    def trip(self, instance: int, circuit: int) -> float:
        """Failures until the breaker opens; when that was."""
        live, name = self.lives[instance], self.circuits[circuit]
        for _ in range(MOST_FAILURES):
            now = self._clock.monotonic()
            permit = live.admit(name, now)
            if isinstance(permit, Refusal):
                self._tripped[instance, circuit] = None
                return time.time()
            live.record(name, permit, BAD, now)
        raise RuntimeError(f"{name} did not open")

    async def run(self) -> None:
        """Trip at the rate that is asked for, and let one call through to what is half-open."""
        owed = 0.0
        while True:
            await asyncio.sleep(TURN_SECONDS)
            self._recover()
            owed += self.rate / TRANSITIONS_OF_A_TRIP * TURN_SECONDS
            while owed >= 1:
                owed -= 1
                # The one that was tripped longest ago; while it is still open nothing happens.
                self._turns.rotate(-1)
                if self._turns[-1] not in self._tripped:
                    self.trip(*self._turns[-1])

    def _recover(self) -> None:
        now = self._clock.monotonic()
        for instance, circuit in list(self._tripped):
            live, name = self.lives[instance], self.circuits[circuit]
            if not live.probes(name, now):
                continue
            permit = live.admit(name, now)
            if not isinstance(permit, Refusal):
                live.record(name, permit, GOOD, now)
                del self._tripped[instance, circuit]


async def main() -> None:
    """Obey stdin."""
    fleet = Fleet(json.loads(sys.stdin.readline()))
    async with AsyncExitStack() as stack:
        tasks = [*await fleet.join(stack), asyncio.create_task(fleet.run())]
        print(json.dumps("ready"), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            told = json.loads(line)
            if "trip" in told:
                print(json.dumps(fleet.trip(*told["trip"])), flush=True)
            elif "rate" in told:
                fleet.rate = told["rate"]
            else:
                print(json.dumps(Spool.transitions), flush=True)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
