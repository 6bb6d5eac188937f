"""What a request is allowed to do, and the steps that the request loop asks its driver to take.

Invariant: frozen data. ``deadline`` and every other moment are absolute monotonic seconds and never
move; durations are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import NamedTuple, Protocol, TypeAlias

from controlplane.domain.backoff import BackoffPolicy
from controlplane.domain.circuit import Circuit
from controlplane.domain.gate import Gate, Refusal
from controlplane.domain.value import value
from controlplane.domain.verdict import Kind, Scope, Verdict


class Role(StrEnum):
    """What an attempt is to its request. Only FIRST earns retry budget, only RETRY spends it."""

    FIRST = "first"
    RETRY = "retry"
    FALLBACK = "fallback"
    REDELIVERY = "redelivery"


class Ending(StrEnum):
    """How a request ended."""

    SERVED = "served"
    FAILED = "failed"
    REFUSED = "refused"
    DEADLINE = "deadline"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Target:
    """One place on a route. Not approved, or approved until a moment that has passed: never used.

    ``approved_until`` is the approval's expiry date moved to the monotonic clock; None has no end.
    """

    circuit: Circuit
    approved: bool = True
    approved_until: float | None = None

    def usable(self, now: float) -> bool:
        """True while the approval stands."""
        return self.approved and (self.approved_until is None or now < self.approved_until)


@value
class RequestSpec:
    """One request's plan: targets in order of preference and the limits that all of them share.

    ``max_attempts`` counts every send, the first included. ``repeatable``: a second run has no
    effect beyond the first (completions, embeddings, GETs). ``body_small``: the body was kept whole
    and can be sent again. ``max_wait_s`` is the longest single wait worth making; None leaves that
    to the deadline.
    """

    targets: tuple[Target, ...]
    deadline: float
    max_attempts: int = 3
    attempt_timeout_s: float = inf
    repeatable: bool = True
    body_small: bool = True
    redelivery: bool = False
    max_wait_s: float | None = None
    backoff: BackoffPolicy = BackoffPolicy()

    def check(self) -> None:
        """Raises ``ValueError`` naming the field that no request can be made by."""
        if not self.targets:
            raise ValueError("targets must name at least one target")
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts must be at least 1, got {self.max_attempts!r}")
        if not self.attempt_timeout_s > 0:
            raise ValueError(f"attempt_timeout_s must be above 0, got {self.attempt_timeout_s!r}")


class Ask(NamedTuple):
    """Ask every gate of this target, then call ``admitted`` or ``refused``."""

    target: Target
    ordinal: int
    role: Role
    rerouted: bool


class Send(NamedTuple):
    """Make this attempt, within ``timeout_s``, then call ``observe``."""

    target: Target
    ordinal: int
    role: Role
    rerouted: bool
    timeout_s: float


class Wait(NamedTuple):
    """Sleep that long, then call ``next`` again."""

    seconds: float
    target: Target


class Stop(NamedTuple):
    """The request is over.

    ``reason`` is the last verdict's, or the detail of the gate that opens soonest. ``gate`` is what
    ended it when a gate did. ``retry_after_s``: from when a new request may fare better.
    """

    ending: Ending
    reason: str
    gate: Gate | None = None
    retry_after_s: float | None = None
    verdict: Verdict | None = None


Action: TypeAlias = Ask | Send | Wait | Stop


class RefusedCall(NamedTuple):
    """A call that was not made, as it has to be reported: never an attempt."""

    target: Target
    ordinal: int
    role: Role
    refusal: Refusal


class RetryGrants(Protocol):
    """The tenant's, circuit's and system's retry budget, asked together (``domain.budgets``)."""

    def earn(self, circuit: Circuit, now: float) -> float:
        """A first was sent; returns the mark for ``give_back``."""

    def give_back(self, circuit: Circuit, mark: float, now: float) -> None:
        """That first ended in a failure that counts against its circuit."""

    def ask(self, circuit: Circuit, now: float) -> Refusal | None:
        """Spend one retry in every bucket, or in none and say which refused."""

    def refund(self, circuit: Circuit, now: float) -> None:
        """The granted retry was not sent."""


class AttemptAllowance:
    """The attempts left to one task, shared by all its requests (``max_attempts_per_task``)."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int | None, used: int = 0) -> None:
        self.limit = limit
        self.used = used

    def take(self) -> bool:
        """Reserve one attempt; False when none is left."""
        if self.limit is not None and self.used >= self.limit:
            return False
        self.used += 1
        return True

    def put_back(self) -> None:
        """The reserved attempt was not made."""
        self.used -= 1


ANOTHER_MODEL_MAY_FIT = frozenset({"context_length", "request_too_large"})
"""Faults of the request that a larger model does not share. A content filter's refusal is not one
of them: another provider must not be asked until one says yes."""


def another_may_serve(verdict: Verdict) -> bool:
    """Could a target of another circuit answer what this one did not?"""
    if verdict.kind is Kind.PERMANENT and verdict.scope in (Scope.REQUEST, Scope.NONE):
        return verdict.reason in ANOTHER_MODEL_MAY_FIT
    return True
