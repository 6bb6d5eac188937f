"""Has this request been here before? (design 4.4)

Invariant: at most ``MOST`` keys are remembered, the oldest are forgotten first, but never one that
is in flight. Keys are kept as digests of tenant and key: a caller may put anything into one.
Monotonic seconds.
"""

from __future__ import annotations

import hashlib
from enum import Enum, auto
from typing import Protocol

REMEMBERED_S = 600.0
MOST = 50_000
_IN_FLIGHT = float("inf")


class Seen(Enum):
    """What is known of an idempotency key."""

    NEVER = auto()
    BEFORE = auto()
    IN_FLIGHT = auto()


class Shared(Protocol):
    """What the other workers of this gateway know (``gateway.deliveries``)."""

    def begin(self, digest: bytes, now: float) -> Seen:
        """Note a request with this key. ``IN_FLIGHT``: another worker is serving it."""

    def end(self, digest: bytes, now: float) -> None:
        """The request is over."""


class Redeliveries:
    """The idempotency keys of the last ten minutes: this worker's, and ``shared``'s."""

    def __init__(self, shared: Shared | None = None) -> None:
        self._until: dict[bytes, float] = {}
        self._shared = shared

    def begin(self, tenant: str, key: str, now: float) -> Seen:
        """Note a request with this key. ``IN_FLIGHT``: turn it away, and do not call ``end``."""
        digest = _digest(tenant, key)
        until = self._until.pop(digest, None)
        if until == _IN_FLIGHT:
            self._until[digest] = until
            return Seen.IN_FLIGHT
        elsewhere = self._shared.begin(digest, now) if self._shared is not None else Seen.NEVER
        if elsewhere is Seen.IN_FLIGHT:
            self._until[digest] = now + REMEMBERED_S
            return Seen.IN_FLIGHT
        self._until[digest] = _IN_FLIGHT
        self._forget(now)
        before = elsewhere is Seen.BEFORE or (until is not None and until > now)
        return Seen.BEFORE if before else Seen.NEVER

    def end(self, tenant: str, key: str, now: float) -> None:
        """The request is over; its key is remembered from now."""
        digest = _digest(tenant, key)
        self._until.pop(digest, None)
        self._until[digest] = now + REMEMBERED_S
        if self._shared is not None:
            self._shared.end(digest, now)

    def _forget(self, now: float) -> None:
        # Oldest first; a bounded look keeps this constant for each request.
        for digest in [key for key, _ in zip(self._until, range(4), strict=False)]:
            until = self._until[digest]
            if until <= now or (until != _IN_FLIGHT and len(self._until) > MOST):
                del self._until[digest]


def _digest(tenant: str, key: str) -> bytes:
    text = f"{tenant}\0{key}".encode("utf-8", "surrogateescape")
    return hashlib.blake2b(text, digest_size=16).digest()
