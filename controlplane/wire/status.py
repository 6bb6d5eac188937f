"""Status back: what one instance really enforces.

Invariant: a report never says more than the instance knows; ``applied_*`` is set only when the next
call through that instance obeys it, and an item is rejected if and only if its verdict says so.
``seq`` orders the reports of a boot; the control plane ignores a lower one.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from controlplane.wire.events import Count, Instant, Label, Mode, Name, State, Text, Told

ItemVerdict = Literal["Applied", "Rejected", "Unsupported", "Superseded"]
ConfigSource = Literal["Stream", "Poll", "DiskCache", "Bootstrap", "Local"]


class ItemStatus(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The verdict on one item of the snapshot. ``reason`` is CamelCase."""

    kind: Literal["Policy", "Budget", "Override", "Route", "Probe"]
    name: Name
    uid: Name
    generation: Count
    verdict: ItemVerdict
    reason: Label = ""
    message: Text = ""
    field_path: Label = ""
    applied_at: Instant | None = None
    first_effect_at: Instant | None = None


class CircuitStatus(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One breaker. ``mode``: the override in force; ``would_be``: the automatic breaker below."""

    provider: Name
    model: Name
    region: Label = ""
    state: State
    number: Count = 0
    since: Instant
    cause: Label = "Boot"
    mode: Mode = "Auto"
    override_uid: Label = ""
    would_be: State | None = None
    next_probe_at: Instant | None = None
    ramp_percent: Annotated[int, Meta(ge=0, le=100)] = 100
    stuck: bool = False
    keys_ready: Count | None = None
    keys_total: Count | None = None
    keys_note: Label = ""


class BudgetStatus(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One bucket as it stands."""

    scope: Name
    balance: Annotated[int, Meta(ge=-(2**53), le=2**53)]
    earned: Count = 0
    spent: Count = 0
    refused: Count = 0
    window_s: float = 60


class SpoolStatus(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Events not yet acknowledged, and what had to be dropped since the boot, in all and by kind.

    ``acknowledged``: the highest seq that was receipted under the report's ``epoch``.
    """

    events: Count = 0
    bytes: Count = 0
    oldest_at: Instant | None = None
    dropped: Count = 0
    dropped_by_kind: Annotated[dict[Label, Count], Meta(max_length=16)] = {}
    acknowledged: Told = 0


class Clock(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Offset (control plane minus gateway) and round trip in seconds, None when not measured."""

    offset_s: float | None = None
    rtt_s: float | None = None
    trusted: bool = True


class LocalOverride(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An override that a person made on this host, past the control plane.

    Told until the control plane has heard of its end; ``end_cause`` is Expired or Released.
    """

    uid: Name
    mode: Mode
    provider: Label = ""
    model: Label = ""
    region: Label = ""
    reason: Text
    made_by: Name
    created_at: Instant
    expires_at: Instant
    ended_at: Instant | None = None
    end_cause: Label = ""


class InstanceStatus(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One report of one instance.

    ``checkpointed_generation``: of this epoch, what a restart without a control plane would begin
    with; below ``applied_generation`` while a disk stalls or is full. None from those who do not
    say.
    """

    slot: Name
    seq: Annotated[int, Meta(ge=1, le=2**53)]
    sent_at: Instant
    started_at: Instant
    version: Label = ""
    epoch: Label = ""
    received_generation: Count = 0
    applied_generation: Count = 0
    applied_hash: Label = ""
    applied_at: Instant | None = None
    config_source: ConfigSource = "Bootstrap"
    items: Annotated[list[ItemStatus], Meta(max_length=2000)] = []
    circuits: Annotated[list[CircuitStatus], Meta(max_length=600)] = []
    budgets: Annotated[list[BudgetStatus], Meta(max_length=2000)] = []
    spool: SpoolStatus = SpoolStatus()
    clock: Clock = Clock()
    capabilities: Annotated[list[Label], Meta(max_length=50)] = []
    local_overrides: Annotated[list[LocalOverride], Meta(max_length=200)] = []
    refused_generation: Count = 0
    refused_reason: Text = ""
    goodbye: bool = False
    checkpointed_generation: Count | None = None


class StatusReceipt(Struct, frozen=True, kw_only=True):
    """The answer: the desired generation as the control plane sees it now."""

    generation: int
    hash: str
    epoch: str
    server_time: datetime
    instances: int
