"""``python -m gateway.traffic --gateway URL``: steady made-up traffic of several tenants.

Invariant: it never stops because a gateway is away, and never has more than ``--most`` requests
open; what it cannot send in time it leaves out and counts. Contents are fixed filler words.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections import Counter
from dataclasses import dataclass
from random import Random
from secrets import token_hex

import aiohttp

from gateway.loop import run

DEMO_KEY = "local-demo-traffic"
PATIENCE_S = 40.0
SAY_EVERY_S = 30.0
_WORDS = ("alder", "birch", "cedar", "elm", "fir", "hazel", "larch", "maple", "oak", "pine")


@dataclass(frozen=True, slots=True)
class Work:
    """One kind of work that a tenant does. Sizes are in words; ``share`` weighs the kinds.

    ``steps``: requests that make up one task; 1 sends no task at all. ``judged``: the tenant says
    afterwards how the task went, which of the good ones it does with ``accepts``.
    """

    tenant: str
    route: str
    share: float
    words: tuple[int, int]
    max_tokens: int
    streams: float
    steps: int = 1
    judged: bool = False
    accepts: float = 0.97


WORK = (
    Work("support", "assistant", 4.0, (60, 500), 300, streams=0.8, steps=2),
    Work("search", "summaries", 2.0, (400, 1600), 220, streams=0.2),
    Work("billing", "extraction", 2.5, (120, 700), 120, streams=0.0, steps=3, judged=True),
    Work("studio", "drafts", 1.0, (40, 200), 500, streams=0.9, judged=True, steps=2, accepts=0.9),
    Work("search", "assistant", 1.0, (80, 300), 160, streams=0.0, judged=True, steps=2),
)


class Traffic:
    """Sends tasks to one gateway. ``rate``: requests a second, about."""

    def __init__(self, url: str, rate: float, seed: int, most: int, key: str) -> None:
        self._url = url.rstrip("/")
        self._random = Random(seed)  # a script, not a secret
        self._pause_s = 1.0 / rate
        self._most = most
        self._headers = {"authorization": f"Bearer {key}"}
        # Two runs with one seed do the same work, but never under the same task's name.
        self._run = token_hex(3)
        self._number = 0
        self.counts: Counter[str] = Counter()

    async def run(self) -> None:
        """Go on until cancelled."""
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S, sock_connect=3)
        connector = aiohttp.TCPConnector(limit=0)
        async with (
            aiohttp.ClientSession(
                headers=self._headers, timeout=timeout, connector=connector, trust_env=False
            ) as session,
            asyncio.TaskGroup() as group,
        ):
            open_tasks: set[asyncio.Task[None]] = set()
            while True:
                work = self._random.choices(WORK, [item.share for item in WORK])[0]
                if len(open_tasks) < self._most:
                    task = group.create_task(self._task(session, work))
                    open_tasks.add(task)
                    task.add_done_callback(open_tasks.discard)
                else:
                    self.counts["left out"] += 1
                # A task of several steps stands for as many requests.
                await asyncio.sleep(self._random.expovariate(1.0) * self._pause_s * work.steps)

    async def _task(self, session: aiohttp.ClientSession, work: Work) -> None:
        self._number += 1
        name = f"{work.route}-{self._run}-{self._number}" if work.steps > 1 else None
        good = True
        for _ in range(work.steps):
            good = await self._request(session, work, name) and good
            if not good:
                break
        if work.judged and name is not None:
            await self._say(session, work, name, good and self._random.random() < work.accepts)

    async def _request(self, session: aiohttp.ClientSession, work: Work, task: str | None) -> bool:
        stream = self._random.random() < work.streams
        body = {
            "model": work.route,
            "messages": [{"role": "user", "content": self._filler(work)}],
            "max_tokens": work.max_tokens,
            "stream": stream,
        }
        headers = {"x-switchgear-tenant": work.tenant}
        if task is not None:
            headers["x-switchgear-task"] = task
        url = f"{self._url}/v1/chat/completions"
        try:
            async with session.post(url, json=body, headers=headers) as answer:
                data = await answer.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self.counts[type(error).__name__] += 1
            return False
        self.counts[str(answer.status)] += 1
        return answer.status == 200 and (not stream or b"[DONE]" in data[-64:])

    async def _say(
        self, session: aiohttp.ClientSession, work: Work, task: str, success: bool
    ) -> None:
        url = f"{self._url}/switchgear/tasks/{task}/outcome"
        word = {"success": success, "reason": "accepted" if success else "rejected"}
        try:
            headers = {"x-switchgear-tenant": work.tenant}
            async with session.post(url, json=word, headers=headers) as answer:
                await answer.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self.counts[type(error).__name__] += 1

    def _filler(self, work: Work) -> str:
        count = self._random.randint(*work.words)
        return " ".join(_WORDS[number % len(_WORDS)] for number in range(count))


async def _send(traffic: Traffic) -> None:
    loop = asyncio.get_running_loop()
    sending = loop.create_task(traffic.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, sending.cancel)
    while not sending.done():
        await asyncio.wait((sending,), timeout=SAY_EVERY_S)
        told = ", ".join(f"{name}: {count}" for name, count in sorted(traffic.counts.items()))
        print(f"traffic: {told or 'nothing yet'}", flush=True)
    if not sending.cancelled():
        sending.result()


def main(arguments: list[str] | None = None) -> int:
    """Send until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m gateway.traffic", description=__doc__)
    parser.add_argument("--gateway", required=True, help="base URL, http://127.0.0.1:8800")
    parser.add_argument("--rate", type=float, default=8.0, help="requests a second")
    parser.add_argument("--most", type=int, default=200, help="requests open at one time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--key", default=DEMO_KEY, help="a caller's key that may name tenants")
    options = parser.parse_args(arguments)
    if not 0 < options.rate <= 10_000:
        parser.error("--rate must be above 0 and at most 10000")
    traffic = Traffic(options.gateway, options.rate, options.seed, options.most, options.key)
    run(_send(traffic))
    return 0


if __name__ == "__main__":
    sys.exit(main())
