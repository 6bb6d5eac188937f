"""What a target has to show before it may stand in for another (design 4.4).

Each test makes real calls through the gateway's own client and looks at the answer, not only at the
status. Invariant: a test passes only on what the provider sent; whatever goes wrong is a failure
with its reason, never an exception. Prompts are filler words; nothing of a caller is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import aiohttp
import msgspec

from gateway.config import Key, Provider, Target
from gateway.event_stream import EventStream
from gateway.faults import MalformedStream, NoConnection, Progress
from gateway.upstream import Call, Response, Upstream

_FILLER = "oak elm "
_BYTES_PER_TOKEN = 4
_MOST = 8 * 2**20
_CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
_COUNT = {
    "type": "object",
    "properties": {"count": {"type": "integer"}},
    "required": ["count"],
    "additionalProperties": False,
}


class Failed(Exception):
    """A test that the target did not pass; the text says why."""


@dataclass(frozen=True, slots=True)
class Result:
    """One test of one target. ``feature`` is its word in the record."""

    feature: str
    passed: bool
    detail: str


class Trial:
    """The tests of one target. ``seconds``: for each call."""

    def __init__(
        self, upstream: Upstream, target: Target, provider: Provider, seconds: float
    ) -> None:
        self._upstream = upstream
        self._model = target.circuit.model
        self._provider = provider
        self._seconds = seconds

    async def run(self, context_tokens: int) -> list[Result]:
        """Every test, in order; the rest is left out when nobody can log in."""
        tests: list[tuple[str, Callable[[], Awaitable[str]]]] = [
            ("auth", self._auth),
            ("tools", self._tools),
            ("json_schema", self._json_schema),
            ("streaming", self._streaming),
            (f"context_size_{context_tokens}", lambda: self._context(context_tokens)),
        ]
        results = []
        for feature, test in tests:
            results.append(await self._tried(feature, test))
            if not results[0].passed:
                break
        return results

    async def _tried(self, feature: str, test: Callable[[], Awaitable[str]]) -> Result:
        try:
            async with asyncio.timeout(self._seconds):
                return Result(feature, True, await test())
        except NoConnection as error:
            return Result(feature, False, str(error))
        except TimeoutError:
            return Result(feature, False, f"no answer within {self._seconds:g} s")
        except Failed as error:
            return Result(feature, False, str(error))
        except (aiohttp.ClientError, OSError, MalformedStream) as error:
            return Result(feature, False, f"{type(error).__name__}: {error}")

    async def _auth(self) -> str:
        keys = self._provider.keys
        for key in keys or (None,):
            try:
                await self._message(key, {})
            except Failed as error:
                raise Failed(f"key {key.name}: {error}" if key else str(error)) from error
        return f"{len(keys)} keys accepted" if keys else "needs no key"

    async def _tools(self) -> str:
        tool = {"type": "function", "function": {"name": "lookup", "parameters": _CITY}}
        choice = {"type": "function", "function": {"name": "lookup"}}
        message = await self._message(self._key, {"tools": [tool], "tool_choice": choice})
        calls = message.get("tool_calls")
        called = calls[0] if isinstance(calls, list) and calls else None
        function = called.get("function") if isinstance(called, dict) else None
        if not isinstance(function, dict) or function.get("name") != "lookup":
            raise Failed("the answer does not call the tool that it was told to call")
        if not isinstance(_object(function.get("arguments")).get("city"), str):
            raise Failed("the tool's arguments do not fit its parameters")
        return "called with arguments that fit"

    async def _json_schema(self) -> str:
        wanted = {"name": "count", "strict": True, "schema": _COUNT}
        asked = {"response_format": {"type": "json_schema", "json_schema": wanted}}
        message = await self._message(self._key, asked)
        count = _object(message.get("content")).get("count")
        if isinstance(count, bool) or not isinstance(count, int):
            raise Failed("the answer does not fit the schema")
        return "the answer fits the schema"

    async def _streaming(self) -> str:
        response = await self._post(self._key, {"stream": True})
        try:
            if response.content_type != "text/event-stream":
                raise Failed(f"answered with {response.content_type}, not with a stream")
            stream = EventStream(self._provider.name, hide_usage=False)
            async for data in response.content.iter_any():
                stream.feed(data)
            stream.end()
        finally:
            response.close()
        progress = stream.progress
        if progress.error is not None:
            raise Failed("the stream carries an error")
        if not progress.finished or progress.events < 2:
            raise Failed(f"the stream of {progress.events} events has no proper end")
        return f"{progress.events} events, properly ended"

    async def _context(self, tokens: int) -> str:
        text = _FILLER * (tokens * _BYTES_PER_TOKEN // len(_FILLER))
        await self._message(self._key, {"max_tokens": 1}, text)
        return f"a prompt of about {tokens} tokens accepted"

    @property
    def _key(self) -> Key | None:
        return self._provider.keys[0] if self._provider.keys else None

    async def _message(
        self, key: Key | None, fields: dict[str, Any], text: str = _FILLER
    ) -> Mapping[str, Any]:
        """The message of a plain answer."""
        response = await self._post(key, fields, text)
        try:
            answer = _object(await _whole(response))
        finally:
            response.close()
        choices = answer.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        message = first.get("message") if isinstance(first, dict) else None
        if not isinstance(message, dict):
            raise Failed("the answer holds no message")
        return message

    async def _post(self, key: Key | None, fields: dict[str, Any], text: str = _FILLER) -> Response:
        """An answer of status 200, its body not yet read."""
        messages = [{"role": "user", "content": text}]
        body = {"model": self._model, "messages": messages, "max_tokens": 200, **fields}
        call = Call(
            path="chat/completions",
            provider=self._provider,
            key=key,
            body=msgspec.json.encode(body),
            stream=fields.get("stream") is True,
            hide_usage=False,
            idempotency_key=str(uuid4()),
        )
        response = await self._upstream.post(call, {}, Progress())
        if response.status != 200:
            try:
                said = await response.content.read(4096)
            finally:
                response.close()
            words = "".join(c if c.isprintable() else " " for c in said.decode("utf-8", "replace"))
            raise Failed(f"status {response.status}: {words[:300]}")
        return response


async def _whole(response: Response) -> bytes:
    parts, size = [], 0
    async for data in response.content.iter_any():
        parts.append(data)
        size += len(data)
        if size > _MOST:
            raise Failed(f"the answer is larger than {_MOST} bytes")
    return b"".join(parts)


def _object(text: Any) -> Mapping[str, Any]:
    try:
        found = msgspec.json.decode(text) if isinstance(text, str | bytes) else None
    except msgspec.DecodeError:
        found = None
    if not isinstance(found, dict):
        raise Failed("the answer is not the JSON object that it should be")
    return found
