"""Usage that contradicts itself is passed on as invalid: never repaired, never dropped."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from controlplane.wire.events import Tokens
from tests.gateway.running import Running, running

ROUTE = """
[[providers]]
name = "odd"
base_url = "{odd}"
[[routes]]
name = "odd"
targets = [{ provider = "odd", model = "m" }]
"""
MORE_CACHED_THAN_READ = {
    "prompt_tokens": 100,
    "completion_tokens": 10,
    "total_tokens": 110,
    "prompt_tokens_details": {"cached_tokens": 150},
}
NEGATIVE = {"prompt_tokens": 100, "completion_tokens": -5, "total_tokens": 95}
WORDS = {"prompt_tokens": "many", "completion_tokens": 10, "total_tokens": 10}
USAGES = {"cached": MORE_CACHED_THAN_READ, "negative": NEGATIVE, "words": WORDS}


@asynccontextmanager
async def provider(tmp_path: Path, usage: dict[str, Any]) -> AsyncIterator[Running]:
    """A provider whose every answer holds this usage."""

    async def answer(request: web.Request) -> web.StreamResponse:
        asked = json.loads(await request.read())
        said = {"role": "assistant", "content": "oak"}
        if not asked.get("stream"):
            choice = {"index": 0, "message": said, "finish_reason": "stop"}
            return web.json_response({"model": "m", "choices": [choice], "usage": usage})
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        choice = {"index": 0, "delta": said, "finish_reason": "stop"}
        for event in ({"choices": [choice]}, {"choices": [], "usage": usage}):
            await response.write(b"data: " + json.dumps({"model": "m", **event}).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/v1"
    try:
        async with running(tmp_path, more=ROUTE.replace("{odd}", url)) as gateway:
            yield gateway
    finally:
        await runner.cleanup()


async def counted(tmp_path: Path, usage: dict[str, Any], **fields: Any) -> Tokens:
    async with provider(tmp_path, usage) as gateway:
        answer = await gateway.chat("odd", **fields)
        assert answer.status == 200
        await answer.read()
        (attempt,) = gateway.attempts()
        assert (attempt.verdict, attempt.billing) == ("success", "billed")
        assert attempt.tokens is not None
        return attempt.tokens


@pytest.mark.parametrize("fields", [{}, {"stream": True}], ids=["plain", "stream"])
@pytest.mark.parametrize("name", USAGES)
async def test_it_is_marked_and_what_can_be_kept_is_kept(
    tmp_path: Path, name: str, fields: dict[str, Any]
) -> None:
    tokens = await counted(tmp_path, USAGES[name], **fields)
    assert (tokens.invalid, tokens.estimated) == (True, False)
    kept = {"cached": (0, 10), "negative": (100, None), "words": (None, 10)}
    assert (tokens.input, tokens.output) == kept[name]


async def test_usage_that_adds_up_is_not_marked(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    tokens = await counted(tmp_path, usage)
    assert (tokens.invalid, tokens.input, tokens.output) == (False, 100, 10)
