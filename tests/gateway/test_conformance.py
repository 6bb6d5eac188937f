"""The stand-in control plane: our gateway holds its rules, and each broken rule is named."""

import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from controlplane.wire.events import mint_id
from gateway.agent import Agent
from gateway.conformance.stand_in import RULES, StandIn, application
from tests.gateway import build
from tests.gateway.build import attempt
from tests.gateway.fake_clock import until


class Serving:
    """A stand-in on a free port."""

    def __init__(self, stand_in: StandIn, url: str) -> None:
        self.stand_in, self.url = stand_in, url


@pytest_asyncio.fixture
async def serving() -> AsyncIterator[Serving]:
    stand_in = StandIn()
    runner = web.AppRunner(application(stand_in), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server = site._server
    assert server is not None
    port = server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    yield Serving(stand_in, f"http://127.0.0.1:{port}")
    await runner.cleanup()


async def test_our_gateway_holds_every_rule(serving: Serving, tmp_path: Path) -> None:
    async with Agent(build.config(tmp_path, serving.url), host="h") as agent:
        # Four batches: the second is put off, the third not answered.
        for _ in range(4):
            agent.spool.append(attempt())
            await until(lambda: not agent.spool.pending and not len(agent.spool.outbox))
    assert serving.stand_in.broken == {}
    assert {"token", "batch", "id", "seq", "same", "patience", "again", "status"} <= (
        serving.stand_in.seen
    )


BOOT = str(uuid.UUID(int=5))


def event(**fields: Any) -> dict[str, Any]:
    at = datetime.now(UTC)
    return {
        "kind": "outcome",
        "id": str(mint_id(at, 1)),
        "occurred_at": at.isoformat(),
        "success": True,
    } | fields


def step(number: int) -> dict[str, Any]:
    return event(kind="transition", provider="p", model="m", number=number, cause="x") | {
        "from": "Closed",
        "to": "Open",
    }


def batch(seq: int, *events: dict[str, Any]) -> dict[str, Any]:
    sent_at = datetime.now(UTC).isoformat()
    return {
        "instance": BOOT,
        "slot": "h/0",
        "seq": seq,
        "sent_at": sent_at,
        "events": list(events),
    }


def other_time() -> str:
    return (datetime.now(UTC) - timedelta(hours=1)).isoformat()


@pytest.mark.parametrize(
    ("rule", "batches"),
    [
        ("batch", [{"seq": 1}]),
        ("batch", [batch(1, event(reason="a\0"))]),
        ("id", [batch(1, event(occurred_at=other_time()))]),
        ("seq", [batch(2)]),
        ("same", [batch(1, event()), batch(1, event(success=False))]),
        ("patience", [batch(1), batch(2), batch(2)]),
        ("number", [batch(1, step(1), step(3))]),
    ],
)
async def test_a_broken_rule_is_named(
    serving: Serving, rule: str, batches: list[dict[str, Any]]
) -> None:
    headers = {"Authorization": "Bearer any"}
    async with aiohttp.ClientSession(headers=headers) as session:
        for one in batches:
            await (await session.post(f"{serving.url}/api/v1/events", json=one)).read()
    assert set(serving.stand_in.broken) == {rule}
    assert f"BROKEN  {RULES[rule]}" in serving.stand_in.summary()


async def test_a_request_without_a_token_breaks_its_rule(serving: Serving) -> None:
    async with aiohttp.ClientSession() as session:
        url = f"{serving.url}/api/v1/gateways/x/config?access_token=1"
        await (await session.get(url)).read()
    assert set(serving.stand_in.broken) == {"token"}
