"""One worker's breakers in a process of its own, told what to do through its standard input.

``python -m tests.gateway.sibling_process DIRECTORY``; each line in is a command, each line out its
answer: ``fail`` (one call from admission to result), ``admit`` (and keep the permit), ``finish``
(record the kept one as good), ``state``.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from uuid import uuid4

from controlplane.domain.breaker import Permit
from controlplane.domain.gate import Refusal
from gateway.clock import SystemClock
from gateway.host import Host
from gateway.live import Live
from tests.gateway import build
from tests.gateway.build import DOWN, EAST, OK, Kept

POLICY = {"open_seconds": 0.3, "max_open_seconds": 0.3, "probe_lease_seconds": 30.0}


class Worker:
    """What the commands act on."""

    def __init__(self, directory: Path) -> None:
        self.clock = SystemClock()
        boot = uuid4()
        self.live = Live(build.config(), boot, "host/0", self.clock, Kept())
        told = build.received(policies=[build.policy("p", **POLICY)])
        self.live.apply(told, "Stream", self.clock.monotonic(), self.clock.wall())
        self.host = Host(directory, str(boot), self.clock.monotonic)
        self.kept: list[Permit] = []

    def answer(self, command: str) -> str:
        now = self.clock.monotonic()
        if command == "state":
            statuses = self.live.circuit_statuses(now)
            seen = next(one for one in statuses if one.region == EAST.region)
            return f"{seen.state} {seen.cause}"
        if command == "finish":
            self.live.record(EAST, self.kept.pop(), OK, now)
            return "recorded"
        answer = self.live.admit(EAST, now)
        if isinstance(answer, Refusal):
            return f"refused {answer.detail}"
        if command == "admit":
            self.kept.append(answer)
            return "admitted"
        self.live.record(EAST, answer, DOWN, now)
        return "recorded"


async def main(directory: Path) -> None:
    worker = Worker(directory)
    worker.host.start(worker.live.follow)
    worker.live.share_with(worker.host)
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    print("ready", flush=True)
    while line := await reader.readline():
        print(worker.answer(line.decode().strip()), flush=True)
    worker.host.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
