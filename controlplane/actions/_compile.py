"""Rows to each gateway's snapshot, within the transaction that changed the rows.

Invariant: a gateway's generation rises by one if and only if the hash of its content changed, and
each generation is recorded with its time and revision.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import msgspec

from controlplane.actions._ceiling_prices import Model, price_book, price_items, reported_models
from controlplane.domain.compile import Rows, SettingRow, Target, compile_rows
from controlplane.domain.overrides import OverrideMode, OverrideRow
from controlplane.domain.precedence import Selection
from controlplane.domain.pricing import PriceBook
from controlplane.models import (
    BreakerPolicy,
    ConfigGeneration,
    Gateway,
    GatewayConfig,
    Override,
    Probe,
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
    ProbeItem,
    RouteItem,
    Spec,
    canonical,
    hash_of,
)

_Selecting = BreakerPolicy | Override | Probe | RetryBudget | Route
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


def _probe_row(row: Probe) -> SettingRow:
    told = {"reason": row.reason, "expires_at": row.expires_at}
    return SettingRow(str(row.uid), row.name, row.generation, selection_of(row), told)


def alive_rows() -> Rows:
    """All desired state that may be in force."""
    return Rows(
        policies=tuple(map(_setting_row, BreakerPolicy.objects.all())),
        budgets=tuple(map(_setting_row, RetryBudget.objects.all())),
        overrides=tuple(map(override_row, Override.objects.filter(ended_at=None))),
        routes=tuple(map(_setting_row, Route.objects.all())),
        probes=tuple(map(_probe_row, Probe.objects.filter(ended_at=None))),
    )


class Compiler:
    """Specs of any number of gateways from one reading of the rows.

    Each row is turned into its wire form once, and gateways that are told the same share the bytes:
    with a thousand gateways the revision's lock is held for moments, not for seconds.
    """

    def __init__(self, rows: Rows, now: datetime) -> None:
        self._rows = rows
        self._now = now
        self._made: dict[tuple[object, ...], Compiled] = {}
        self._items: dict[str, dict[str, Any]] = {
            "policies": {r.uid: _policy(r) for r in rows.policies},
            "budgets": {r.uid: _budget(r) for r in rows.budgets},
            "overrides": {r.uid: _override(r) for r in rows.overrides},
            "routes": {r.uid: _route(r) for r in rows.routes},
            "probes": {r.uid: _probe(r) for r in rows.probes},
        }
        self._reported: dict[int, set[Model]] = {}
        self._book = PriceBook((), ())
        if any(item.bucket.has_ceiling for item in self._items["budgets"].values()):
            self._reported = reported_models()
            known = set().union(*self._reported.values(), *map(_models, rows.routes))
            self._book = price_book(provider for provider, _ in known)

    def compile(self, gateway: Target, gateway_id: int) -> Compiled:
        """What one gateway is told."""
        mine = compile_rows(self._rows, gateway)
        lists = (mine.policies, mine.budgets, mine.overrides, mine.routes, mine.probes)
        uids = tuple(tuple(row.uid for row in rows) for rows in lists)
        models = self._to_price(mine, gateway_id)
        key = (*uids, models)
        if key not in self._made:
            named = zip(self._items.items(), uids, strict=True)
            lists_of = {name: [known[uid] for uid in wanted] for (name, known), wanted in named}
            spec = Spec(**lists_of, prices=price_items(self._book, models, self._now))
            self._made[key] = Compiled(canonical(spec).decode(), hash_of(spec), spec.count())
        return self._made[key]

    def _to_price(self, mine: Rows, gateway_id: int) -> frozenset[Model]:
        """The models that this gateway may call, if one of its budgets has a ceiling."""
        budgets = self._items["budgets"]
        if not any(budgets[row.uid].bucket.has_ceiling for row in mine.budgets):
            return frozenset()
        reported = self._reported.get(gateway_id, set())
        return frozenset(reported.union(*map(_models, mine.routes)))


class Compiled(NamedTuple):
    """A spec as it is stored."""

    spec: str
    hash: str
    items: int


def _policy(row: SettingRow) -> PolicyItem:
    match, breaker = _match(row.selection), _from(row.spec, Breaker)
    return PolicyItem(**_identity(row), match=match, breaker=breaker)


def _budget(row: SettingRow) -> BudgetItem:
    match, bucket = _match(row.selection), _from(row.spec, Bucket)
    return BudgetItem(**_identity(row), level=row.level, match=match, bucket=bucket)


def _override(row: OverrideRow) -> OverrideItem:
    return OverrideItem(
        **_identity(row),
        match=_match(row.selection),
        mode=row.mode.value,
        reason=row.reason,
        expires_at=row.expires_at,
        allow_last_healthy=row.allow_last_healthy,
    )


def _route(row: SettingRow) -> RouteItem:
    return _from({**row.spec, **_identity(row)}, RouteItem)


def _probe(row: SettingRow) -> ProbeItem:
    return ProbeItem(**_identity(row), match=_match(row.selection), **row.spec)


def _models(row: SettingRow) -> set[Model]:
    return {(target["provider"], target["model"]) for target in row.spec.get("targets", ())}


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


def outdated(now: datetime) -> list[str]:
    """The names of the gateways whose snapshot ``recompile`` would change."""
    return [gateway.name for gateway, _, _ in _changed(now)]


def _changed(now: datetime) -> list[tuple[Gateway, int, Compiled]]:
    """Each gateway that is to be told something new, with the generation that this makes."""
    compiler = Compiler(alive_rows(), now)
    heads = {head.gateway_id: head for head in GatewayConfig.objects.defer("spec")}
    changed: list[tuple[Gateway, int, Compiled]] = []
    for gateway in Gateway.objects.order_by("name"):
        made = compiler.compile(Target(gateway.name, gateway.labels), gateway.pk)
        head = heads.get(gateway.pk)
        if head is None or head.hash != made.hash:
            changed.append((gateway, head.generation + 1 if head else 1, made))
    return changed


def recompile(revision: int, now: datetime) -> list[str]:
    """Bring every gateway's snapshot up to date; returns the names of those that changed."""
    changed = _changed(now)
    common = {"revision": revision, "compiled_at": now}
    GatewayConfig.objects.bulk_create(
        [
            GatewayConfig(gateway=gateway, generation=generation, **made._asdict(), **common)
            for gateway, generation, made in changed
        ],
        update_conflicts=True,
        unique_fields=["gateway"],
        update_fields=[
            "generation",
            "hash",
            "items",
            "spec",
            "revision",
            "compiled_at",
            "may_shrink",
        ],
    )
    ConfigGeneration.objects.bulk_create(
        ConfigGeneration(gateway=gateway, generation=generation, hash=made.hash, **common)
        for gateway, generation, made in changed
    )
    return [gateway.name for gateway, _, _ in changed]
