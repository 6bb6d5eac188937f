"""One request of a caller: drives the domain's request loop against real providers.

Invariants: every permit that was given is recorded or released; every attempt that was begun is
ended in the spool, also when the caller goes away in the middle; attempts and outcome are in the
spool before the last byte of the answer is written. The control plane is never waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import random

from aiohttp import web

from controlplane.domain.breaker import would_have_refused
from controlplane.domain.circuit import Circuit
from controlplane.domain.gate import Refusal
from controlplane.domain.request import RequestLoop
from controlplane.domain.request_plan import Ask, Ending, RequestSpec, Send, Stop, Wait
from controlplane.domain.verdict import Scope, Verdict
from controlplane.wire.events import Attempt as Begun
from gateway import answers, config, last_good
from gateway.admission import Priority
from gateway.approvals import Approvals
from gateway.asked import Asked
from gateway.attempt import Attempt, Limits, Seen
from gateway.callers import Identity
from gateway.client_stream import ClientStream
from gateway.clock import Clock
from gateway.gates import Gates, Pass
from gateway.judgement import Judgement, judged, observation_of
from gateway.last_good import LastGood
from gateway.ledger import Ledger, Sink, written
from gateway.live import Live
from gateway.opaque import Opaque
from gateway.operations import Operation
from gateway.upstream import Call, Upstream, headers_passed_on

# Off their class they cost a hundred times as much (``domain.request``).
_LOW, _KEY, _SERVED = Priority.LOW, Scope.KEY, Ending.SERVED


@dataclass(frozen=True, slots=True)
class Path:
    """What every request of one worker is served with. ``draw``: uniform in [0, 1), for jitter."""

    config: config.Config
    live: Live
    upstream: Upstream
    sink: Sink
    clock: Clock
    draw: Callable[[], float] = random
    approvals: Approvals = field(default_factory=Approvals)
    last_good: LastGood = field(default_factory=LastGood)


class Exchange:
    """One request. Used once, by the task of its handler."""

    __slots__ = ("_asked", "_bodies", "_deadline", "_delivery", "_gates", "_head", "_key",
                 "_key_of_answer", "_ledger", "_loop", "_operation", "_out", "_pass", "_passed_on",
                 "_path", "_request", "_route", "_seen", "_told", "_waited_s")  # fmt: skip

    def __init__(
        self,
        path: Path,
        request: web.BaseRequest,
        operation: Operation,
        asked: Asked | Opaque,
        route: config.Route,
        who: Identity,
        *,
        redelivery: bool,
    ) -> None:
        self._path = path
        self._operation = operation
        self._asked = asked
        self._route = route
        ledger = self._ledger = Ledger(
            path.clock,
            path.sink,
            tenant=who.tenant,
            task=who.task,
            route=route.name,
            generation=path.live.in_force.generation,
        )
        patience = min(route.deadline_seconds, who.timeout_s or route.deadline_seconds)
        self._deadline = ledger.started + patience
        spec = RequestSpec(
            targets=path.approvals.targets(route, ledger.started, ledger.started_at),
            deadline=self._deadline,
            max_attempts=path.live.max_attempts(who.tenant),
            attempt_timeout_s=route.attempt_seconds,
            repeatable=operation.repeatable(asked),
            body_small=asked.size <= path.config.limits.repeatable_bytes,
            redelivery=redelivery,
        )
        self._loop = RequestLoop(
            spec,
            path.live.budgets(who.tenant),
            path.live.task_allowance(who.tenant, who.task),
        )
        self._passed_on = headers_passed_on(request.headers)
        self._request = written(ledger.request)
        self._delivery = who.delivery or self._request
        self._head = answers.Head(self._request)
        # Not a method of ours: a request that is its own garbage waits for the collector, with its
        # body and its answer.
        self._out = ClientStream(request, self._head, path.upstream.outgoing)
        self._bodies: dict[Circuit, bytes] = {}
        self._told = 0
        self._waited_s = 0.0
        low = who.priority is _LOW
        self._gates = Gates(path.live, path.upstream, asked, who.tenant, who.task, low=low)
        self._key_of_answer = (
            last_good.key_of(asked, operation, who.tenant, route.name) if route.last_good else None
        )
        self._pass: Pass | None = None
        self._key: config.Key | None = None
        self._seen: Seen | None = None

    async def run(self) -> web.StreamResponse:
        """Serve the request to its end. What it raises comes after everything is told."""
        loop, clock = self._loop, self._path.clock
        try:
            while True:
                action = loop.next(clock.monotonic(), self._path.draw())
                if isinstance(action, Ask):
                    self._ask(action)
                elif isinstance(action, Send):
                    await self._send(action)
                elif isinstance(action, Wait):
                    began = clock.monotonic()
                    self._ledger.write()
                    await clock.sleep(action.seconds)
                    self._waited_s += clock.monotonic() - began
                elif self._key_of_answer is not None:
                    return await self._end(action, self._key_of_answer)
                else:
                    self._close(action)
                    return await self._answer(action)
        except asyncio.CancelledError:
            whose = "local_cancelled" if self._out.connected else "client_cancelled"
            self._close(loop.cancelled(clock.monotonic(), whose))
            raise
        except Exception:
            # A fault of our own must not keep a probe's permit or lose the request's outcome, and
            # what has begun to go to the caller must not be followed by an error's head.
            self._out.abandon()
            self._close(Stop(Ending.FAILED, "gateway_fault"))
            raise

    # --- the gates ----------------------------------------------------------------------------

    def _ask(self, ask: Ask) -> None:
        circuit, now = ask.target.circuit, self._path.clock.monotonic()
        answer = self._gates.ask(circuit, now)
        if isinstance(answer, Refusal):
            self._loop.refused(answer, now)
        else:
            self._key, self._pass = answer.key, answer
            if would_have_refused(answer.permit):
                folded = self._path.live.folded(circuit)
                self._ledger.refused(folded, "breaker", "would_be_open", would_have=True)
            self._loop.admitted()
        self._tell_refusals()

    def _tell_refusals(self) -> None:
        """Put refusals into the spool that the loop has noted since the last look."""
        if self._told == len(self._loop.refusals):
            return
        for call in self._loop.refusals[self._told :]:
            self._ledger.refused(
                self._path.live.folded(call.target.circuit),
                call.refusal.gate.value,
                call.refusal.detail,
            )
        self._told = len(self._loop.refusals)

    # --- an attempt ---------------------------------------------------------------------------

    async def _send(self, send: Send) -> None:
        self._head.sent = send
        circuit = send.target.circuit
        limits = self._limits()
        mark = self._ledger.begun(
            self._path.live.folded(circuit),
            send,
            self._key.name if self._key is not None else "",
            self._waited_s,
        )
        self._ledger.waited_s += self._waited_s
        self._waited_s = 0.0
        self._seen = None
        try:
            seen = await self._attempt(circuit, limits, mark)
        except Exception:
            self._ledger.broke(mark, self._seen)
            raise
        if seen.cancelled is not None:
            raise seen.cancelled

    async def _attempt(self, circuit: Circuit, limits: Limits, mark: Begun) -> Seen:
        """Make the call and put down how it ended."""
        call = self._call(circuit)
        attempt = Attempt(self._path.upstream, call, limits, self._out, self._path.clock)
        seen = self._seen = attempt.seen
        await attempt.run(self._passed_on)
        observation = observation_of(
            circuit,
            seen,
            limits,
            sent=self._out.sent,
            connected=self._out.connected,
            now=self._path.clock.wall(),
        )
        result = judged(observation, seen, self._asked)
        verdict = self._record(circuit, result, seen)
        self._ledger.ended(
            mark,
            verdict,
            status=seen.status,
            first_byte_s=seen.first_byte_s,
            ended_s=seen.ended_s,
            tokens=result.tokens,
            billing=result.billing,
            served_model=result.served_model,
            service_tier=result.service_tier,
        )
        return seen

    def _record(self, circuit: Circuit, result: Judgement, seen: Seen) -> Verdict:
        """Tell breaker, key and loop; returns the verdict as it counted."""
        live, now, key = self._path.live, self._path.clock.monotonic(), self._key
        assert self._pass is not None
        passed, self._pass = self._pass, None
        # A stream may be long in the best of health: what makes it slow is its first event.
        took = seen.first_byte_s if seen.stream is not None else None
        verdict = passed.settle(result.verdict, result.tokens, result.billing, now, took)
        other_key = False
        if key is not None and verdict.scope is _KEY:
            other_key = live.rest_key(circuit.provider, key.name, verdict, now)
        elif key is not None and result.rest_s > 0:
            live.pace_key(circuit.provider, key.name, result.rest_s, now)
        if seen.cancelled is None:
            left_us = seen.progress.left_us
            self._loop.observe(verdict, now, left_us=left_us, other_key=other_key)
        return verdict

    def _limits(self) -> Limits:
        route = self._route
        due_s = route.attempt_seconds
        if self._asked.stream:
            due_s = min(due_s, route.first_byte_seconds)
        left_s = self._deadline - self._path.clock.monotonic()
        return Limits(provider_s=due_s, idle_s=route.idle_seconds, left_s=left_s)

    def _call(self, circuit: Circuit) -> Call:
        provider = self._path.upstream.providers[circuit.provider]
        ask_usage = provider.ask_usage and self._operation.tells_usage_when_asked
        body = self._bodies.get(circuit)
        if body is None:
            body = self._asked.body_for(circuit.model, ask_usage)
            self._bodies[circuit] = body
        return Call(
            path=self._operation.path,
            provider=provider,
            key=self._key,
            body=body,
            stream=self._asked.stream,
            hide_usage=ask_usage and not self._asked.wants_usage,
            idempotency_key=f"{self._delivery}-{circuit.provider}",
            unread=self._operation.unread,
        )

    # --- the end ------------------------------------------------------------------------------

    async def _end(self, stop: Stop, key: bytes) -> web.StreamResponse:
        """Of a route that would rather give its last good answer again than none."""
        kept, now, seen = self._path.last_good, self._path.clock.monotonic(), self._seen
        held = kept.find(key, now) if stop.ending is Ending.REFUSED else None
        if held is not None:
            self._close(Stop(Ending.SERVED, last_good.DECISION))
            return answers.again(held, now, self._head.own(last_good.DECISION))
        if stop.ending is _SERVED and seen is not None and seen.body:
            kept.keep(key, seen.headers, seen.body, now)
        self._close(stop)
        return await self._answer(stop)

    def _close(self, stop: Stop) -> None:
        """Tell what is left to tell: the pass, refusals, the outcome."""
        try:
            if self._pass is not None:
                passed, self._pass = self._pass, None
                passed.release(self._path.clock.monotonic())
            self._tell_refusals()
        finally:
            self._ledger.waited_s += self._waited_s
            self._waited_s = 0.0
            self._ledger.outcome(stop.ending is _SERVED, stop.reason)

    async def _answer(self, stop: Stop) -> web.StreamResponse:
        seen = self._seen
        if self._out.started:
            assert seen is not None
            if stop.ending is _SERVED:
                return await self._out.finish(seen)
            return await self._out.break_off(seen, stop)
        if seen is not None and stop.ending is _SERVED:
            if seen.stream is not None:
                # The whole stream came in one piece.
                return await self._out.finish(seen)
            return self._out.whole(seen)
        return answers.failed(stop, seen, self._head.own(stop.ending.value))
