"""Rows to each gateway's snapshot, within the transaction that changed the rows.

Invariant: a gateway's generation rises by one if and only if the hash of its content changed, and
each generation is recorded with its time and revision.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from controlplane.domain.compile import Rows, SettingRow, Target, compile_rows
from controlplane.domain.overrides import OverrideMode, OverrideRow
from controlplane.domain.precedence import Selection
from controlplane.models import (
    BreakerPolicy,
    ConfigGeneration,
    Gateway,
    GatewayConfig,
    Override,
    RetryBudget,
    Route,
)
from controlplane.wire.desired import (
    Breaker,
    Bucket,
    BudgetItem,
    Match,
    OverrideItem,
    PolicyItem,
    RouteItem,
    Spec,
    canonical,
    hash_of,
)

_Selecting = BreakerPolicy | Override | RetryBudget | Route
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def selection_of(row: _Selecting) -> Selection:
    """What a stored row selects."""
    tenant = row.tenant if isinstance(row, RetryBudget) else ""
    return Selection(row.gateway, row.selector, row.provider, row.model, row.region, tenant)


def override_row(row: Override) -> OverrideRow:
    """A stored override as the domain reads it."""
    return OverrideRow(
        uid=str(row.uid),
        name=row.name,
        generation=row.generation,
        selection=selection_of(row),
        mode=OverrideMode(row.mode),
        reason=row.reason,
        expires_at=row.expires_at,
        allow_last_healthy=row.allow_last_healthy,
        ended_at=row.ended_at,
    )


def _setting_row(row: BreakerPolicy | RetryBudget | Route) -> SettingRow:
    level = row.level if isinstance(row, RetryBudget) else ""
    return SettingRow(str(row.uid), row.name, row.generation, selection_of(row), row.spec, level)


def alive_rows() -> Rows:
    """All desired state that may be in force."""
    return Rows(
        policies=tuple(map(_setting_row, BreakerPolicy.objects.all())),
        budgets=tuple(map(_setting_row, RetryBudget.objects.all())),
        overrides=tuple(map(override_row, Override.objects.filter(ended_at=None))),
        routes=tuple(map(_setting_row, Route.objects.all())),
    )


def spec_for(rows: Rows, gateway: Target) -> Spec:
    """What one gateway is told, as the wire says it."""
    mine = compile_rows(rows, gateway)
    return Spec(
        policies=[
            PolicyItem(**_identity(r), match=_match(r.selection), breaker=_from(r.spec, Breaker))
            for r in mine.policies
        ],
        budgets=[
            BudgetItem(
                **_identity(r),
                level=r.level,
                match=_match(r.selection),
                bucket=_from(r.spec, Bucket),
            )
            for r in mine.budgets
        ],
        overrides=[
            OverrideItem(
                **_identity(o),
                match=_match(o.selection),
                mode=o.mode.value,
                reason=o.reason,
                expires_at=o.expires_at,
                allow_last_healthy=o.allow_last_healthy,
            )
            for o in mine.overrides
        ],
        routes=[_from({**r.spec, **_identity(r)}, RouteItem) for r in mine.routes],
    )


def _identity(row: SettingRow | OverrideRow) -> dict[str, Any]:
    return {"uid": row.uid, "name": row.name, "generation": row.generation}


def _match(selection: Selection) -> Match:
    return Match(
        provider=selection.provider,
        model=selection.model,
        region=selection.region,
        tenant=selection.tenant,
    )


def _from(spec: Mapping[str, Any], struct: type[_Struct]) -> _Struct:
    return msgspec.convert(dict(spec), struct)


def recompile(revision: int, now: datetime) -> list[str]:
    """Bring every gateway's snapshot up to date; returns the names of those that changed."""
    rows = alive_rows()
    heads = {head.gateway_id: head for head in GatewayConfig.objects.defer("spec")}
    made: list[ConfigGeneration] = []
    changed: list[str] = []
    for gateway in Gateway.objects.order_by("name"):
        spec = spec_for(rows, Target(gateway.name, gateway.labels))
        content = hash_of(spec)
        head = heads.get(gateway.pk)
        if head is not None and head.hash == content:
            continue
        generation = head.generation + 1 if head is not None else 1
        values = {
            "generation": generation,
            "hash": content,
            "revision": revision,
            "items": spec.count(),
            "spec": canonical(spec).decode(),
            "compiled_at": now,
        }
        GatewayConfig.objects.update_or_create(gateway=gateway, defaults=values)
        made.append(
            ConfigGeneration(
                gateway=gateway,
                generation=generation,
                hash=content,
                revision=revision,
                compiled_at=now,
            )
        )
        changed.append(gateway.name)
    ConfigGeneration.objects.bulk_create(made)
    return changed
