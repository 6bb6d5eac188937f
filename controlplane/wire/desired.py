"""Desired state out: the full snapshot that a gateway is to enforce, and the watch's frames.

Invariant: a snapshot is always whole, never a delta, and ``hash`` is over ``spec`` alone, so what
changes by the mere passing of time (remaining seconds, server time, live instances) never makes a
new generation. "Any" in a match is the empty string; region ``-`` means "no region".
"""

from __future__ import annotations

import hashlib
from datetime import datetime

import msgspec
from msgspec import Struct

from controlplane.wire.events import Mode


class Match(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which circuits (and, for a budget, which tenant) an item is about."""

    provider: str = ""
    model: str = ""
    region: str = ""
    tenant: str = ""


class Breaker(Struct, frozen=True, kw_only=True):
    """Thresholds of design 4.2, and the rate of calls to each circuit that is matched.

    ``None`` switches that part off. Times in seconds; the limits a minute are per gateway.
    """

    consecutive_failures: int | None = 5
    failure_ratio: float | None = 0.5
    minimum_calls: int = 20
    window_seconds: float = 60
    window_calls: int | None = None
    slow_ratio: float | None = None
    slow_call_seconds: float = 60
    open_seconds: float = 10
    max_open_seconds: float = 60
    half_open_probes: int = 1
    close_after: int = 1
    probe_lease_seconds: float = 60
    half_open_max_seconds: float = 60
    ramp_seconds: float = 10
    rate_limits_count: bool = True
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


class Bucket(Struct, frozen=True, kw_only=True):
    """Numbers of design 4.3. Rates are per gateway and second; ``ratio`` is in thousandths.

    Ceilings are decimal text, in pounds. ``max_cost_gbp`` is what the subject of the budget (one
    tenant, one circuit, the system) may cost within any ``cost_window_seconds`` at one gateway; the
    other two bound one request and one task of the tenants that a system or tenant budget covers.
    """

    ratio_per_mille: int = 100
    min_per_second: float = 0.1
    max_per_second: float | None = None
    burst: int = 20
    window_seconds: float = 60
    max_attempts: int = 3
    max_attempts_per_task: int = 10
    max_cost_gbp: str | None = None
    cost_window_seconds: float = 86_400
    max_cost_gbp_per_request: str | None = None
    max_cost_gbp_per_task: str | None = None

    @property
    def has_ceiling(self) -> bool:
        """True when a gateway needs prices to keep this."""
        ceilings = (self.max_cost_gbp, self.max_cost_gbp_per_request, self.max_cost_gbp_per_task)
        return any(ceiling is not None for ceiling in ceilings)


class PolicyItem(Struct, frozen=True, kw_only=True):
    """One breaker policy; the narrowest that matches a circuit is in force for it."""

    uid: str
    name: str
    generation: int
    match: Match
    breaker: Breaker


class BudgetItem(Struct, frozen=True, kw_only=True):
    """One retry budget of a level: every subject of that level has a bucket of its own."""

    uid: str
    name: str
    generation: int
    level: str
    match: Match
    bucket: Bucket


class OverrideItem(Struct, frozen=True, kw_only=True):
    """A person's hand on circuits, until ``expires_at``; ended by the gateway itself."""

    uid: str
    name: str
    generation: int
    match: Match
    mode: Mode
    reason: str
    expires_at: datetime
    allow_last_healthy: bool = False


class ProbeItem(Struct, frozen=True, kw_only=True):
    """A person's wish that what is open tries again now: Open goes to HalfOpen, once for each uid.

    It stands here until its row is ended, so that nobody who was away for a moment misses it.
    """

    uid: str
    name: str
    generation: int
    match: Match
    reason: str
    expires_at: datetime


class RouteTarget(Struct, frozen=True, kw_only=True):
    """One target of a route. ``approved_until`` None with ``approved`` means no end.

    The rest is the record of the approval (design 4.4), for people: ``features`` were tested.
    """

    provider: str
    model: str
    region: str = ""
    approved: bool = True
    approved_by: str = ""
    approved_until: datetime | None = None
    approved_at: datetime | None = None
    features: list[str] = []
    processing_regions: list[str] = []
    transfer_mechanism: str = ""
    retention_days: int | None = None


class RouteItem(Struct, frozen=True, kw_only=True):
    """A model name that callers use, and the targets that may serve it, in order."""

    uid: str
    name: str
    generation: int
    targets: list[RouteTarget]
    deadline_seconds: float = 60
    attempt_seconds: float = 30


class PriceItem(Struct, frozen=True, kw_only=True):
    """£ per million tokens of one target, for cost ceilings; decimal text.

    A snapshot has them only when one of its budgets has a ceiling, so that a new exchange rate
    makes no new generation for a gateway that does not look at it.
    """

    provider: str
    model: str
    input_gbp: str
    output_gbp: str


class Spec(Struct, frozen=True, kw_only=True):
    """Everything that one gateway is told.

    Each list stands in order of precedence (design 4.5): the first item that matches, and for an
    override is in force, wins; the others that match are superseded.
    """

    policies: list[PolicyItem] = []
    budgets: list[BudgetItem] = []
    overrides: list[OverrideItem] = []
    routes: list[RouteItem] = []
    prices: list[PriceItem] = []
    probes: list[ProbeItem] = []

    def count(self) -> int:
        """Number of items, sent beside the spec so that a shrunken snapshot is noticed."""
        return (
            len(self.policies)
            + len(self.budgets)
            + len(self.overrides)
            + len(self.routes)
            + len(self.prices)
            + len(self.probes)
        )


class Snapshot(Struct, frozen=True, kw_only=True):
    """What watch and GET send. ``remaining_s`` is by uid of override and probe, as of
    ``server_time``. ``may_shrink``: a person said that it is meant to hold so little.
    """

    gateway: str
    epoch: str
    revision: int
    generation: int
    hash: str
    items: int
    server_time: datetime
    instances: int
    spec: Spec
    remaining_s: dict[str, float] = {}
    may_shrink: bool = False


class Bookmark(Struct, frozen=True, kw_only=True):
    """Every 10 s, and instead of a body when the caller's generation and hash are current."""

    epoch: str
    revision: int
    generation: int
    hash: str
    server_time: datetime
    instances: int


def canonical(spec: Spec) -> bytes:
    """The one byte form of a spec: every field written, keys sorted, no spaces."""
    return msgspec.json.encode(spec, order="sorted")


def hash_of(spec: Spec) -> str:
    """SHA-256 of ``canonical(spec)``, hex. Equality is by hash, order by generation."""
    return hashlib.sha256(canonical(spec)).hexdigest()
