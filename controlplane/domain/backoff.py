"""How long to wait before the next try: full jitter below a growing cap, never below the hint.

Invariant: the wait is never shorter than the server's own ``Retry-After``, not even when that is
above the cap; whether such a wait is worth it is the caller's decision. Seconds throughout.

Full jitter (a uniform draw between nothing and the cap) spreads callers that failed together:
https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """The cap of the first wait, its growth for each retry, and where growth ends."""

    base_seconds: float = 0.5
    factor: float = 2.0
    cap_seconds: float = 30.0

    def __post_init__(self) -> None:
        if not 0 <= self.base_seconds < inf:
            raise ValueError(f"base_seconds must be 0 or more, got {self.base_seconds!r}")
        if not 1 <= self.factor < inf:
            raise ValueError(f"factor must be 1 or more, got {self.factor!r}")
        if not 0 <= self.cap_seconds < inf:
            raise ValueError(f"cap_seconds must be 0 or more, got {self.cap_seconds!r}")

    def cap(self, retry: int) -> float:
        """The longest jittered wait before retry number ``retry`` (1 is the first)."""
        try:
            grown = self.base_seconds * self.factor ** max(0, retry - 1)
        except OverflowError:  # a float power raises instead of becoming infinite
            grown = inf if self.base_seconds else 0.0
        return min(self.cap_seconds, grown)

    def wait(self, retry: int, u: float, retry_after_s: float | None = None) -> float:
        """The wait before retry number ``retry``, given a uniform draw ``u`` from [0, 1)."""
        return max(retry_after_s or 0.0, u * self.cap(retry))
