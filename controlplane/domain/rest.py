"""The rest of a key (or of a whole target) after a rate limit, a spent quota or a refused login.

Invariant: news may only make a rest longer, never shorter: a call that was in flight and learns of
a shorter wait is older evidence. Times are monotonic seconds.
"""

from __future__ import annotations


class Rest:
    """One deadline. Not locked: a single assignment of one float is the whole state."""

    __slots__ = ("reason", "until")

    def __init__(self) -> None:
        self.until: float = float("-inf")
        self.reason: str = ""

    def extend(self, now: float, seconds: float, reason: str = "") -> float:
        """Rest for at least ``seconds`` from ``now``; returns the deadline in force."""
        until = now + max(0.0, seconds)
        if until > self.until:
            self.until, self.reason = until, reason
        return self.until

    def available(self, now: float) -> bool:
        """True from the moment the rest is over."""
        return now >= self.until

    def lift(self) -> None:
        """End the rest at once: a person replaced the key or topped the account up."""
        self.until, self.reason = float("-inf"), ""
