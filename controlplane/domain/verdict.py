"""What one call to a provider came to: the vocabulary that every other rule speaks.

Invariant: a verdict is data. It never holds a library's exception, a body or a prompt.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The seven ways in which a call can end."""

    SUCCESS = "success"
    RETRYABLE = "retryable"
    PERMANENT = "permanent"
    PARTIAL = "partial"
    CLIENT_CANCELLED = "client_cancelled"
    CLIENT_DEADLINE = "client_deadline"
    LOCAL_FAULT = "local_fault"


class Scope(StrEnum):
    """What the fault belongs to, and so what else may rest or be skipped."""

    NONE = "none"
    REQUEST = "request"
    KEY = "key"
    MODEL = "model"
    PROVIDER = "provider"


_SUCCESS = Kind.SUCCESS  # off its class it costs a hundred times as much (``domain.request``)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The classification of one attempt.

    ``retryable``: the same request to the same key and model may succeed later and cannot repeat
    delivered output. ``counts_against_breaker``: a failure of the circuit it hit.
    ``retry_after_s``: the server's own minimum wait in seconds, None when it gave none.
    """

    kind: Kind
    reason: str
    retryable: bool
    counts_against_breaker: bool
    scope: Scope
    retry_after_s: float | None = None

    @property
    def ok(self) -> bool:
        """True when the call succeeded."""
        return self.kind is _SUCCESS
