"""What a run counts, and the table's figures from it.

Invariants: sessions count from the moment the ramp begins, with everything that came of them;
attempts count in the minute in which they are sent, whoever's they are. A figure is rounded only
where it is printed. Minutes are of virtual time, 0 is the first of the ramp.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import Any

from controlplane.domain.breaker import Transition
from controlplane.domain.circuit import Circuit
from controlplane.domain.request_plan import Role
from gateway.brownout.model import Column, Model

LAST_MINUTES = 10


@dataclass(slots=True)
class Minute:
    """One minute of the failing provider (attempts, retries, failures) and of the users (rest)."""

    attempts: int = 0
    retries: int = 0
    failures: int = 0
    requests: int = 0
    errors: int = 0
    wasted: int = 0


@dataclass(slots=True)
class Tally:
    """The counts of one run."""

    model: Model
    sessions: int = 0
    requests: int = 0
    errors: int = 0
    wasted: int = 0
    firsts: int = 0
    retries: int = 0
    fallbacks: int = 0
    seconds: list[float] = field(default_factory=list)
    minutes: list[Minute] = field(default_factory=list)
    transitions: list[tuple[Circuit, Transition]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.minutes = [Minute() for _ in range(ceil(self.model.ramp_s / 60))]

    def attempt(self, circuit: Circuit, role: Role, at: float, failed: bool, wasted: int) -> None:
        """An attempt was sent at ``at``; how it ended."""
        minute = self._minute(at)
        if minute is None or circuit != self.model.failing:
            return
        minute.attempts += 1
        minute.retries += role is Role.RETRY
        minute.failures += failed
        minute.wasted += wasted

    def counted(self, role: Role, wasted: int) -> None:
        """The same attempt, if it is of a session that counts."""
        self.wasted += wasted
        self.firsts += role is Role.FIRST
        self.retries += role is Role.RETRY
        self.fallbacks += role is Role.FALLBACK

    def request(self, began: float, ended: float, served: bool) -> None:
        """A request of a session that counts is over."""
        self.requests += 1
        self.errors += not served
        self.seconds.append(ended - began)
        minute = self._minute(began)
        if minute is not None:
            minute.requests += 1
            minute.errors += not served

    def column(self) -> Column:
        """The table's figures. Raises ``ValueError`` for a run in which nothing happened."""
        if not self.sessions or not self.seconds:
            raise ValueError("no session was counted: raise the scale")
        last = self.minutes[-LAST_MINUTES:]
        per_thousand = 1000 / self.sessions
        return Column(
            wasted=self.wasted * per_thousand,
            p99_s=percentile(self.seconds, 0.99),
            errors=self.errors * per_thousand,
            load=sum(m.attempts for m in last) / len(last) / self.model.normal_per_minute,
        )

    def told(self) -> dict[str, Any]:
        """Everything else that a reader of the JSON may want."""
        sent = self.firsts + self.retries + self.fallbacks
        return {
            "sessions": self.sessions,
            "requests": self.requests,
            "attempts": sent,
            "retries_per_first": round(self.retries / self.firsts, 4) if self.firsts else None,
            "fallbacks": self.fallbacks,
            "errors": self.errors,
            "wasted_tokens": self.wasted,
            "minutes": [
                {name: getattr(minute, name) for name in Minute.__slots__}
                for minute in self.minutes
            ],
            "transitions": [
                {
                    "circuit": str(circuit),
                    "at_s": round(step.at, 3),
                    "from": step.from_state.value,
                    "to": step.to_state.value,
                    "cause": step.cause.value,
                }
                for circuit, step in self.transitions
            ],
        }

    def _minute(self, at: float) -> Minute | None:
        place = int(at // 60)
        return self.minutes[place] if 0 <= place < len(self.minutes) else None


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least ``share`` of ``values`` do not exceed (nearest rank)."""
    ranked = sorted(values)
    return ranked[max(0, ceil(share * len(ranked)) - 1)]
