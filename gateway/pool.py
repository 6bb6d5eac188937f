"""A worker pool whose calls go through the gateway's breaker, budget and request loop.

``run`` takes any awaitable call to a model; ``python -m gateway.pool`` plays news articles against
a simulated one: each is summarised, then its sentiment is asked for, each call on its own.

Invariants: the rate limit is outermost, so every attempt waits its turn before anything else is
asked; the breaker judges each call, not each article; every permit is recorded, also when a worker
is cancelled. Units: seconds of the clock that is given.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import TypeAlias

from controlplane.domain.backoff import BackoffPolicy
from controlplane.domain.breaker import Breaker, BreakerPolicy, Outcome, Permit, Transition
from controlplane.domain.budget import BudgetPolicy
from controlplane.domain.budgets import Budgets
from controlplane.domain.circuit import Circuit
from controlplane.domain.classify import Cause, Fault, Observation, Phase, classify
from controlplane.domain.gate import Gate, Refusal
from controlplane.domain.request import RequestLoop
from controlplane.domain.request_plan import Ask, Ending, RequestSpec, Send, Stop, Target, Wait
from controlplane.domain.verdict import Verdict
from gateway.clock import Clock, SystemClock
from gateway.loop import run as run_loop

STEPS = ("summarise", "sentiment")

Call: TypeAlias = Callable[[str, int, int], Awaitable[Verdict]]
"""(step, article, attempt) -> how the call ended. One that takes too long is cancelled."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Of one pool. ``calls_per_s``: attempts that may begin each second, with bursts of one a
    worker. ``deadline_s`` covers one call with its retries; ``attempt_s`` one attempt."""

    workers: int = 3
    calls_per_s: float = 50.0
    max_attempts: int = 3
    deadline_s: float = 30.0
    attempt_s: float = 5.0
    breaker: BreakerPolicy = field(
        default_factory=lambda: BreakerPolicy(consecutive_failures=3, open_seconds=0.8)
    )
    budget: BudgetPolicy = field(default_factory=BudgetPolicy)
    backoff: BackoffPolicy = field(
        default_factory=lambda: BackoffPolicy(base_seconds=0.05, cap_seconds=1.0)
    )

    def __post_init__(self) -> None:
        for name in ("workers", "calls_per_s", "deadline_s", "attempt_s"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)!r}")


@dataclass(frozen=True, slots=True)
class Done:
    """One article. ``failed_at`` names the step that did not succeed, ``stop`` says why."""

    article: int
    failed_at: str | None
    attempts: int
    stop: Stop

    @property
    def circuit_open(self) -> bool:
        """True when that step's call was never made, because the breaker was not closed."""
        refused = self.failed_at is not None and self.stop.ending is Ending.REFUSED
        return refused and self.stop.gate is Gate.BREAKER


@dataclass(frozen=True, slots=True)
class Summary:
    """What came of all of them, in the order in which they ended."""

    articles: tuple[Done, ...]
    transitions: tuple[Transition, ...]
    elapsed_s: float

    @property
    def failed(self) -> int:
        """Articles of which a step failed."""
        return sum(done.failed_at is not None for done in self.articles)

    @property
    def circuit_open(self) -> int:
        """Of the failed ones, those that an open circuit turned away."""
        return sum(done.circuit_open for done in self.articles)

    def __str__(self) -> str:
        good = len(self.articles) - self.failed
        failed = f"failed: {self.failed} (circuit open: {self.circuit_open})"
        return f"succeeded: {good} | {failed} | {self.elapsed_s:.3f} s"


