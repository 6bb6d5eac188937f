"""Disjoint token counts, and how single counts are read out of whatever a provider has put there.

Invariant: what is read is None or a whole number from 0 to ``MOST_TOKENS``; a value that cannot be
a count is remembered as such and never repaired.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

# No model reads or writes this much in one call: a larger count is a broken counter.
MOST_TOKENS = 1_000_000_000
_LONGEST_NUMBER = len(str(MOST_TOKENS))


class Tokens(NamedTuple):
    """Disjoint counts of one attempt; None is not known.

    ``estimated``: some count is our estimate, not the provider's. ``invalid``: the provider's own
    numbers contradict each other or cannot be; what could be kept of them was kept.
    """

    input: int | None
    cached_read: int | None
    cache_write: int | None
    output: int | None
    reasoning_in_output: int | None
    estimated: bool = False
    invalid: bool = False


class Counts:
    """Reads counts out of one usage object and remembers whether any of them cannot be."""

    __slots__ = ("invalid", "usage")

    def __init__(self, usage: Mapping[str, Any]) -> None:
        self.usage = usage
        self.invalid = False

    def get(self, *names: str, within: str | None = None) -> int | None:
        """The first of ``names`` that is there, in the object or in a part of it."""
        part: Any = self.usage if within is None else self.usage.get(within)
        if not isinstance(part, Mapping):
            return None
        for name in names:
            value = part.get(name)
            if value is None:
                continue
            count = _count(value)
            self.invalid = self.invalid or count is None
            return count
        return None

    def first(self, *names: str, parts: tuple[str, ...] = ()) -> int:
        """The first of ``names`` in the first of ``parts`` that has one above 0, else in the object
        itself; 0 where it is nowhere: what providers leave out of the parts of a whole is nothing.
        """
        for part in parts:
            if part in self.usage and (found := self.get(*names, within=part)):
                return found
        return self.get(*names) or 0

    def without(self, whole: int | None, *parts: int) -> int | None:
        """``whole`` minus its parts, clamped at 0 and flagged when the parts are larger."""
        if whole is None:
            return None
        left = whole - sum(parts)
        self.invalid = self.invalid or left < 0
        return max(left, 0)


def _count(value: Any) -> int | None:
    """A number, also written 12.0 or "12" as some proxies do; None for what cannot be a count."""
    if isinstance(value, str):
        if not (value.isascii() and value.isdigit() and len(value) <= _LONGEST_NUMBER):
            return None
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value <= MOST_TOKENS and value == int(value) else None
