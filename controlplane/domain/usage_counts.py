"""Reads single counts out of a usage object, whatever a provider has put there.

Invariant: what comes out is None or a whole number from 0 to ``MOST_TOKENS``; a value that cannot
be a count is remembered as such and never repaired.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# No model reads or writes this much in one call: a larger count is a broken counter.
MOST_TOKENS = 1_000_000_000


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
            if isinstance(value, bool) or not isinstance(value, int | float):
                break
            if 0 <= value <= MOST_TOKENS and value == int(value):
                return int(value)
            break
        else:
            return None
        self.invalid = True
        return None

    def without(self, whole: int | None, *parts: int) -> int | None:
        """``whole`` minus its parts, clamped at 0 and flagged when the parts are larger."""
        if whole is None:
            return None
        left = whole - sum(parts)
        self.invalid = self.invalid or left < 0
        return max(left, 0)
