"""``python -m tests.soak.instances``: some instances of one gateway in one process, under load.

They are the gateway's own agents (spool, outbox, adoption, watch, status); only the proxy before
them is replaced by calls drawn from a seed. Reads one JSON line: ``{"url", "gateway", "token",
"folder", "notes", "instances", "calls_per_s", "seed", "lossy"}``; then ``stop`` ends the calls and
the end of input ends the process in order. Says ``ready`` when every instance is in.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec

from controlplane.domain.circuit import Circuit
from controlplane.wire.events import (
    AnyEvent,
    Attempt,
    Outcome,
    Receipt,
    Refusal,
    Tokens,
    Transition,
    mint_id,
)
from gateway import agent as agent_module
from gateway.agent import Agent
from gateway.config import Config, ControlPlane, Listener, Provider, Route, Target
from gateway.contact import Answer, Contact
from gateway.loop import run
from gateway.spool import Bounds, Spool
from tests.soak.notes import Notes

CIRCUITS = (
    Circuit("openai", "gpt-4o"),
    Circuit("openai", "gpt-4o-mini", "eu"),
    Circuit("anthropic", "claude-sonnet-4-5"),
    Circuit("mistral", "mistral-small-latest"),
)
FLAPPING = Circuit("soak", "flapping")
# So little that an outage of seconds drops batches: those losses must be told, to the event.
LOSSY = Bounds(events=40, bytes=32 * 1024, disk=64 * 1024, memory=16 * 1024)
LONGEST_CALL_S = 0.3


class NotedContact(Contact):
    """Notes every answer, and every receipt."""

    notes: Notes

    async def send_events(self, body: bytes, gzipped: bool) -> Answer:
        """POST one batch."""
        answer = await super().send_events(body, gzipped)
        self.notes.answered("events", answer.status)
        if answer.status == 200:
            # Which boot's it is stands in the body; an adopted spool sends under the old one.
            self.notes.acknowledged(
                _boot(body, gzipped), msgspec.json.decode(answer.body, type=Receipt)
            )
        return answer

    async def send_status(self, boot_id: str, body: bytes) -> Answer:
        """PATCH one status report."""
        answer = await super().send_status(boot_id, body)
        self.notes.answered("status", answer.status)
        return answer

    async def fetch(self, etag: str | None) -> Answer:
        """GET the snapshot."""
        answer = await super().fetch(etag)
        self.notes.answered("config", answer.status)
        return answer


class NotedSpool(Spool):
    """Notes what it was given before and after."""

    notes: Notes

    def begin(self, attempt: Attempt) -> None:
        """Mark a call as begun."""
        self.notes.intended(self.outbox.identity.instance, [(attempt.id, "attempt")])
        super().begin(attempt)

    def append(self, *events: AnyEvent) -> None:
        """Keep events for sending."""
        boot = self.outbox.identity.instance
        named = [(event.id, str(event.__struct_config__.tag)) for event in events]
        self.notes.intended(boot, named)
        super().append(*events)
        self.notes.kept(boot, [event.id for event in events])


def _boot(body: bytes, gzipped: bool) -> UUID:
    import gzip

    plain = gzip.decompress(body) if gzipped else body
    return UUID(plain[len('{"instance":"') :][:36].decode())


class Load:
    """The calls of one instance, drawn from its seed."""

    def __init__(self, agent: Agent, seed: str, per_s: float) -> None:
        self._agent = agent
        self._draw = random.Random(seed)
        self._per_s = per_s
        self._numbers = 0
        self._calls: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event) -> None:
        """Call until told to stop, then wait for the calls under way."""
        while not stop.is_set():
            await asyncio.sleep(self._draw.expovariate(self._per_s))
            call = asyncio.create_task(self._call())
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
        await asyncio.gather(*self._calls)

    async def _call(self) -> None:
        draw, spool = self._draw, self._agent.spool
        begun, request = datetime.now(UTC), self._id(datetime.now(UTC))
        task = f"task-{draw.randrange(40)}" if draw.random() < 0.5 else None
        tenant = f"tenant-{draw.randrange(12):02d}"
        named: dict[str, Any] = {"request": request, "task": task, "tenant": tenant}
        named["route"] = draw.choice(("chat", "drafts"))
        for ordinal in range(1, 4):
            if draw.random() < 0.1:
                spool.append(self._refusal(named))
            good = await self._attempt(named, ordinal)
            if good:
                break
        ended = datetime.now(UTC)
        # The end of a request takes no route of its own: an outcome and what a caller says later.
        said: list[AnyEvent] = [self._outcome(named, good, begun, ended)]
        if task is not None and draw.random() < 0.2:
            said.append(self._word(named, draw.random() < 0.8))
        if draw.random() < 0.03:
            said.append(self._transition())
        spool.append(*said)

    async def _attempt(self, named: dict[str, Any], ordinal: int) -> bool:
        draw, at = self._draw, datetime.now(UTC)
        circuit = draw.choice(CIRCUITS)
        good = draw.random() < 0.85
        mark = Attempt(
            id=self._id(at),
            occurred_at=at,
            ordinal=ordinal,
            role="first" if ordinal == 1 else "retry",
            provider=circuit.provider,
            model=circuit.model,
            region=circuit.region,
            verdict="local_fault",
            billing="unknown",
            **named,
        )
        self._agent.spool.begin(mark)
        await asyncio.sleep(draw.uniform(0, LONGEST_CALL_S))
        took = int((datetime.now(UTC) - at) / timedelta(milliseconds=1))
        self._agent.spool.append(
            msgspec.structs.replace(
                mark,
                status=200 if good else 503,
                verdict="success" if good else "retryable",
                reason="" if good else "overloaded",
                counts_against_breaker=not good,
                served_model=circuit.model,
                first_byte_ms=took // 2,
                ended_ms=took,
                billing="billed" if good else "not_billed",
                served=good,
                tokens=Tokens(input=draw.randint(50, 4000), output=draw.randint(10, 900))
                if good
                else None,
            )
        )
        return good

    def _id(self, at: datetime) -> UUID:
        # Ids must differ between the lives of a process, whose seeds are the same.
        return mint_id(at, random.SystemRandom().getrandbits(74))

    def _refusal(self, named: dict[str, Any]) -> Refusal:
        at, circuit = datetime.now(UTC), self._draw.choice(CIRCUITS)
        return Refusal(
            id=self._id(at),
            occurred_at=at,
            provider=circuit.provider,
            model=circuit.model,
            region=circuit.region,
            gate=self._draw.choice(("breaker", "budget", "rate")),
            **named,
        )

    def _outcome(
        self, named: dict[str, Any], good: bool, begun: datetime, ended: datetime
    ) -> Outcome:
        return Outcome(
            id=self._id(ended),
            occurred_at=ended,
            success=good,
            started_at=begun,
            ended_at=ended,
            latency_ms=int((ended - begun) / timedelta(milliseconds=1)),
            **named,
        )

    def _word(self, named: dict[str, Any], good: bool) -> Outcome:
        at = datetime.now(UTC)
        return Outcome(
            id=self._id(at),
            occurred_at=at,
            task=named["task"],
            tenant=named["tenant"],
            success=good,
            explicit=True,
        )

    def _transition(self) -> Transition:
        self._numbers += 1
        at, opens = datetime.now(UTC), self._numbers % 2 == 1
        return Transition(
            id=self._id(at),
            occurred_at=at,
            provider=FLAPPING.provider,
            model=FLAPPING.model,
            region=FLAPPING.region,
            number=self._numbers,
            from_state="Closed" if opens else "Open",
            to_state="Open" if opens else "Closed",
            cause="ConsecutiveFailures" if opens else "ProbeSucceeded",
        )


def _config(order: dict[str, Any]) -> Config:
    return Config(
        gateway=Listener(order["gateway"], data_dir=Path(order["folder"])),
        providers=tuple(Provider(p, "http://127.0.0.1:9") for p in {c.provider for c in CIRCUITS}),
        routes=(Route("chat", tuple(Target(c) for c in CIRCUITS)),),
        control_plane=ControlPlane(order["url"], order["token"]),
    )


async def main() -> None:
    """Run until the input ends."""
    read = partial(asyncio.to_thread, sys.stdin.readline)
    order = json.loads(await read())
    NotedContact.notes = NotedSpool.notes = notes = Notes(Path(order["notes"]))
    agent_module.Contact = NotedContact  # type: ignore[misc]
    agent_module.Spool = NotedSpool  # type: ignore[misc]
    if order["lossy"]:
        agent_module.Bounds = lambda: LOSSY  # type: ignore[misc,assignment]
    stop, config = asyncio.Event(), _config(order)
    agents: list[Agent] = []
    async with AsyncExitStack() as stack:
        loads = []
        for index in range(order["instances"]):
            agent = Agent(config, index, host=f"soak-{order['gateway']}")
            # Noted before it is entered: its spool may tell of transitions from then on.
            notes.boot(agent.spool.outbox.identity.instance, order["gateway"], order["lossy"])
            await stack.enter_async_context(agent)
            agents.append(agent)
            load = Load(agent, f"{order['seed']}/{index}", order["calls_per_s"])
            loads.append(asyncio.create_task(load.run(stop)))
        print("ready", flush=True)
        await read()
        stop.set()
        await asyncio.gather(*loads)
        print("stopped", flush=True)
        while await read():
            pass
    for agent in agents:
        notes.lost(agent.spool.outbox.identity.instance, agent.spool.dropped.total())


if __name__ == "__main__":
    run(main())
