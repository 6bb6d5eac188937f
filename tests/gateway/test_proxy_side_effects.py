"""What a provider may have begun is run twice only if a second run has no effect of its own."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gateway.asked import read
from gateway.operations import of_path
from tests.gateway.running import Running, running
from tests.gateway.waiting import until

ROUTES = """
[[providers]]
name = "slow"
base_url = "{slow}"
[[providers]]
name = "nobody"
base_url = "http://127.0.0.1:9/v1"
[[routes]]
name = "work"
attempt_seconds = 0.3
targets = [{ provider = "slow", model = "m" }, { provider = "openai", model = "gpt-4.1-mini" }]
[[routes]]
name = "moved"
targets = [{ provider = "nobody", model = "m" }, { provider = "slow", model = "m" }]
"""
STORED: dict[str, Any] = {"model": "work", "input": "buy oak"}


@dataclass
class Shop:
    """A provider that carries out what it accepts, and may then never answer."""

    url: str = ""
    done: Counter[str] = field(default_factory=Counter)
    keys: list[str] = field(default_factory=list)
    hangs: bool = True
    usage: dict[str, int] = field(default_factory=lambda: {"input_tokens": 3, "output_tokens": 2})

    async def accept(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        self.done[request.path] += 1
        self.keys.append(request.headers["idempotency-key"])
        if self.hangs:
            await asyncio.sleep(60)
        answer = {"object": "response", "model": body["model"], "status": "completed"}
        return web.json_response({**answer, "output": [], "usage": self.usage})


@asynccontextmanager
async def shop(tmp_path: Path) -> AsyncIterator[tuple[Running, Shop]]:
    slow = Shop()
    app = web.Application()
    app.router.add_post("/v1/{path:.*}", slow.accept)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    slow.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/v1"
    try:
        async with running(tmp_path, more=ROUTES.replace("{slow}", slow.url)) as gateway:
            yield gateway, slow
    finally:
        await runner.cleanup()


SIDE_EFFECTS = {
    "stored by default": ("responses", {}),
    "stored": ("responses", {"store": True}),
    "in the background": ("responses", {"store": False, "background": True}),
    "a conversation": ("responses", {"store": False, "conversation": "conv_1"}),
    "a hosted tool": ("responses", {"store": False, "tools": [{"type": "web_search"}]}),
    "mixed tools": (
        "responses",
        {"store": False, "tools": [{"type": "function", "name": "f"}, {"type": "mcp"}]},
    ),
    "unreadable tools": ("responses", {"store": False, "tools": "all"}),
    "an operation nobody knows": ("orders", {}),
    "a deeper path": ("images/generations", {}),
}


@pytest.mark.parametrize("what", SIDE_EFFECTS)
async def test_an_accepted_operation_times_out_and_nothing_with_side_effects_is_run_twice(
    tmp_path: Path, what: str
) -> None:
    path, fields = SIDE_EFFECTS[what]
    async with shop(tmp_path) as (gateway, slow):
        answer = await gateway.http.post(f"/v1/{path}", json=STORED | fields)
        assert answer.status == 504
        assert answer.headers["x-should-retry"] == "false"
        assert slow.done == {f"/v1/{path}": 1}
        assert gateway.openai.requests == 0
        (attempt,) = gateway.attempts()
        assert (attempt.reason, attempt.billing) == ("timeout", "unknown")
        assert [one.success for one in gateway.outcomes()] == [False]


@pytest.mark.parametrize(
    "fields",
    [{}, {"tools": [{"type": "function", "name": "f"}]}, {"tools": None, "background": False}],
)
async def test_a_response_that_is_not_stored_is_tried_again(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    async with shop(tmp_path) as (gateway, slow):
        body = STORED | {"store": False} | fields
        answer = asyncio.create_task(gateway.http.post("/v1/responses", json=body))
        await until(lambda: slow.done)
        slow.hangs = False
        assert (await answer).status == 200
        assert slow.done == {"/v1/responses": 2}
        assert slow.keys[0] == slow.keys[1]
        assert [one.role for one in gateway.attempts()] == ["first", "retry"]
        tokens = gateway.attempts()[1].tokens
        assert tokens is not None
        assert (tokens.input, tokens.output) == (3, 2)


async def test_what_never_left_the_gateway_goes_on_to_the_next_target(tmp_path: Path) -> None:
    async with shop(tmp_path) as (gateway, slow):
        slow.hangs = False
        answer = await gateway.http.post("/v1/responses", json=STORED | {"model": "moved"})
        assert answer.status == 200
        assert slow.done == {"/v1/responses": 1}
        assert [one.billing for one in gateway.attempts()][-1] == "billed"
        assert {one.billing for one in gateway.attempts()[:-1]} == {"not_billed"}


async def test_a_redelivery_carries_the_same_key_to_the_provider(tmp_path: Path) -> None:
    async with shop(tmp_path) as (gateway, slow):
        slow.hangs = False
        for _ in range(2):
            headers = {"idempotency-key": "order-7"}
            await gateway.http.post("/v1/orders", json=STORED, headers=headers)
        await gateway.http.post("/v1/orders", json=STORED)
        first, second, other = slow.keys
        assert first == second
        assert first != other
        assert "order-7" not in first
        roles = [one.role for one in gateway.attempts()]
        assert roles == ["first", "redelivery", "first"]


async def test_paths_that_are_none_are_not_passed_on(tmp_path: Path) -> None:
    async with shop(tmp_path) as (gateway, slow):
        for path in ("/v1/", "/v1/a//b", "/v1/%2e%2e/x", "/v1/A", "/v1/a/b/c/d/e", "/v2/orders"):
            answer = await gateway.http.post(path, json=STORED)
            assert answer.status == 404, path
        assert (await gateway.http.get("/v1/responses")).status == 405
        # A GET may be passed on, but nothing says where to.
        assert (await gateway.http.get("/v1/orders")).status == 400
        assert (await gateway.http.post("/v1/orders", json={"input": "x"})).status == 400
        assert slow.done == {}


def test_completions_messages_and_embeddings_are_repeatable() -> None:
    asked = read(b'{"model": "m", "store": true}')
    for path in ("chat/completions", "completions", "messages", "embeddings", "moderations"):
        operation = of_path(f"/v1/{path}")
        assert operation is not None
        assert operation.repeatable(asked)


async def test_an_embeddings_usage_is_the_providers_and_nothing_is_estimated(
    tmp_path: Path,
) -> None:
    async with shop(tmp_path) as (gateway, slow):
        slow.hangs = False
        slow.usage = {"prompt_tokens": 8, "total_tokens": 8}
        body = {"model": "work", "input": "oak elm"}
        answer = await gateway.http.post("/v1/embeddings", json=body)
        assert (answer.status, (await answer.json())["model"]) == (200, "m")
        assert slow.done == {"/v1/embeddings": 1}
        (attempt,) = gateway.attempts()
        assert attempt.tokens is not None
        counted = (attempt.tokens.input, attempt.tokens.output, attempt.tokens.estimated)
        assert counted == (8, 0, False)
