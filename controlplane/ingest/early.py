"""Work that is done while its asker waits for Postgres.

Invariant: it is done once, in the event loop, either in a wait that was foretold or when its result
is asked for; an error meets whoever asks.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class Early(Generic[T]):
    """A value to come of ``work``, which waits for nothing."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._done: list[T] = []

    def begin(self) -> None:
        """Do the work now if it is not done; never raises."""
        with suppress(Exception):
            self.value()

    def value(self) -> T:
        """The result."""
        if not self._done:
            self._done.append(self._work())
        return self._done[0]
