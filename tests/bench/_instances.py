"""A fleet in one process: the real watch client, status sender and breakers, without a proxy.

Reads one JSON line on stdin: ``{"url", "per_gateway", "poll_only", "folder", "gateways": [[name,
token], ...]}``. Says ``ready`` once every instance runs what it was told. Any further line is
answered with one JSON line of what was seen since the one before: the longest answer to a status
report (``longest_s``), how many were sent and not taken, and this process's processor time.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from controlplane.domain.circuit import Circuit
from controlplane.wire.status import SpoolStatus
from gateway import collector
from gateway.checkpoint import Checkpoint
from gateway.clock import ClockOffset, SystemClock
from gateway.config import Config, ControlPlane, Listener, Provider, Route, Target
from gateway.contact import Answer, Contact, NoAnswer
from gateway.live import Live
from gateway.local_overrides import LocalOverrides, Store
from gateway.loop import run
from gateway.status import StatusSender
from gateway.watch import Watcher

CIRCUITS = [Circuit("openai", "gpt-4.1-mini"), Circuit("mistral", "mistral-small-latest")]


class Timed(Contact):
    """Notes how long answers take, those too for which nobody waited any more."""

    longest_s = 0.0
    sent = 0
    not_taken = 0

    async def send_status(self, boot_id: str, body: bytes) -> Answer:
        began = time.monotonic()
        Timed.sent += 1
        status = 0
        try:
            answer = await super().send_status(boot_id, body)
            status = answer.status
            return answer
        finally:
            # A connection that is refused while nobody listens is no answer, and takes no time.
            Timed.longest_s = max(Timed.longest_s, time.monotonic() - began)
            Timed.not_taken += status != 200

    @classmethod
    def seen(cls) -> dict[str, float]:
        """What was seen since the last time."""
        found = {"longest_s": Timed.longest_s, "sent": Timed.sent, "not_taken": Timed.not_taken}
        Timed.longest_s, Timed.sent, Timed.not_taken = 0.0, 0, 0
        return found | {"cpu_s": time.process_time()}


class PollOnly(Timed):
    """A network in which no stream can be opened."""

    @asynccontextmanager
    async def watch(self, epoch: str, generation: int, hash_: str) -> Any:
        raise NoAnswer("streams are not possible here")
        yield


class Dropped:
    """The spool of an instance that serves nobody."""

    def append(self, event: object) -> None:
        """Breakers report their boot; nothing else happens."""


async def _instance(order: dict[str, Any], name: str, token: str, index: int) -> tuple[Live, Any]:
    folder = Path(order["folder"]) / name / str(index)
    config = Config(
        gateway=Listener(name, data_dir=folder),
        providers=tuple(Provider(c.provider, "http://127.0.0.1:9") for c in CIRCUITS),
        routes=(Route("assistant", tuple(Target(c) for c in CIRCUITS)),),
        control_plane=ControlPlane(order["url"], token),
    )
    clock = SystemClock()
    live = Live(config, uuid4(), f"{socket.gethostname()}-{name}/{index}", clock, Dropped())
    kind = PollOnly if order["poll_only"] else Timed
    assert config.control_plane is not None
    contact = await STACK.enter_async_context(kind(config.control_plane, name))
    offset = ClockOffset()
    watcher = Watcher(contact, live, Checkpoint(folder / "config.json", name), clock, offset)
    local = LocalOverrides(Store(folder / "local"), live.hold_local, clock)
    status = StatusSender(contact, live, SpoolStatus, watcher, clock, offset, local)
    live.on_change = status.changed
    return live, (watcher.run, status.run)


STACK = AsyncExitStack()


async def main() -> None:
    order = json.loads(sys.stdin.readline())
    lives = []
    async with STACK:
        tasks = []
        for name, token in order["gateways"]:
            for index in range(order["per_gateway"]):
                live, runs = await _instance(order, name, token, index)
                lives.append(live)
                tasks += [asyncio.create_task(run()) for run in runs]
        while not all(live.in_force.generation for live in lives):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        collector.settle()
        print("ready", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(Timed.seen()), flush=True)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    run(main())
