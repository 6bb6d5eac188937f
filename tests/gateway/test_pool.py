"""The worker pool: order of its layers, what an open circuit does to it, what it counts."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from controlplane.domain.breaker import BreakerPolicy, Cause, State
from controlplane.domain.budget import BudgetPolicy
from controlplane.domain.classify import Observation, classify
from controlplane.domain.gate import Gate
from controlplane.domain.request_plan import Ending
from controlplane.domain.verdict import Verdict
from gateway import pool
from gateway.pool import STEPS, Pool, RateLimit, Settings, SimulatedModel
from tests.gateway.fake_clock import FakeClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GOOD = classify(Observation("any", NOW, status=200, body={"choices": [{}]}))
OVERLOADED = classify(Observation("any", NOW, status=503, body=""))
PATIENT = BreakerPolicy(consecutive_failures=1000)
FREE = BudgetPolicy(ratio_per_mille=1000, min_per_second=1.0)


class Scripted:
    """Answers by a rule, and notes every call."""

    def __init__(self, clock: FakeClock, fails=lambda step, article, attempt: False) -> None:
        self._clock = clock
        self._fails = fails
        self.calls: list[tuple[str, int, int]] = []
        self.began: list[float] = []

    async def __call__(self, step: str, article: int, attempt: int) -> Verdict:
        self.calls.append((step, article, attempt))
        self.began.append(self._clock.monotonic())
        await self._clock.sleep(0.1)
        return OVERLOADED if self._fails(step, article, attempt) else GOOD


async def finish(clock: FakeClock, running: Pool, articles: int):
    """Run to the end on the fake clock."""
    task = asyncio.ensure_future(running.run(range(articles)))
    await clock.advance_until(task.done)
    return task.result()


def a_pool(clock: FakeClock, call, **settings) -> Pool:
    return Pool(replace(Settings(), **settings), call, clock=clock, draw=lambda: 0.9)


async def test_each_article_is_summarised_then_its_sentiment_is_asked_for():
    clock = FakeClock()
    call = Scripted(clock)
    summary = await finish(clock, a_pool(clock, call, workers=1), 3)
    assert call.calls == [(step, article, 1) for article in range(3) for step in STEPS]
    assert (summary.failed, summary.circuit_open) == (0, 0)
    assert str(summary).startswith("succeeded: 3 | failed: 0 (circuit open: 0) | ")


async def test_no_second_call_follows_a_failed_first():
    clock = FakeClock()
    call = Scripted(clock, lambda step, article, attempt: article == 1)
    summary = await finish(clock, a_pool(clock, call, breaker=PATIENT, workers=1), 2)
    assert {step for step, article, _ in call.calls if article == 1} == {"summarise"}
    assert [done.failed_at for done in summary.articles] == [None, "summarise"]
    assert summary.articles[1].stop.ending is Ending.FAILED


async def test_a_failed_call_is_tried_again():
    clock = FakeClock()
    call = Scripted(clock, lambda step, article, attempt: attempt == 1)
    summary = await finish(clock, a_pool(clock, call, breaker=PATIENT, workers=1), 1)
    assert call.calls == [(step, 0, attempt) for step in STEPS for attempt in (1, 2)]
    assert summary.failed == 0
    assert summary.articles[0].attempts == 4


async def test_an_open_circuit_turns_the_rest_away_without_a_call():
    clock = FakeClock()
    call = Scripted(clock, lambda step, article, attempt: True)
    summary = await finish(clock, a_pool(clock, call, workers=3), 20)
    assert len(call.calls) == 3
    assert summary.failed == 20
    # Three made the calls that opened it; their retries were refused, which is not a turning away.
    assert summary.circuit_open == 17
    assert all(d.stop.gate is Gate.BREAKER for d in summary.articles if d.circuit_open)
    opened = summary.transitions[1]
    assert (opened.to_state, opened.cause) == (State.OPEN, Cause.CONSECUTIVE_FAILURES)


async def test_the_breaker_judges_calls_and_not_articles():
    # Every summary works and every sentiment fails: there are never two failures in a row.
    clock = FakeClock()
    call = Scripted(clock, lambda step, article, attempt: step == "sentiment")
    twice = BreakerPolicy(consecutive_failures=2)
    summary = await finish(clock, a_pool(clock, call, workers=1, max_attempts=1, breaker=twice), 5)
    assert summary.failed == 5
    assert summary.circuit_open == 0
    assert len(summary.transitions) == 1


async def test_after_the_open_period_a_probe_closes_the_circuit():
    clock = FakeClock()
    call = Scripted(clock, lambda step, article, attempt: clock.monotonic() < 1000.5)
    shut = BreakerPolicy(consecutive_failures=1, open_seconds=0.5)
    running = a_pool(clock, call, workers=1, breaker=shut)
    assert (await finish(clock, running, 1)).failed == 1
    await clock.advance(1.0)
    summary = await finish(clock, running, 1)
    assert summary.failed == 0
    assert State.CLOSED in [step.to_state for step in summary.transitions]


async def test_every_attempt_waits_for_its_turn():
    clock = FakeClock()
    call = Scripted(clock, lambda step, article, attempt: attempt == 1)
    running = a_pool(clock, call, workers=4, calls_per_s=10.0, breaker=PATIENT, budget=FREE)
    await finish(clock, running, 6)
    assert len(call.began) == 24
    for place, later in enumerate(call.began):
        for count, earlier in enumerate(reversed(call.began[:place]), start=1):
            # Four at once, and one more for each tenth of a second.
            assert count < 4 + (later - earlier) * 10 + 1e-6


async def test_a_call_that_takes_too_long_is_cancelled_and_counts():
    cancelled = []

    async def hangs(step: str, article: int, attempt: int) -> Verdict:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(article)
        return GOOD

    settings = Settings(
        workers=1, attempt_s=0.01, max_attempts=1, breaker=BreakerPolicy(consecutive_failures=2)
    )
    summary = await Pool(settings, hangs, draw=lambda: 0.0).run(range(3))
    assert cancelled == [0, 1]
    assert [done.stop.reason for done in summary.articles[:2]] == ["timeout", "timeout"]
    assert summary.circuit_open == 1


async def test_a_call_that_raises_is_handed_on_and_frees_its_place():
    async def raises(step: str, article: int, attempt: int) -> Verdict:
        raise LookupError(article)

    settings = Settings(workers=1)
    running = Pool(settings, raises, draw=lambda: 0.0)
    with pytest.raises(ExceptionGroup) as caught:
        await running.run([7])
    assert caught.group_contains(LookupError, match="7")
    assert running._breaker.snapshot(running._clock.monotonic()).in_flight == 0


def test_turns_are_handed_out_at_the_rate_after_a_burst():
    limit = RateLimit(per_s=10.0, burst=3)
    assert [round(limit.reserve(0.0), 6) for _ in range(5)] == [0.0, 0.0, 0.0, 0.1, 0.2]
    assert limit.reserve(10.0) == 0.0


async def test_the_same_seed_fails_the_same_calls():
    async def fates(seed: int) -> list[bool]:
        model = SimulatedModel(0.5, seed, FakeClockWithoutWaiting())
        return [(await model("summarise", article, 1)).ok for article in range(64)]

    assert await fates(3) == await fates(3)
    assert await fates(3) != await fates(4)


class FakeClockWithoutWaiting(FakeClock):
    """Sleeping takes no time at all."""

    async def sleep(self, seconds: float) -> None:
        self.step(seconds)


def test_the_command_says_what_became_of_each_article(capsys):
    assert pool.main(["--articles", "6", "--workers", "3", "--error-rate", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("article") for line in lines) == 6
    assert lines[-1].startswith("succeeded: 0 | failed: 6 (circuit open: 3) | ")


@pytest.mark.parametrize("wrong", [["--error-rate", "2"], ["--workers", "0"]])
def test_a_number_out_of_range_is_named(wrong, capsys):
    with pytest.raises(SystemExit) as ended:
        pool.main(wrong)
    assert ended.value.code == 2
    assert wrong[0].strip("-").replace("-", "_") in capsys.readouterr().err
