"""From rows to what one gateway is told: those that are about it, narrowest first.

Invariant: pure and total; the same rows give the same lists whatever their order, so the content's
hash changes only when what the gateway must do changes. Time plays no part: an override leaves when
its row is ended, not when a second passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from controlplane.domain.overrides import OverrideRow
from controlplane.domain.precedence import Precedence, Selection, precedence


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A policy, a budget (``level`` set), a route or a probe, with what is its own in ``spec``."""

    uid: str
    name: str
    generation: int
    selection: Selection
    spec: Mapping[str, Any]
    level: str = ""

    @property
    def precedence(self) -> Precedence:
        """Narrowest first."""
        return precedence(self.selection, self.name)


@dataclass(frozen=True, slots=True)
class Rows:
    """All desired state that is alive (overrides: not ended)."""

    policies: tuple[SettingRow, ...] = ()
    budgets: tuple[SettingRow, ...] = ()
    overrides: tuple[OverrideRow, ...] = ()
    routes: tuple[SettingRow, ...] = ()
    probes: tuple[SettingRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Target:
    """The gateway that is compiled for."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)


_Row = TypeVar("_Row", SettingRow, OverrideRow)


def compile_rows(rows: Rows, gateway: Target) -> Rows:
    """The rows that are about ``gateway``, each list in order of precedence."""
    return Rows(
        policies=_about(rows.policies, gateway),
        budgets=_about(rows.budgets, gateway),
        overrides=_about([o for o in rows.overrides if o.ended_at is None], gateway),
        routes=_about(rows.routes, gateway),
        probes=_about(rows.probes, gateway),
    )


def _about(rows: Iterable[_Row], gateway: Target) -> tuple[_Row, ...]:
    found = [r for r in rows if r.selection.covers_gateway(gateway.name, gateway.labels)]
    return tuple(sorted(found, key=lambda row: row.precedence))
