"""The run: sessions arrive, ask, fail, ask again, in virtual time through the domain's own loop.

Invariants: the same model and policy give the same run, whatever the machine; breaker, budgets,
request loop and classifier are the ones that the gateway runs, driven through the same calls; no
clock is read. Every coroutine-like generator here yields the moment at which it wants to go on.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import TypeAlias

from controlplane.domain.breaker import Breaker, Permit
from controlplane.domain.circuit import Circuit
from controlplane.domain.gate import Refusal
from controlplane.domain.request import RequestLoop
from controlplane.domain.request_plan import Ask, Ending, RequestSpec, Send, Target, Wait
from gateway.brownout.model import Model
from gateway.brownout.policies import ATTEMPT_S, BACKOFF, BREAKER, MAX_ATTEMPTS, Policy
from gateway.brownout.provider import Providers
from gateway.brownout.tally import Tally

TICK_S = 1.0
_NO_PERMIT: Permit = (0, 0, 0.0, False)

_Served: TypeAlias = Generator[float, None, tuple[bool, float]]
_Moment: TypeAlias = Generator[float, None, float]


def replay(model: Model, policy: Policy) -> Tally:
    """Run one policy through the whole brownout."""
    return _Run(model, policy).run()


class _Run:
    def __init__(self, model: Model, policy: Policy) -> None:
        self._model = model
        self._policy = policy
        self._draw = Random(model.seed)
        self._pause_s = model.pause_s
        self._providers = Providers(model, self._draw)
        self._grants = policy.grants()
        begins = -model.warm_up_s
        self._breakers = (
            {circuit: Breaker(BREAKER, begins) for circuit in model.circuits}
            if policy.breaker
            else {}
        )
        circuits = model.circuits if policy.fallback else model.circuits[:1]
        self._targets = tuple(Target(circuit) for circuit in circuits)
        self._tally = Tally(model)
        self._agenda: list[tuple[float, int, Iterator[float]]] = []
        self._order = count()

    def run(self) -> Tally:
        begins = -self._model.warm_up_s
        self._start(begins, self._arrivals(begins))
        self._start(begins, self._ticks(begins))
        agenda = self._agenda
        while agenda:
            _, order, steps = heappop(agenda)
            at = next(steps, None)
            if at is not None:
                heappush(agenda, (at, order, steps))
        return self._tally

    def _start(self, at: float, steps: Iterator[float]) -> None:
        heappush(self._agenda, (at, next(self._order), steps))

    def _arrivals(self, now: float) -> Iterator[float]:
        """Sessions begin as a Poisson process until the ramp ends, however the others fare."""
        rate = self._model.sessions_per_s * self._model.scale
        while True:
            now += self._draw.expovariate(rate)
            if now >= self._model.ramp_s:
                return
            yield now
            self._start(now, self._session(now))

    def _ticks(self, now: float) -> Iterator[float]:
        """What the gateway does once a second: deadlines without traffic, and the transitions."""
        while self._breakers:
            for circuit, breaker in self._breakers.items():
                breaker.tick(now)
                steps = [(circuit, step) for step in breaker.take_transitions()]
                self._tally.transitions.extend(steps)
            if now >= self._model.ramp_s:
                return
            now += TICK_S
            yield now

    def _session(self, now: float) -> Iterator[float]:
        """Turns until the user has enough; after an error some ask the same once more."""
        model, draw = self._model, self._draw
        counts = now >= 0
        self._tally.sessions += counts
        while True:
            served, now = yield from self._request(now, counts)
            pause = draw.expovariate(1 / self._pause_s) if self._pause_s else 0.0
            again = not served and draw.random() < model.free.asks_again
            if not again and draw.random() * model.free.turns < 1:
                return
            now += pause
            yield now

    def _request(self, now: float, counts: bool) -> _Served:
        began = now
        spec = RequestSpec(
            self._targets, now + self._policy.deadline_s, MAX_ATTEMPTS, ATTEMPT_S, backoff=BACKOFF
        )
        loop = RequestLoop(spec, self._grants)
        permit = _NO_PERMIT
        while True:
            action = loop.next(now, self._draw.random())
            if isinstance(action, Ask):
                answer = self._admit(action.target.circuit, now)
                if isinstance(answer, Refusal):
                    loop.refused(answer, now)
                else:
                    permit = answer
                    loop.admitted()
            elif isinstance(action, Send):
                now = yield from self._send(action, loop, permit, now, counts)
            elif isinstance(action, Wait):
                now += action.seconds
                yield now
            else:
                served = action.ending is Ending.SERVED
                if counts:
                    self._tally.request(began, now, served)
                return served, now

    def _admit(self, circuit: Circuit, now: float) -> Permit | Refusal:
        breaker = self._breakers.get(circuit)
        return _NO_PERMIT if breaker is None else breaker.admit(now)

    def _send(
        self, send: Send, loop: RequestLoop, permit: Permit, now: float, counts: bool
    ) -> _Moment:
        circuit = send.target.circuit
        seconds, verdict, wasted = self._providers.call(circuit, now, send.timeout_s)
        self._tally.attempt(circuit, send.role, now, not verdict.ok, wasted)
        if counts:
            self._tally.counted(send.role, wasted)
        now += seconds
        yield now
        breaker = self._breakers.get(circuit)
        if breaker is not None:
            breaker.record(permit, verdict, now, seconds)
        loop.observe(verdict, now)
        return now
