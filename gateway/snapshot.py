"""A received snapshot, read item by item, so that one item that cannot be read costs no other.

Invariant: every item of the snapshot becomes exactly one ``Read``, either with a value or with the
verdict ``SchemaInvalid`` and the path of the field; the bytes are kept as they came for the disk.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct

from controlplane.wire.desired import (
    BudgetItem,
    OverrideItem,
    PolicyItem,
    PriceItem,
    ProbeItem,
    RouteItem,
)
from controlplane.wire.status import ConfigSource

Item = TypeVar("Item", PolicyItem, BudgetItem, OverrideItem, RouteItem, ProbeItem)
ItemKind: TypeAlias = Literal["Policy", "Budget", "Override", "Route", "Probe"]

log = logging.getLogger(__name__)

_FIELD = re.compile(r"`\$\.?([^`]*)`\s*$")


SHRINKS_BY = 5
"""From so many items fewer on, and less than half, a snapshot of another epoch needs a word."""


class SnapshotRefused(ValueError):
    """The snapshot as a whole cannot be used; what is in force stays. The text says why.

    ``of``: its epoch, generation and hash, as far as they could be read. ``for_good``: it came
    whole, so the same one again would be refused again.
    """

    def __init__(
        self, why: str, of: tuple[str, int, str] = ("", 0, ""), for_good: bool = False
    ) -> None:
        super().__init__(why)
        self.of = of
        self.for_good = for_good


class _RawSpec(Struct, frozen=True, kw_only=True):
    policies: list[Raw] = []
    budgets: list[Raw] = []
    overrides: list[Raw] = []
    routes: list[Raw] = []
    prices: list[Raw] = []
    probes: list[Raw] = []


class _RawSnapshot(Struct, frozen=True, kw_only=True):
    gateway: str
    epoch: str
    generation: int
    hash: str
    items: int
    server_time: datetime
    instances: int
    spec: Raw
    remaining_s: dict[str, float] = {}
    may_shrink: bool = False


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
    probes: tuple[Read[ProbeItem], ...] = ()
    items: int = 0
    may_shrink: bool = False

    def aged(self, seconds: float) -> Received:
        """The same after so long on the way: what remains of its overrides and probes is less."""
        left = {uid: max(0.0, told - seconds) for uid, told in self.remaining_s.items()}
        return replace(self, remaining_s=left)


@dataclass(frozen=True, slots=True)
class InForce:
    """Which configuration is in force and where it came from. Generation 0: the file's alone."""

    epoch: str = ""
    generation: int = 0
    hash: str = ""
    applied_at: datetime | None = None
    source: ConfigSource = "Bootstrap"
    items: int = 0

    @classmethod
    def of(cls, received: Received, at: datetime, source: ConfigSource) -> InForce:
        """What stands once ``received`` was put in force."""
        known = (received.epoch, received.generation, received.hash)
        return cls(*known, at, source, received.items)


def read(raw: bytes, gateway: str) -> Received:
    """Read a snapshot for ``gateway``. Raises ``SnapshotRefused`` when it is none or not whole."""
    try:
        found = msgspec.json.decode(raw, type=_RawSnapshot)
        spec = msgspec.json.decode(found.spec, type=_RawSpec)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SnapshotRefused(f"not a snapshot: {error}") from error
    of = (found.epoch, found.generation, found.hash)
    if found.gateway != gateway:
        raise SnapshotRefused(f"it is for gateway {found.gateway!r}, this is {gateway!r}")
    lists = (spec.policies, spec.budgets, spec.overrides, spec.routes, spec.prices, spec.probes)
    held = sum(map(len, lists))
    whole = hashlib.sha256(found.spec).hexdigest() == found.hash
    if held != found.items:
        raise SnapshotRefused(f"it announces {found.items} items and holds {held}", of, whole)
    if not whole:
        raise SnapshotRefused("its hash is not that of its spec: it was changed on the way", of)
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
        probes=tuple(_items("Probe", spec.probes, ProbeItem)),
        items=held,
        may_shrink=found.may_shrink,
    )


def as_before(received: Received, last_good: bytes) -> Received:
    """The snapshot as if it held what was in force before it (``Accepted.last_good``).

    Read item by item like a snapshot: what cannot be read is judged so, and costs no other.
    """
    try:
        spec = msgspec.json.decode(last_good, type=_RawSpec)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        log.warning("the last good forms on the disk are not used: %s", error)
        spec = _RawSpec()
    return replace(
        received,
        policies=tuple(_items("Policy", spec.policies, PolicyItem)),
        budgets=tuple(_items("Budget", spec.budgets, BudgetItem)),
        routes=tuple(_items("Route", spec.routes, RouteItem)),
        overrides=tuple(_items("Override", spec.overrides, OverrideItem)),
    )


def check_shrink(received: Received, ours: InForce) -> None:
    """Refuse to be wiped by a database that does not know us.

    Within an epoch every item that goes was taken away by an audited change. Another epoch is a
    restored or a new database: when it holds less than half of what runs here, somebody has to say
    that this is meant. Raises ``SnapshotRefused``.
    """
    if received.epoch == ours.epoch or received.may_shrink:
        return
    lost = ours.items - received.items
    if lost >= SHRINKS_BY and received.items * 2 < ours.items:
        raise SnapshotRefused(
            f"another epoch has {received.items} items where {ours.items} are in force;"
            " if it may shrink, an admin says so: switchgear allow-shrink GATEWAY --reason …",
            (received.epoch, received.generation, received.hash),
            for_good=True,
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
