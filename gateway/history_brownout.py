"""One simulated incident of one circuit, and how one instance's breaker went through it.

Invariant: the breaker's steps alternate as a real one's do (Closed, Open, HalfOpen, then Open or
Closed), are numbered from 1, and end Closed after the incident. Times are aware UTC.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

Circuit = tuple[str, str]  # provider, model
_LONGEST_OPEN_S = 60


class State(StrEnum):
    """A breaker's state, as the wire writes it."""

    CLOSED = "Closed"
    OPEN = "Open"
    HALF_OPEN = "HalfOpen"


@dataclass(frozen=True, slots=True)
class Step:
    """One transition."""

    at: datetime
    before: State
    after: State
    number: int


class Brownout:
    """A time in which half of a circuit's calls fail."""

    def __init__(
        self, circuit: Circuit, start: datetime, length: timedelta, draw: random.Random
    ) -> None:
        self.circuit = circuit
        self._start, self._end = start, start + length
        self.steps = list(self._walk(draw))
        self._times = [step.at for step in self.steps]

    def covers(self, at: datetime) -> bool:
        """True while it lasts."""
        return self._start <= at < self._end

    def hits(self, circuit: Circuit, at: datetime) -> bool:
        """True when that circuit's calls fail for it."""
        return circuit == self.circuit and self.covers(at)

    def state(self, circuit: Circuit, at: datetime) -> State:
        """What this instance's breaker of that circuit is at a moment."""
        place = bisect_right(self._times, at) if circuit == self.circuit else 0
        return self.steps[place - 1].after if place else State.CLOSED

    def _walk(self, draw: random.Random) -> list[Step]:
        steps: list[Step] = []

        def step(at: datetime, after: State) -> None:
            before = steps[-1].after if steps else State.CLOSED
            steps.append(Step(at, before, after, len(steps) + 1))

        at = self._start + _seconds(draw, 50, 150)
        while at < self._end:
            step(at, State.OPEN)
            rest, closed = 10, False
            while not closed:
                at += timedelta(seconds=rest)
                step(at, State.HALF_OPEN)
                at += _seconds(draw, 0.6, 3)
                # During the incident a probe is a coin; after it, it succeeds.
                closed = at >= self._end or draw.random() < 0.45
                step(at, State.CLOSED if closed else State.OPEN)
                rest = min(rest * 2, _LONGEST_OPEN_S)
            at += _seconds(draw, 60, 180)
        return steps


def _seconds(draw: random.Random, low: float, high: float) -> timedelta:
    return timedelta(milliseconds=int(draw.uniform(low, high) * 1000))
