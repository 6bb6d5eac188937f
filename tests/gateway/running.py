"""A gateway in this process, on real sockets, before the manual simulator."""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import openai

from controlplane.wire.events import AnyEvent, Attempt, Outcome, Refusal
from gateway.agent import Agent
from gateway.config_file import parse
from gateway.simulator.scenario import MANUAL, Conditions, Fate
from gateway.simulator.service import Provider, Simulator
from gateway.worker import serving

CONFIG = """
[gateway]
name = "edge"
data_dir = "{data}"
drain_seconds = 1
{gateway}
[limits]
{limits}
[[providers]]
name = "openai"
base_url = "{url}/openai/v1"
keys = [{{ name = "main", secret = "one" }}]
[[providers]]
name = "mistral"
base_url = "{url}/mistral/v1"
keys = [{{ name = "main", secret = "two" }}]
[[routes]]
name = "alone"
deadline_seconds = {deadline}
attempt_seconds = {attempt}
first_byte_seconds = {attempt}
idle_seconds = {idle}
targets = [{{ provider = "openai", model = "gpt-4.1-mini" }}]
[[routes]]
name = "assistant"
deadline_seconds = {deadline}
attempt_seconds = {attempt}
first_byte_seconds = {attempt}
idle_seconds = {idle}
targets = [
    {{ provider = "openai", model = "gpt-4.1-mini" }},
    {{ provider = "mistral", model = "mistral-small-latest" }},
]
[[routes]]
name = "unapproved"
targets = [
    {{ provider = "openai", model = "gpt-4.1" }},
    {{ provider = "mistral", model = "mistral-large-2512", approved = false }},
]
{more}
"""


@dataclass
class Running:
    """What a test drives and looks at."""

    url: str
    simulator: Simulator
    agent: Agent
    client: openai.AsyncOpenAI
    http: aiohttp.ClientSession
    events: list[AnyEvent] = field(default_factory=list)

    @property
    def openai(self) -> Provider:
        """The simulated provider that every route tries first."""
        return self.simulator.providers["openai"]

    def fates(self, *fates: Fate, provider: str = "openai") -> None:
        """Fix how the provider's next calls end."""
        self.simulator.providers[provider].fates.extend(fates)

    def conditions(self, **fields: Any) -> None:
        """Set the conditions of every provider."""
        for provider in self.simulator.providers.values():
            provider.conditions = Conditions(**{"sigma": 0.0, "latency_ms": 0.0, **fields})

    def attempts(self) -> list[Attempt]:
        """The attempts in the spool, in order."""
        return [event for event in self.events if isinstance(event, Attempt)]

    def outcomes(self) -> list[Outcome]:
        """The outcomes in the spool, in order."""
        return [event for event in self.events if isinstance(event, Outcome)]

    def refusals(self) -> list[Refusal]:
        """The refusals in the spool, in order."""
        return [event for event in self.events if isinstance(event, Refusal)]

    async def chat(self, model: str = "alone", **fields: Any) -> aiohttp.ClientResponse:
        """A plain HTTP request, its answer not yet read."""
        headers = fields.pop("headers", {})
        body = {"model": model, "messages": [{"role": "user", "content": "oak elm"}], **fields}
        return await self.http.post("/v1/chat/completions", json=body, headers=headers)


@asynccontextmanager
async def running(
    tmp_path: Path,
    *,
    gateway: str = "",
    limits: str = "",
    more: str = "",
    deadline: float = 20,
    attempt: float = 10,
    idle: float = 10,
) -> AsyncIterator[Running]:
    """Start simulator and gateway; stop both at the end. ``{url}`` in ``more``: the simulator's."""
    simulator = Simulator(MANUAL, 1, time.monotonic)
    providers = await simulator.start()
    text = CONFIG.format(
        data=tmp_path / "data",
        url=providers,
        gateway=gateway,
        limits=limits,
        more=more.replace("{url}", providers),
        deadline=deadline,
        attempt=attempt,
        idle=idle,
    )
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with (
        serving(parse(text, {}), listener, draw=lambda: 0.0) as agent,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="any") as client,
        aiohttp.ClientSession(base_url=url) as http,
    ):
        started = Running(url, simulator, agent, client, http)
        _listen(agent, started.events)
        yield started
    await simulator.close()


def _listen(agent: Agent, events: list[AnyEvent]) -> None:
    """Note every event at the moment at which it is in the spool."""
    append = agent.spool.append

    def noting(*appended: AnyEvent) -> None:
        append(*appended)
        events.extend(appended)

    agent.spool.append = noting


async def until_broken(answer: aiohttp.ClientResponse) -> bytes:
    """What came of a body that has to break off before its end."""
    data = b""
    try:
        async for part in answer.content.iter_any():
            data += part
    except aiohttp.ClientPayloadError:
        return data
    finally:
        answer.close()
    raise AssertionError("the body ended as if it were whole")
