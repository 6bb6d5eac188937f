"""A received snapshot, read item by item, so that one item that cannot be read costs no other.

Invariant: every item of the snapshot becomes exactly one ``Read``, either with a value or with the
verdict ``SchemaInvalid`` and the path of the field; the bytes are kept as they came for the disk.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct

from controlplane.wire.desired import BudgetItem, OverrideItem, PolicyItem, PriceItem, RouteItem
from controlplane.wire.status import ConfigSource

Item = TypeVar("Item", PolicyItem, BudgetItem, OverrideItem, RouteItem)
ItemKind: TypeAlias = Literal["Policy", "Budget", "Override", "Route"]

log = logging.getLogger(__name__)

_FIELD = re.compile(r"`\$\.?([^`]*)`\s*$")


class SnapshotRefused(ValueError):
    """The snapshot as a whole cannot be used; what is in force stays. The text says why."""


class _RawSpec(Struct, frozen=True, kw_only=True):
    policies: list[Raw] = []
    budgets: list[Raw] = []
    overrides: list[Raw] = []
    routes: list[Raw] = []
    prices: list[Raw] = []


class _RawSnapshot(Struct, frozen=True, kw_only=True):
    gateway: str
    epoch: str
    generation: int
    hash: str
    items: int
    server_time: datetime
    instances: int
    spec: _RawSpec
    remaining_s: dict[str, float] = {}


class _Head(Struct, frozen=True, kw_only=True):
    """The least that a verdict on an item has to name."""

    uid: str = ""
    name: str = ""
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Read(Generic[Item]):
    """One item: its identity, and its value or why there is none."""

    kind: ItemKind
    uid: str
    name: str
    generation: int
    value: Item | None
    message: str = ""
    field_path: str = ""


@dataclass(frozen=True, slots=True)
class Received:
    """One whole snapshot. ``raw`` is the JSON as it came."""

    raw: bytes
    epoch: str
    generation: int
    hash: str
    server_time: datetime
    instances: int
    remaining_s: dict[str, float]
    policies: tuple[Read[PolicyItem], ...]
    budgets: tuple[Read[BudgetItem], ...]
    overrides: tuple[Read[OverrideItem], ...]
    routes: tuple[Read[RouteItem], ...]
    prices: tuple[PriceItem, ...] = ()


@dataclass(frozen=True, slots=True)
class InForce:
    """Which configuration is in force and where it came from. Generation 0: the file's alone."""

    epoch: str = ""
    generation: int = 0
    hash: str = ""
    applied_at: datetime | None = None
    source: ConfigSource = "Bootstrap"


def read(raw: bytes, gateway: str) -> Received:
    """Read a snapshot for ``gateway``. Raises ``SnapshotRefused`` when it is none or not whole."""
    try:
        found = msgspec.json.decode(raw, type=_RawSnapshot)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SnapshotRefused(f"not a snapshot: {error}") from error
    if found.gateway != gateway:
        raise SnapshotRefused(f"it is for gateway {found.gateway!r}, this is {gateway!r}")
    spec = found.spec
    lists = (spec.policies, spec.budgets, spec.overrides, spec.routes, spec.prices)
    held = sum(map(len, lists))
    if held != found.items:
        raise SnapshotRefused(f"it announces {found.items} items and holds {held}")
    return Received(
        raw=raw,
        epoch=found.epoch,
        generation=found.generation,
        hash=found.hash,
        server_time=found.server_time,
        instances=found.instances,
        remaining_s=found.remaining_s,
        policies=tuple(_items("Policy", spec.policies, PolicyItem)),
        budgets=tuple(_items("Budget", spec.budgets, BudgetItem)),
        overrides=tuple(_items("Override", spec.overrides, OverrideItem)),
        routes=tuple(_items("Route", spec.routes, RouteItem)),
        prices=tuple(_prices(spec.prices)),
    )


def _prices(raws: list[Raw]) -> Iterator[PriceItem]:
    """The prices that can be read. Without one a target is refused under a ceiling, not free."""
    for raw in raws:
        try:
            yield msgspec.json.decode(raw, type=PriceItem)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            log.warning("a price of the snapshot is not used: %s", error)


def _items(kind: ItemKind, raws: list[Raw], of: type[Item]) -> Iterator[Read[Item]]:
    for index, raw in enumerate(raws):
        try:
            value = msgspec.json.decode(raw, type=of)
            if not value.uid or not value.name:
                raise msgspec.ValidationError("Expected a uid and a name - at `$.uid`")
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            yield _unread(kind, index, raw, str(error))
        else:
            yield Read(kind, value.uid, value.name, value.generation, value)


def _unread(kind: ItemKind, index: int, raw: Raw, error: str) -> Read[Item]:
    try:
        head = msgspec.json.decode(raw, type=_Head)
    except (msgspec.DecodeError, UnicodeDecodeError):
        head = _Head()
    place = f"{kind.lower()}[{index}]"
    found = _FIELD.search(error)
    return Read(
        kind,
        uid=head.uid[:200] or place,
        name=head.name[:200] or place,
        generation=max(0, head.generation),
        value=None,
        message=error[:1000],
        field_path=found.group(1)[:200] if found else "",
    )
