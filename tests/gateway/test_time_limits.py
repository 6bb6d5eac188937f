"""Many limits on one timer: each strikes in its own time, and only what still runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gateway.time_limits import TimeLimit, TimeLimits


class Loop:
    """A loop's clock and timers, moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self._timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, call: Callable[[], None]) -> Timer:
        self._timers.append(timer := Timer(when, call))
        return timer

    @property
    def waiting(self) -> int:
        """Timers that have not come."""
        return sum(not timer.cancelled for timer in self._timers)

    async def move_to(self, now: float) -> None:
        """Let tasks begin, run what is due, then let the tasks that it woke go on."""
        await asyncio.sleep(0)
        self.now = now
        due = [timer for timer in self._timers if timer.when <= now]
        self._timers = [timer for timer in self._timers if timer.when > now]
        for timer in due:
            if not timer.cancelled:
                timer.call()
        for _ in range(3):
            await asyncio.sleep(0)


class Timer:
    def __init__(self, when: float, call: Callable[[], None]) -> None:
        self.when = when
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Waiting:
    """A task that waits within a limit until that strikes."""

    def __init__(self, limits: TimeLimits, seconds: float) -> None:
        self.limit: TimeLimit = limits.within(seconds)
        self.task = asyncio.ensure_future(self._wait())

    async def _wait(self) -> None:
        with self.limit:
            await asyncio.Event().wait()

    @property
    def struck(self) -> bool:
        return self.task.done() and isinstance(self.task.exception(), TimeoutError)


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def limits(loop: Any) -> TimeLimits:
    return TimeLimits(loop)


async def test_the_shorter_limit_strikes_first_whichever_was_set_first(
    loop: Loop, limits: TimeLimits
) -> None:
    waits = {seconds: Waiting(limits, seconds) for seconds in (6, 2, 4, 0)}
    for now in range(7):
        await loop.move_to(now)
        assert {seconds: one.struck for seconds, one in waits.items()} == {
            seconds: seconds <= now for seconds in waits
        }
    assert limits.running == 0


async def test_what_ended_before_its_time_is_forgotten(loop: Loop, limits: TimeLimits) -> None:
    for _ in range(1000):
        with limits.within(60):
            pass
    assert limits.running == 0
    assert loop.waiting == 1
    await loop.move_to(60)
    assert loop.waiting == 0


async def test_those_that_run_are_looked_at_once_in_a_time(loop: Loop, limits: TimeLimits) -> None:
    first = Waiting(limits, 10)
    await loop.move_to(4)
    second = Waiting(limits, 10)
    await loop.move_to(10)
    assert (first.struck, second.struck, loop.waiting) == (True, False, 1)
    await loop.move_to(13.9)
    assert not second.struck
    await loop.move_to(14)
    assert (second.struck, loop.waiting) == (True, 0)


async def test_somebody_elses_cancellation_stays_one(loop: Loop, limits: TimeLimits) -> None:
    one = Waiting(limits, 60)
    await loop.move_to(1)
    one.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await one.task


async def test_silence_strikes_unless_something_is_heard_or_the_client_is_waited_for(
    loop: Loop, limits: TimeLimits
) -> None:
    one = Waiting(limits, 60)
    await loop.move_to(0)
    one.limit.move(60, 5)
    for now in (4, 8, 12):
        await loop.move_to(now)
        one.limit.touch()
    one.limit.reading = False
    await loop.move_to(30)
    one.limit.reading = True
    one.limit.touch()
    await loop.move_to(34.9)
    assert not one.struck
    await loop.move_to(35)
    assert one.struck


async def test_a_moved_limit_holds_from_the_move(loop: Loop, limits: TimeLimits) -> None:
    later, sooner = Waiting(limits, 2), Waiting(limits, 60)
    await loop.move_to(1)
    later.limit.move(10, 60)
    sooner.limit.move(3, 60)
    await loop.move_to(4)
    assert (later.struck, sooner.struck) == (False, True)
    await loop.move_to(11)
    assert later.struck
