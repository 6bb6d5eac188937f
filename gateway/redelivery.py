"""Has this request been here before? (design 4.4)

Invariant: at most ``MOST`` keys are remembered, the oldest are forgotten first, but never one that
is in flight. Keys are kept as digests: a caller may put anything into one. Monotonic seconds.
"""

from __future__ import annotations

import hashlib
from enum import Enum, auto

REMEMBERED_S = 600.0
MOST = 50_000
_IN_FLIGHT = float("inf")


class Seen(Enum):
    """What is known of an idempotency key."""

    NEVER = auto()
    BEFORE = auto()
    IN_FLIGHT = auto()


class Redeliveries:
    """The idempotency keys of one worker's last ten minutes."""

    def __init__(self) -> None:
        self._until: dict[bytes, float] = {}

    def begin(self, tenant: str, key: str, now: float) -> Seen:
        """Note a request with this key. ``IN_FLIGHT``: turn it away, and do not call ``end``."""
        digest = _digest(tenant, key)
        until = self._until.pop(digest, None)
        if until == _IN_FLIGHT:
            self._until[digest] = until
            return Seen.IN_FLIGHT
        self._until[digest] = _IN_FLIGHT
        self._forget(now)
        return Seen.NEVER if until is None or until <= now else Seen.BEFORE

    def end(self, tenant: str, key: str, now: float) -> None:
        """The request is over; its key is remembered from now."""
        digest = _digest(tenant, key)
        self._until.pop(digest, None)
        self._until[digest] = now + REMEMBERED_S

    def _forget(self, now: float) -> None:
        # Oldest first; a bounded look keeps this constant for each request.
        for digest in [key for key, _ in zip(self._until, range(4), strict=False)]:
            until = self._until[digest]
            if until <= now or (until != _IN_FLIGHT and len(self._until) > MOST):
                del self._until[digest]


def _digest(tenant: str, key: str) -> bytes:
    text = f"{tenant}\0{key}".encode("utf-8", "surrogateescape")
    return hashlib.blake2b(text, digest_size=16).digest()
