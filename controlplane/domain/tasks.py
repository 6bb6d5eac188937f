"""How a task closes: one commutative rule over its requests' ends and its caller's words.

Invariant: ``merge`` is commutative, associative and idempotent, so any order of arrival, any
batching and any repetition of outcomes gives the same task (design 4.7). Times are event times.

A task is frozen seven days after the end of its last request: what its caller says after that does
not count. A request that becomes known later moves that end, so the words that came too late for
the requests known so far are kept beside the one that counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

FREEZE = timedelta(days=7)


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
    """What is known of a task: its caller's words (explicit) and its last request's (implicit).

    ``words``: the one that counts and those after it. Use ``merge`` to make one of several.
    """

    first: Start | None = None
    last_ended_at: datetime | None = None
    words: frozenset[Word] = frozenset()
    implicit: Word | None = None

    @property
    def explicit(self) -> Word | None:
        """The caller's word that counts: the latest before the freeze."""
        return max((w for w in self.words if self._counts(w)), default=None)

    @property
    def frozen(self) -> bool:
        """True when a word came after the freeze."""
        return not all(map(self._counts, self.words))

    @property
    def success(self) -> bool | None:
        """The result that holds: an explicit word beats any implicit one; None before either."""
        word = self.explicit or self.implicit
        return word.success if word else None

    def _counts(self, word: Word) -> bool:
        return self.last_ended_at is None or word.at <= self.last_ended_at + FREEZE


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
        return Task(words=frozenset({Word(outcome.occurred_at, outcome.id, outcome.success)}))
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
    both = Task(
        first=min((s for s in (one.first, other.first) if s), default=None),
        last_ended_at=max((t for t in (one.last_ended_at, other.last_ended_at) if t), default=None),
        words=one.words | other.words,
        implicit=max((w for w in (one.implicit, other.implicit) if w), default=None),
    )
    counts = both.explicit
    if both.last_ended_at is None or counts is None:
        return both
    # The end only ever moves on: what is older than the word that counts will never count again.
    return replace(both, words=frozenset(w for w in both.words if w >= counts))
