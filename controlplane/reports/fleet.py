"""Gateways and their instances as a person reads them: what each is told, runs, and is judged.

Invariant: an instance that left or was replaced is not here; a silent one is, with its last word's
time, until it has been silent for an hour.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import F, OuterRef, QuerySet, Subquery

from controlplane.domain.sync import (
    FORGOTTEN,
    Desired,
    Reported,
    SyncVerdict,
    is_live,
    judge,
)
from controlplane.models import (
    ConfigGeneration,
    Gateway,
    GatewayConfig,
    Instance,
    LocalOverride,
    Revision,
)


@dataclass(frozen=True, slots=True)
class Member:
    """One running instance and its verdict. ``live``: heard within the last 30 s."""

    row: Instance
    verdict: SyncVerdict
    live: bool


@dataclass(frozen=True, slots=True)
class GatewayReport:
    """A gateway, its compiled configuration and its instances."""

    row: Gateway
    config: GatewayConfig | None
    epoch: str
    members: tuple[Member, ...]
    local: tuple[LocalOverride, ...] = ()


def read(now: datetime, name: str | None = None) -> list[GatewayReport]:
    """All gateways by name, or the one that is named (an empty list if there is none)."""
    epoch = str(Revision.objects.get(id=1).epoch)
    gateways = Gateway.objects.select_related("config").defer("config__spec").order_by("name")
    if name is not None:
        gateways = gateways.filter(name=name)
    members = instances(now)
    local = local_overrides(now)
    found = []
    for row in gateways:
        config: GatewayConfig | None = getattr(row, "config", None)
        mine = tuple(
            Member(i, verdict(i, config, epoch, now), is_live(i.last_seen_at, now))
            for i in members
            if i.gateway_id == row.pk
        )
        here = tuple(o for o in local if o.gateway_id == row.pk)
        found.append(GatewayReport(row, config, epoch, mine, here))
    return found


def local_overrides(now: datetime) -> list[LocalOverride]:
    """What people made on gateways' hosts and has not ended, as far as it was heard."""
    rows = LocalOverride.objects.filter(ended_at=None, expires_at__gt=now)
    return list(rows.select_related("gateway").order_by("gateway__name", "created_at"))


def counted(now: datetime) -> QuerySet[Instance]:
    """Every instance that counts now, by gateway and slot."""
    rows = Instance.objects.filter(
        replaced_at=None, goodbye_at=None, last_seen_at__gte=now - FORGOTTEN
    )
    # Twenty gateways are read once, not once for each of their instances.
    return rows.order_by(F("gateway__name"), "slot").prefetch_related("gateway")


def instances(now: datetime) -> list[Instance]:
    """The same with ``pending_since``: when the oldest generation that it has not applied was
    compiled."""
    next_generation = ConfigGeneration.objects.filter(
        gateway_id=OuterRef("gateway_id"), generation=OuterRef("applied_generation") + 1
    )
    since = Subquery(next_generation.values("compiled_at")[:1])
    return list(counted(now).annotate(pending_since=since).select_related("missing"))


def verdict(
    instance: Instance, config: GatewayConfig | None, epoch: str, now: datetime
) -> SyncVerdict:
    """Does this instance run what its gateway is told?"""
    since = getattr(instance, "pending_since", None) or (config.compiled_at if config else now)
    desired = Desired(
        epoch, config.generation if config else 0, config.hash if config else "", since
    )
    verdicts = [item.get("verdict") for item in instance.items]
    reported = Reported(
        heard_at=instance.last_seen_at,
        epoch=instance.epoch,
        received_generation=instance.received_generation,
        applied_generation=instance.applied_generation,
        applied_hash=instance.applied_hash,
        has_reported=instance.status_seq > 0,
        rejected=verdicts.count("Rejected"),
        unsupported=verdicts.count("Unsupported"),
        refused_generation=instance.refused_generation,
        checkpointed_generation=instance.checkpointed_generation,
    )
    return judge(desired, reported, now)
