"""One status report as rows: what each part becomes in its table.

Invariant: pure; every column is named, because absent would be NULL.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from controlplane.domain.circuit import Circuit
from controlplane.models.observed import BudgetRow, StateRow
from controlplane.watch.snapshot import Item
from controlplane.wire.status import BudgetStatus, CircuitStatus, InstanceStatus, ItemStatus

Before: TypeAlias = dict[str, Any]
"""An instance's row as ``instances_for_reports.sql`` gives it."""

_PLAIN = (
    "seq",
    "version",
    "started_at",
    "epoch",
    "received_generation",
    "applied_generation",
    "applied_hash",
    "applied_at",
    "checkpointed_generation",
    "refused_generation",
    "refused_reason",
    "config_source",
    "spool",
    "clock",
    "capabilities",
    "goodbye",
)
_VERDICT = ("kind", "name", "uid", "generation", "verdict", "reason", "message", "field_path")


def report_row(
    instance_id: int, report: InstanceStatus, items: list[dict[str, Any]]
) -> dict[str, Any]:
    """The instance's row after the report."""
    plain = {name: getattr(report, name) for name in _PLAIN}
    return {"instance_id": instance_id, "items": items, **plain}


def kept_items(
    report: InstanceStatus, before: list[dict[str, Any]], now: datetime
) -> tuple[list[dict[str, Any]], list[ItemStatus]]:
    """The items to keep, each with when its verdict was first heard; and those that are news.

    One that is named twice is what is said of it last.
    """
    heard = {(i["uid"], i["generation"], i["verdict"]): i for i in before}
    kept, news = [], []
    for item in {(item.uid, item.generation): item for item in report.items}.values():
        old = heard.get((item.uid, item.generation, item.verdict))
        # A first effect is news too: the evidence beside an old verdict.
        if old is None or (item.first_effect_at and not old.get("first_effect_at")):
            news.append(item)
        at = old.get("acknowledged_at") if old else None
        kept.append({**msgspec.to_builtins(item), "acknowledged_at": at or now.isoformat()})
    return kept, news


def judged(item: ItemStatus) -> dict[str, Any]:
    """A verdict as a row."""
    columns = (*_VERDICT, "applied_at", "first_effect_at")
    return {column: getattr(item, column) for column in columns}


def delivered(kind: str, item: Item) -> dict[str, Any]:
    """An item that has arrived and of which nothing is said yet."""
    said = {"verdict": "", "reason": "", "message": "", "field_path": ""}
    return {"kind": kind, "name": item.name, "uid": item.uid, "generation": item.generation} | said


def circuit_of(circuit: CircuitStatus) -> Circuit:
    """The circuit's name."""
    return Circuit(circuit.provider, circuit.model, circuit.region)


def state_row(
    circuit: CircuitStatus, circuit_id: int, now: datetime, *, gateway_id: int, instance_id: int
) -> StateRow:
    """A breaker."""
    return StateRow(
        gateway_id=gateway_id,
        instance_id=instance_id,
        circuit_id=circuit_id,
        number=circuit.number,
        state=circuit.state,
        since=circuit.since,
        cause=circuit.cause,
        mode=circuit.mode,
        reported_at=now,
        report=True,
        next_probe_at=circuit.next_probe_at,
        override_uid=circuit.override_uid,
        would_be=circuit.would_be or "",
        ramp_percent=circuit.ramp_percent,
        stuck=circuit.stuck,
        keys_ready=circuit.keys_ready,
        keys_total=circuit.keys_total,
        keys_note=circuit.keys_note,
    )


def budget_row(
    budget: BudgetStatus, now: datetime, *, gateway_id: int, instance_id: int
) -> BudgetRow:
    """A bucket."""
    return BudgetRow(
        gateway_id=gateway_id,
        instance_id=instance_id,
        scope=budget.scope,
        balance=budget.balance,
        earned=budget.earned,
        spent=budget.spent,
        refused=budget.refused,
        window_s=budget.window_s,
        reported_at=now,
    )


def face_of(c: CircuitStatus) -> tuple[object, ...]:
    """What the wall shows of a breaker, in the order of ``circuits_before.sql``."""
    keys = (c.keys_ready, c.keys_total, c.keys_note)
    shown = (c.number, c.state, c.mode, c.override_uid, c.would_be or "", c.ramp_percent, c.stuck)
    return (*shown, *keys)
