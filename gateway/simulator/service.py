"""The simulated providers behind one port: ``/openai/v1``, ``/mistral/v1``, ``/groq/v1``.

Invariant: with the same seed and the same requests in the same order, every provider draws the same
fates, latencies and lengths. ``GET /`` tells the scenario's phase and what was done so far;
``POST /control`` sets conditions (scenario ``manual`` only).
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import exp
from random import Random
from typing import Any

from gateway.simulator import answers, control
from gateway.simulator.http import Connection, Request, chunk, head, response
from gateway.simulator.scenario import BENCH, MANUAL, Conditions, Fate, Scenario

HANG_SECONDS = 600.0
KEPT_CALLS = 200
_CACHED_ANSWERS = 64
_SSE = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


@dataclass(slots=True)
class Provider:
    """What is counted and drawn for one provider."""

    random: Random
    conditions: Conditions
    fates: deque[Fate] = field(default_factory=deque)
    requests: int = 0
    in_flight: int = 0
    abandoned: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    calls: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=KEPT_CALLS))


class Simulator:
    """The providers of one scenario. ``clock`` gives monotonic seconds."""

    def __init__(self, scenario: Scenario, seed: int, clock: Callable[[], float]) -> None:
        self._scenario = scenario
        self._clock = clock
        self._began = clock()
        self._cache: dict[tuple[str, bytes], bytes] = {}
        self._server: asyncio.Server | None = None
        self.providers = {
            name: Provider(Random(f"{seed}/{name}"), conditions)
            for name, conditions in scenario.start.items()
        }

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Listen; returns the base URL."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self._quick, self._serve), host, port, backlog=1024
        )
        return f"http://{host}:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    def state(self) -> dict[str, Any]:
        """What ``GET /`` answers."""
        elapsed = self._clock() - self._began
        moment = self._scenario.at(elapsed)
        left = moment.left_s
        return {
            "scenario": self._scenario.name,
            "phase": moment.phase,
            "phase_ends_in_s": None if left == float("inf") else round(left, 1),
            "loop": moment.loop,
            "elapsed_s": round(elapsed, 1),
            "providers": {name: self._told(name) for name in self.providers},
        }

    def _told(self, name: str) -> dict[str, Any]:
        provider, now = self.providers[name], self._conditions(name)
        return {
            "error_rate": round(now.error_rate, 3),
            "latency_ms": round(now.latency_ms),
            "requests": provider.requests,
            "in_flight": provider.in_flight,
            "abandoned": provider.abandoned,
            "ended": dict(provider.ended),
        }

    def _conditions(self, name: str) -> Conditions:
        if self._scenario is MANUAL:
            return self.providers[name].conditions
        return self._scenario.at(self._clock() - self._began).conditions[name]

    def _quick(self, request: Request) -> bytes | None:
        """What needs no waiting; None sends the request to ``_serve``."""
        if request.method == "GET":
            return self._get(request.path)
        if request.method != "POST":
            return response(405, b"{}")
        if request.path == "/control":
            return self._control(request.body)
        name, _, rest = request.path[1:].partition("/")
        if name not in self.providers or rest != "v1/chat/completions":
            return response(404, answers.error_body("unknown path", "invalid_request_error", None))
        if not request.headers.get("authorization", "").startswith("Bearer "):
            text = "You didn't provide an API key"
            return response(
                401, answers.error_body(text, "authentication_error", "invalid_api_key")
            )
        return self._instant(name, request.body) if self._scenario is BENCH else None

    def _get(self, path: str) -> bytes:
        if path in ("/", "/healthz"):
            return response(200, json.dumps(self.state()).encode())
        name, _, rest = path[1:].partition("/")
        provider = self.providers.get(name)
        if provider is not None and rest == "v1/models":
            models = [{"id": model, "object": "model"} for model in answers.MODELS[name]]
            return response(200, json.dumps({"object": "list", "data": models}).encode())
        if provider is not None and rest == "calls":
            return response(200, json.dumps(list(provider.calls)).encode())
        return response(404, answers.error_body("unknown path", "invalid_request_error", None))

    def _control(self, body: bytes) -> bytes:
        if self._scenario is not MANUAL:
            return response(409, b'{"detail": "only the manual scenario can be controlled"}')
        try:
            current = {name: provider.conditions for name, provider in self.providers.items()}
            change = control.read(body, current)
        except ValueError as error:
            return response(422, json.dumps({"detail": str(error)}).encode())
        for name, conditions in change.conditions.items():
            self.providers[name].conditions = conditions
            if change.fates is not None:
                self.providers[name].fates = deque(change.fates)
        return response(200, json.dumps(self.state()).encode())

    def _instant(self, name: str, body: bytes) -> bytes:
        """The same bytes for the same request, built once."""
        self.providers[name].requests += 1
        cached = self._cache.get((name, body))
        if cached is not None:
            return cached
        ask = answers.read_ask(name, body)
        if isinstance(ask, bytes):
            return response(400, ask)
        count = min(ask.limit, BENCH.start[name].output_tokens)
        if ask.stream:
            events = answers.stream_events(ask, f"chatcmpl-{name}", count)
            built = head(200, _SSE) + b"".join(map(chunk, events)) + chunk(b"")
        else:
            built = response(200, answers.completion(ask, f"chatcmpl-{name}", count))
        if len(self._cache) < _CACHED_ANSWERS:
            self._cache[name, body] = built
        return built

    async def _serve(self, request: Request, connection: Connection) -> None:
        name = request.path[1:].partition("/")[0]
        provider = self.providers[name]
        fate, conditions = self._draw_fate(provider, self._conditions(name))
        provider.requests += 1
        provider.in_flight += 1
        call = {
            "number": provider.requests,
            "fate": fate,
            "ended": "in_flight",
            "idempotency_key": request.headers.get("idempotency-key"),
            "bytes": len(request.body),
        }
        provider.calls.append(call)
        try:
            ended = await self._answer(name, request.body, fate, conditions, connection)
        except asyncio.CancelledError:
            provider.abandoned += 1
            call["ended"] = "abandoned"
            raise
        finally:
            provider.in_flight -= 1
        call["ended"] = ended
        provider.ended[ended] += 1

    def _draw_fate(self, provider: Provider, now: Conditions) -> tuple[Fate, Conditions]:
        if provider.fates:
            return provider.fates.popleft(), now
        if provider.random.random() >= now.error_rate:
            return Fate.OK, now
        fates, weights = list(now.faults), list(now.faults.values())
        return provider.random.choices(fates, weights)[0], now

    async def _answer(
        self, name: str, body: bytes, fate: Fate, now: Conditions, connection: Connection
    ) -> str:
        """Send one answer; returns what it came to."""
        provider = self.providers[name]
        ask = answers.read_ask(name, body)
        if isinstance(ask, bytes):
            await connection.write(response(404 if b"model_not_found" in ask else 400, ask))
            return "bad_request"
        first_s = now.latency_ms / 1000 * exp(provider.random.gauss(0.0, now.sigma))
        count = max(
            1, min(ask.limit, round(now.output_tokens * exp(provider.random.gauss(0, 0.5))))
        )
        if now.sigma == 0:
            count = min(ask.limit, now.output_tokens)
        if fate is Fate.HANG:
            await asyncio.sleep(HANG_SECONDS)
        if fate in (Fate.OK, Fate.CUT, Fate.STREAM_ERROR):
            answer_id = f"chatcmpl-{name}-{provider.requests}"
            if ask.stream:
                events = answers.stream_events(ask, answer_id, count)
                await self._stream(events, fate, first_s, now, connection)
            else:
                await asyncio.sleep(first_s + now.chunk_ms / 1000 * count / answers.TOKENS_A_CHUNK)
                await self._plain(answers.completion(ask, answer_id, count), fate, connection)
            return fate
        await asyncio.sleep(first_s / 4)  # errors come back sooner than answers
        if fate is Fate.RESET:
            connection.abort()
        else:
            await connection.write(response(*answers.error_for(fate, now)))
        return fate

    async def _plain(self, body: bytes, fate: Fate, connection: Connection) -> None:
        whole = response(200, body)
        if fate is Fate.OK:
            await connection.write(whole)
        else:
            await connection.write(whole[: -len(body) // 2])
            connection.abort()

    async def _stream(
        self, events: list[bytes], fate: Fate, first_s: float, now: Conditions, out: Connection
    ) -> None:
        stop = len(events) if fate is Fate.OK else max(2, len(events) // 3)
        await asyncio.sleep(first_s)
        await out.write(head(200, _SSE) + chunk(events[0]))
        for event in events[1:stop]:
            if now.chunk_ms:
                await asyncio.sleep(now.chunk_ms / 1000)
            await out.write(chunk(event))
        if fate is Fate.CUT:
            out.abort()
        elif fate is Fate.STREAM_ERROR:
            error = answers.error_body("The server had an error", "server_error", None)
            await out.write(chunk(b"data: " + error + b"\n\n") + chunk(b""))
        else:
            await out.write(chunk(b""))
