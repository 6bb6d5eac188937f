"""How a task closes: one commutative rule over its requests' ends and its caller's words.

Invariant: ``merge`` is commutative, associative and idempotent, so any order of arrival, any
batching and any repetition of outcomes gives the same task (design 4.7). Times are event times.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True, slots=True, order=True)
class Word:
    """One result, ordered by time and then by id: the greater one is the one that holds."""

    at: datetime
    id: UUID
    success: bool


@dataclass(frozen=True, slots=True, order=True)
class Start:
    """One request's begin; the smaller one is the task's first request."""

    at: datetime
    request: UUID
    route: str


@dataclass(frozen=True, slots=True)
class Task:
    """What is known of a task: its caller's word (explicit) and its last request's (implicit)."""

    first: Start | None = None
    last_ended_at: datetime | None = None
    explicit: Word | None = None
    implicit: Word | None = None

    @property
    def success(self) -> bool | None:
        """The result that holds: an explicit word beats any implicit one; None before either."""
        word = self.explicit or self.implicit
        return word.success if word else None


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """One outcome event that carries a task. Absent times fall back to ``occurred_at``."""

    id: UUID
    occurred_at: datetime
    success: bool
    explicit: bool
    route: str
    request: UUID | None
    started_at: datetime | None
    ended_at: datetime | None


def of_outcome(outcome: OutcomeRow) -> Task:
    """What one outcome says of its task."""
    if outcome.explicit:
        return Task(explicit=Word(outcome.occurred_at, outcome.id, outcome.success))
    ended = outcome.ended_at or outcome.occurred_at
    return Task(
        first=Start(
            outcome.started_at or outcome.occurred_at, outcome.request or outcome.id, outcome.route
        ),
        last_ended_at=ended,
        implicit=Word(ended, outcome.id, outcome.success),
    )


def merge(one: Task, other: Task) -> Task:
    """What both together say."""
    return Task(
        first=min((s for s in (one.first, other.first) if s), default=None),
        last_ended_at=max((t for t in (one.last_ended_at, other.last_ended_at) if t), default=None),
        explicit=max((w for w in (one.explicit, other.explicit) if w), default=None),
        implicit=max((w for w in (one.implicit, other.implicit) if w), default=None),
    )
