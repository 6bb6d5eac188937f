"""What an instance says it enforces, put beside what it was told.

Invariant: reports of one boot are ordered by ``seq`` under the lock of the instance's row; a lower
one changes nothing. The time of a verdict is the arrival of the first report that gave it, on the
control plane's clock. Only what a person would see changes wakes the wall.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
from psycopg import AsyncConnection
from psycopg.rows import dict_row

from controlplane.domain.circuit import Circuit
from controlplane.models.observed import BudgetRow, StateRow, fold_budgets, fold_states
from controlplane.models.pool import named_sql, pool
from controlplane.models.registry import circuit_ids, instance_row
from controlplane.notify import observed_changed
from controlplane.watch import local_overrides
from controlplane.watch.snapshot import Head, Item, items_of, read_head
from controlplane.wire.status import (
    BudgetStatus,
    CircuitStatus,
    InstanceStatus,
    ItemStatus,
    StatusReceipt,
)

_SQL = Path(__file__).parent / "sql"
_SHOWN = (
    "received_generation",
    "applied_generation",
    "applied_hash",
    "refused_generation",
    "epoch",
    "config_source",
)


async def accept_report(
    gateway_id: int, gateway: str, boot_id: UUID, report: InstanceStatus, now: datetime
) -> StatusReceipt:
    """Store a report and answer with the desired generation as it is now."""
    async with (await pool()).connection() as conn:
        # Outside the transaction: a new circuit is known to everybody at once.
        ids = await circuit_ids(conn, [_name(c) for c in report.circuits], now)
        async with conn.transaction():
            instance_id, _ = await instance_row(conn, gateway_id, boot_id, report.slot, now)
            head = await read_head(conn, gateway_id, gateway)
            visible = await _fold(conn, gateway_id, instance_id, report, ids, head, now)
    if visible:
        await observed_changed()
    return StatusReceipt(
        generation=head.generation,
        hash=head.hash,
        epoch=head.epoch,
        server_time=head.server_time,
        instances=head.instances,
    )


async def _fold(
    conn: AsyncConnection,
    gateway_id: int,
    instance_id: int,
    report: InstanceStatus,
    ids: dict[Circuit, int],
    head: Head,
    now: datetime,
) -> bool:
    """Write the report if it is the newest; True when something visible changed."""
    before = await _row(conn, "instance_for_report.sql", instance=instance_id)
    if report.seq <= before["status_seq"]:
        return False
    items, new_verdicts = _items(report, before["items"], now)
    states = [_state(c, gateway_id, instance_id, ids, now) for c in report.circuits]
    moved = await _moved(conn, instance_id, report)
    moved |= await local_overrides.keep(conn, gateway_id, report.slot, report.local_overrides, now)
    await fold_states(conn, states)
    await fold_budgets(conn, [_budget(b, gateway_id, instance_id, now) for b in report.budgets])
    await _deliver(conn, gateway_id, instance_id, report, new_verdicts, before, head, now)
    await _run(
        conn,
        "put_report.sql",
        instance=instance_id,
        now=now,
        items=msgspec.json.encode(items).decode(),
        spool=msgspec.json.encode(report.spool).decode(),
        clock=msgspec.json.encode(report.clock).decode(),
        capabilities=msgspec.json.encode(report.capabilities).decode(),
        **{name: getattr(report, name) for name in _COLUMNS},
    )
    changed = any(getattr(report, name) != before[name] for name in _SHOWN)
    first = before["status_seq"] == 0
    left = report.goodbye and not before["has_left"]
    return changed or first or left or moved or bool(new_verdicts)


_COLUMNS = (
    "seq",
    "version",
    "started_at",
    "epoch",
    "received_generation",
    "applied_generation",
    "applied_hash",
    "applied_at",
    "refused_generation",
    "refused_reason",
    "config_source",
    "goodbye",
)


def _items(
    report: InstanceStatus, before: list[dict[str, Any]], now: datetime
) -> tuple[list[dict[str, Any]], list[ItemStatus]]:
    """The items to keep, each with when its verdict was first heard; and those that are news."""
    heard = {(i["uid"], i["generation"], i["verdict"]): i.get("acknowledged_at") for i in before}
    kept, news = [], []
    for item in report.items:
        at = heard.get((item.uid, item.generation, item.verdict))
        # A first effect is news too: the evidence beside an old verdict.
        if at is None or (item.first_effect_at and _had_no_effect(item, before)):
            news.append(item)
        kept.append({**msgspec.to_builtins(item), "acknowledged_at": at or now.isoformat()})
    return kept, news


def _had_no_effect(item: ItemStatus, before: list[dict[str, Any]]) -> bool:
    return any(
        old["uid"] == item.uid and old["generation"] == item.generation
        for old in before
        if not old.get("first_effect_at")
    )


async def _deliver(
    conn: AsyncConnection,
    gateway_id: int,
    instance_id: int,
    report: InstanceStatus,
    new_verdicts: list[ItemStatus],
    before: dict[str, Any],
    head: Head,
    now: datetime,
) -> None:
    """Keep what became of each item; an item without a verdict yet is delivered, no more."""
    rows = [_judged(item) for item in new_verdicts]
    told = {(item.uid, item.generation) for item in report.items}
    newly_received = report.received_generation != before["received_generation"]
    if newly_received and (report.epoch, report.received_generation) == (
        head.epoch,
        head.generation,
    ):
        assert head.spec is not None
        rows += [
            _delivered(kind, item)
            for kind, item in items_of(head.spec).by_kind()
            if (item.uid, item.generation) not in told
        ]
    values = {"gateway": gateway_id, "instance": instance_id, "now": now}
    if rows:
        document = msgspec.json.encode(rows).decode()
        await _run(conn, "put_deliveries.sql", items=document, **values)
    if report.applied_generation != before["applied_generation"] or new_verdicts:
        held = [f"{item.uid}/{item.generation}" for item in report.items]
        await _run(conn, "lift_deliveries.sql", held=held, **values)


def _judged(item: ItemStatus) -> dict[str, Any]:
    """A verdict as a row; every column is named, because absent would be NULL."""
    columns = ("kind", "name", "uid", "generation", "verdict", "reason", "message", "field_path")
    times = ("applied_at", "first_effect_at")
    return {column: getattr(item, column) for column in (*columns, *times)}


def _delivered(kind: str, item: Item) -> dict[str, Any]:
    """An item that has arrived and of which nothing is said yet."""
    said = {"verdict": "", "reason": "", "message": "", "field_path": ""}
    return {"kind": kind, "name": item.name, "uid": item.uid, "generation": item.generation} | said


def _name(circuit: CircuitStatus) -> Circuit:
    return Circuit(circuit.provider, circuit.model, circuit.region)


def _state(
    circuit: CircuitStatus,
    gateway_id: int,
    instance_id: int,
    ids: dict[Circuit, int],
    now: datetime,
) -> StateRow:
    return StateRow(
        gateway_id=gateway_id,
        instance_id=instance_id,
        circuit_id=ids[_name(circuit)],
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


def _budget(budget: BudgetStatus, gateway_id: int, instance_id: int, now: datetime) -> BudgetRow:
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


async def _moved(conn: AsyncConnection, instance_id: int, report: InstanceStatus) -> bool:
    """True when a breaker differs from what is stored in anything that the wall shows.

    What is stored and not reported any more is taken away: a target that left the configuration
    would stand on the wall for ever.
    """
    cursor = await conn.execute(named_sql(_SQL / "circuits_before.sql"), {"instance": instance_id})
    before = {tuple(row[:3]): tuple(row[3:]) for row in await cursor.fetchall()}
    faces = {tuple(_name(c)): _face(c) for c in report.circuits}
    gone = [name for name in before if name not in faces] if faces else []
    if gone:
        await _run(
            conn,
            "forget_circuits.sql",
            instance=instance_id,
            sent_at=report.sent_at,
            providers=[name[0] for name in gone],
            models=[name[1] for name in gone],
            regions=[name[2] for name in gone],
        )
    return bool(gone) or any(before.get(name) != face for name, face in faces.items())


def _face(c: CircuitStatus) -> tuple[object, ...]:
    """In the order of ``circuits_before.sql``."""
    keys = (c.keys_ready, c.keys_total, c.keys_note)
    shown = (c.number, c.state, c.mode, c.override_uid, c.would_be or "", c.ramp_percent, c.stuck)
    return (*shown, *keys)


async def _row(conn: AsyncConnection, file: str, **values: object) -> dict[str, Any]:
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(named_sql(_SQL / file), values)
        row = await cursor.fetchone()
    assert row is not None
    return row


async def _run(conn: AsyncConnection, file: str, **values: object) -> None:
    await conn.execute(named_sql(_SQL / file), values)
