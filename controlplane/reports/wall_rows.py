"""The rows of the wall's two reads, as typed as the database sent them.

Invariant: the order of an ``array_like`` row's fields is the order in which ``sql/wall_*.sql``
writes them; a mismatch fails at the first read.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from uuid import UUID

from msgspec import Struct

from controlplane.domain.circuit import Circuit
from controlplane.reports.background import Work


class GatewayRow(Struct, frozen=True):
    """A gateway with the generation that it is to have in force."""

    id: int
    name: str
    labels: dict[str, str]
    generation: int
    hash: str
    compiled_at: datetime | None


class Item(Struct, frozen=True, kw_only=True):
    """An instance's verdict on one item of its snapshot (``wire.status.ItemStatus``)."""

    kind: str
    name: str
    uid: str
    verdict: str
    generation: int = 0
    reason: str = ""
    message: str = ""
    field_path: str = ""


class InstanceRow(Struct, frozen=True, kw_only=True):
    """One running instance as it last reported. ``items``: what it did not apply, and why."""

    id: int
    gateway_id: int
    boot_id: UUID
    slot: str
    version: str
    started_at: datetime | None
    last_seen_at: datetime
    received_generation: int
    applied_generation: int
    applied_hash: str
    applied_at: datetime | None
    pending_since: datetime | None
    reports: int
    epoch: str
    config_source: str
    spool_events: int
    spool_dropped: int
    lost_batches: int
    items: list[Item]
    refused_generation: int = 0
    refused_reason: str = ""
    checkpointed_generation: int | None = None


class CircuitRow(Struct, frozen=True, array_like=True):
    """A circuit that something was heard of."""

    id: int
    provider: str
    model: str
    region: str

    @property
    def circuit(self) -> Circuit:
        """Its identity."""
        return Circuit(self.provider, self.model, self.region)


class StateRow(Struct, frozen=True, array_like=True):
    """One breaker of one instance."""

    instance_id: int
    circuit_id: int
    state: str
    since: datetime
    cause: str
    mode: str
    override_uid: str
    would_be: str
    ramp_percent: int
    stuck: bool
    next_probe_at: datetime | None
    keys_ready: int | None
    keys_total: int | None
    keys_note: str
    calls: int
    failures: int
    consecutive: int


class OverrideRow(Struct, frozen=True, kw_only=True):
    """An override that has not ended and whose time has not passed."""

    uid: str
    name: str
    mode: str
    gateway: str
    selector: str
    provider: str
    model: str
    region: str
    reason: str
    generation: int
    resource_version: int
    created_at: datetime
    created_by: str
    updated_at: datetime
    expires_at: datetime
    allow_last_healthy: bool


class DeliveryRow(Struct, frozen=True, array_like=True):
    """What became of an active override's present generation at one instance.

    Times are arrivals by the control plane's clock; ``first_effect_at`` is the instance's word.
    """

    instance_id: int
    uid: str
    verdict: str
    reason: str
    message: str
    delivered_at: datetime
    acknowledged_at: datetime | None
    first_effect_at: datetime | None
    field_path: str = ""


class LocalRow(Struct, frozen=True, kw_only=True):
    """What a person forced on a gateway's host, past us, as far as it was heard."""

    uid: str
    gateway_id: int
    host: str
    mode: str
    provider: str
    model: str
    region: str
    reason: str
    made_by: str
    created_at: datetime
    expires_at: datetime


class ClaimRow(Struct, frozen=True, array_like=True):
    """Who has the incident, and until when."""

    holder: str
    note: str
    expires_at: datetime


class BudgetRow(Struct, frozen=True, kw_only=True):
    """A retry budget's match and ratio."""

    name: str
    level: str
    gateway: str
    selector: str
    provider: str
    model: str
    region: str
    tenant: str
    ratio_per_mille: int


class PolicyRow(Struct, frozen=True, kw_only=True):
    """A breaker policy's match, and what it calls slow: seconds, and the share that opens."""

    name: str
    gateway: str
    selector: str
    provider: str
    model: str
    region: str
    slow_call_seconds: float
    slow_ratio: float | None


class BalanceRow(Struct, frozen=True, array_like=True):
    """One scope's buckets, summed over the instances in contact."""

    scope: str
    balance: int
    earned: int
    spent: int
    refused: int


class MinuteRow(Struct, frozen=True, array_like=True):
    """One circuit's minute over all gateways."""

    circuit_id: int
    minute: datetime
    attempts: int
    firsts: int
    retries: int
    failed: int
    refused_breaker: int
    refused_override: int
    refused_budget: int
    cost_gbp: Decimal
    wasted_gbp: Decimal
    unpriced: int
    would_refuse: int = 0


class TransitionRow(Struct, frozen=True, array_like=True):
    """One breaker changed."""

    instance_id: int
    circuit_id: int
    at: datetime
    from_state: str
    to_state: str
    mode: str


class Reason(Struct, frozen=True, array_like=True):
    """Why a circuit's attempts failed, the most frequent first."""

    circuit_id: int
    reason: str


class TailRow(Struct, frozen=True, array_like=True):
    """A circuit's calls that ended, and the upper bins (domain/histogram) of how long they took."""

    circuit_id: int
    calls: int
    bins: list[int]


class Peak(Struct, frozen=True, array_like=True):
    """The minute of the last hour that wasted most."""

    minute: datetime
    wasted_gbp: Decimal


class Redelivering(Struct, frozen=True, array_like=True):
    """A tenant whose SDK sends requests again, and how many of them a minute."""

    tenant: str
    a_minute: float


class Now(Struct, frozen=True, kw_only=True):
    """Desired and observed state at ``at`` (the database's clock)."""

    at: datetime
    version: int
    epoch: str
    revision: int
    gateways: list[GatewayRow]
    instances: list[InstanceRow]
    circuits: list[CircuitRow]
    states: list[StateRow]
    overrides: list[OverrideRow]
    deliveries: list[DeliveryRow]
    budgets: list[BudgetRow]
    balances: list[BalanceRow]
    claim: ClaimRow | None = None
    local: list[LocalRow] = []
    policies: list[PolicyRow] = []


class Trail(Struct, frozen=True, kw_only=True):
    """The last 15 whole minutes and the one that runs."""

    at: datetime
    since: datetime
    minutes: list[MinuteRow]
    transitions: list[TransitionRow]
    reasons: list[Reason]
    peak: Peak | None
    redelivering: list[Redelivering] = []
    tails: list[TailRow] = []
    work: Work | None = None
    """Of the present alone: how what derives the figures fares."""


class Wall(Struct, frozen=True):
    """Both reads."""

    now: Now
    trail: Trail