class RateLimit:
    """Turns at a steady rate, ``burst`` of them at once. Used from one loop's thread."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._gap_s = 1.0 / per_s
        self._slack_s = self._gap_s * (burst - 1)
        self._next = float("-inf")

    def reserve(self, now: float) -> float:
        """Take the next turn; returns how long to wait for it."""
        turn = max(self._next, now - self._slack_s)
        self._next = turn + self._gap_s
        return max(0.0, turn - now)


class Pool:
    """Workers over one circuit. ``draw``: uniform in [0, 1), for the jitter."""

    def __init__(
        self,
        settings: Settings,
        call: Call,
        *,
        circuit: Circuit = Circuit("simulated", "news"),  # noqa: B008 - frozen
        clock: Clock | None = None,
        draw: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._call = call
        self._clock = clock or SystemClock()
        self._draw = draw
        self._targets = (Target(circuit),)
        self._breaker = Breaker(settings.breaker, self._clock.monotonic())
        self._budgets = Budgets(lambda level, subject: settings.budget).of("pool")
        self._limit = RateLimit(settings.calls_per_s, settings.workers)

    async def run(self, articles: Sequence[int]) -> Summary:
        """Work through the articles. Cancelling it cancels the calls that are out."""
        began = self._clock.monotonic()
        waiting, ended = iter(articles), list[Done]()

        async def worker() -> None:
            for article in waiting:  # one iterator for all: each article is taken once
                ended.append(await self._article(article))

        async with asyncio.TaskGroup() as group:
            for _ in range(self._settings.workers):
                group.create_task(worker())
        now = self._clock.monotonic()
        self._breaker.tick(now)
        return Summary(tuple(ended), self._breaker.take_transitions(), now - began)

    async def _article(self, article: int) -> Done:
        attempts = 0
        for step in STEPS:
            stop, sent = await self._step(step, article)
            attempts += sent
            if stop.ending is not Ending.SERVED:
                return Done(article, step, attempts, stop)
        return Done(article, None, attempts, stop)

    async def _step(self, step: str, article: int) -> tuple[Stop, int]:
        """One call with its retries; returns how it ended and how often it was sent."""
        settings, clock = self._settings, self._clock
        spec = RequestSpec(
            targets=self._targets,
            deadline=clock.monotonic() + settings.deadline_s,
            max_attempts=settings.max_attempts,
            attempt_timeout_s=settings.attempt_s,
            backoff=settings.backoff,
        )
        loop = RequestLoop(spec, self._budgets)
        permit: Permit | None = None
        try:
            while True:
                action = loop.next(clock.monotonic(), self._draw())
                if isinstance(action, Ask):
                    permit = await self._ask(loop)
                elif isinstance(action, Send):
                    assert permit is not None
                    held, permit = permit, None
                    await self._send(step, article, action, held, loop)
                elif isinstance(action, Wait):
                    await clock.sleep(action.seconds)
                else:
                    return action, loop.attempts
        finally:
            if permit is not None:  # admitted, and then the deadline had passed
                self._breaker.record(permit, Outcome.NEUTRAL, clock.monotonic())

    async def _ask(self, loop: RequestLoop) -> Permit | None:
        wait = self._limit.reserve(self._clock.monotonic())
        if wait > 0:
            await self._clock.sleep(wait)
        now = self._clock.monotonic()
        answer = self._breaker.admit(now)
        if isinstance(answer, Refusal):
            loop.refused(answer, now)
            return None
        loop.admitted()
        return answer

    async def _send(
        self, step: str, article: int, send: Send, permit: Permit, loop: RequestLoop
    ) -> None:
        result: Verdict | Outcome = Outcome.NEUTRAL
        try:
            try:
                async with asyncio.timeout(send.timeout_s):
                    verdict = await self._call(step, article, send.ordinal)
            except TimeoutError:
                verdict = _TIMED_OUT
            result = verdict
        finally:
            now = self._clock.monotonic()
            self._breaker.record(permit, result, now)
        loop.observe(verdict, now)


class SimulatedModel:
    """Fails by chance, each call by its own draw: the same articles fail whatever the timing."""

    def __init__(self, error_rate: float, seed: int, clock: Clock) -> None:
        if not 0 <= error_rate <= 1:
            raise ValueError(f"error_rate must be 0 to 1, got {error_rate!r}")
        self._error_rate = error_rate
        self._seed = seed
        self._clock = clock
        self.calls = 0

    async def __call__(self, step: str, article: int, attempt: int) -> Verdict:
        """Answer after 80 to 220 ms, or fail after 20 to 80 ms with a 503."""
        draw = Random(f"{self._seed}/{step}/{article}/{attempt}")
        self.calls += 1
        fails = draw.random() < self._error_rate
        await self._clock.sleep(draw.uniform(0.02, 0.08) if fails else draw.uniform(0.08, 0.22))
        return _OVERLOADED if fails else _GOOD


_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)  # no wait here is written as a date
_GOOD = classify(Observation("simulated", _EPOCH, status=200, body={"choices": [{}]}))
_TIMED_OUT = classify(
    Observation("any", _EPOCH, fault=Fault(Phase.AWAITING_HEADERS, Cause.TIMEOUT))
)
_OVERLOADED = classify(Observation("simulated", _EPOCH, status=503, body=""))


def main(arguments: list[str] | None = None) -> int:
    """Play the articles and print what became of each, then the summary."""
    parser = argparse.ArgumentParser(prog="python -m gateway.pool", description=__doc__)
    parser.add_argument("--articles", type=int, default=20)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--error-rate", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    clock = SystemClock()
    try:
        settings = Settings(workers=options.workers)
        model = SimulatedModel(options.error_rate, options.seed, clock)
    except ValueError as error:
        parser.error(str(error))
    pool = Pool(settings, model, clock=clock, draw=Random(options.seed).random)
    summary = run_loop(pool.run(range(1, options.articles + 1)))
    for done in summary.articles:
        print(f"article {done.article:3}: {_told(done)}")
    for step in summary.transitions[1:]:
        print(f"circuit: {step.from_state} -> {step.to_state}, {step.cause}")
    print(summary)
    return 0


def _told(done: Done) -> str:
    if done.failed_at is None:
        return f"done, {done.attempts} calls"
    why = f"{done.stop.gate}: {done.stop.reason}" if done.circuit_open else done.stop.reason
    return f"failed at {done.failed_at} after {done.attempts} calls: {why}"


if __name__ == "__main__":
    sys.exit(main())
