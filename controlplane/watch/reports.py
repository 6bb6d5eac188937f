"""A group of status reports, put beside what the instances were told, in one transaction.

Invariant: reports of one boot are ordered by ``seq`` under the lock of the instance's row; a lower
one changes nothing. The time of a verdict is that of the first report that gave it, on the control
plane's clock. Only what a person would see changes wakes the wall.

A transaction is one pipeline: a dozen statements in four round trips, because with both halves on
few cores each trip costs two changes of the running process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import DictRow, dict_row

from controlplane.domain.circuit import Circuit
from controlplane.domain.sync import SILENT_RED
from controlplane.errors import NotFound
from controlplane.models.observed import fold_budgets, fold_states
from controlplane.models.pool import named_sql
from controlplane.models.registry import Boot, circuit_ids, instance_ids
from controlplane.watch import local_overrides
from controlplane.watch.report_rows import (
    Before,
    budget_row,
    circuit_of,
    delivered,
    face_of,
    judged,
    kept_items,
    report_row,
    state_row,
)
from controlplane.watch.snapshot import items_of
from controlplane.wire.status import InstanceStatus, StatusReceipt

_SQL = Path(__file__).parent / "sql"
_SHOWN = (
    "received_generation",
    "applied_generation",
    "applied_hash",
    "checkpointed_generation",
    "refused_generation",
    "epoch",
    "config_source",
)


class InstanceGone(Exception):
    """An instance of the group is not there any more: it was silent for longer than is kept."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """One report as it came through the door."""

    gateway_id: int
    gateway: str
    boot_id: UUID
    report: InstanceStatus


@dataclass(frozen=True, slots=True)
class Stored:
    """Answers by gateway, and whether a person would see a change."""

    receipts: dict[int, StatusReceipt]
    visible: bool
    forgotten: tuple[int, str, str] | None = None
    """A gateway, an epoch, and why its database must be older than what an instance was told."""


@dataclass(frozen=True, slots=True)
class _Report:
    gateway_id: int
    instance_id: int
    report: InstanceStatus


async def store(conn: AsyncConnection, group: list[Arrived], now: datetime) -> Stored:
    """Write what is new in a group of reports.

    Raises ``InstanceGone``, ``NotFound``, ``psycopg.Error``.
    """
    newest: dict[tuple[int, UUID], Arrived] = {}
    for one in group:
        held = newest.get((one.gateway_id, one.boot_id))
        if held is None or one.report.seq > held.report.seq:
            newest[one.gateway_id, one.boot_id] = one
    # Outside the transaction: a new circuit or instance is known to everybody at once.
    named = [circuit_of(c) for one in newest.values() for c in one.report.circuits]
    ids = await circuit_ids(conn, named, now)
    boots = [Boot(one.gateway_id, one.boot_id, one.report.slot, now) for one in newest.values()]
    known = await instance_ids(conn, boots, now)
    reports = [_Report(one.gateway_id, known[key], one.report) for key, one in newest.items()]
    async with conn.pipeline(), conn.transaction():
        fold = _Fold(conn, ids, now)
        visible = await fold.run(reports)
        receipts = await _receipts(conn, {one.gateway_id: one.gateway for one in group})
    epochs = {one.epoch for one in receipts.values()}
    told = next((one for one in fold.told_more if one[1] in epochs), None)
    return Stored(receipts, visible, told)


async def _receipts(conn: AsyncConnection, gateways: dict[int, str]) -> dict[int, StatusReceipt]:
    found = {}
    for row in await (await _heads(conn, gateways)).fetchall():
        if row["generation"] is None:
            raise NotFound(
                f"Gateway {gateways[row['id']]} has no configuration yet; run manage.py bootstrap.",
                code="not_compiled",
            )
        found[row["id"]] = StatusReceipt(
            generation=row["generation"],
            hash=row["hash"],
            epoch=row["epoch"],
            server_time=row["server_time"],
            instances=max(1, row["instances"]),
        )
    return found


async def _heads(conn: AsyncConnection, gateways: Iterable[int]) -> AsyncCursor[DictRow]:
    live_s = SILENT_RED.total_seconds()
    return await _ask(conn, "heads.sql", gateways=list(gateways), live_s=live_s)


class _Fold:
    """One transaction's work."""

    def __init__(self, conn: AsyncConnection, ids: dict[Circuit, int], now: datetime) -> None:
        self._conn = conn
        self._ids = ids
        self._now = now
        self.told_more: list[tuple[int, str, str]] = []
        """Gateway, epoch and finding, of every report that knows a receipt which is not here."""

    async def run(self, reports: list[_Report]) -> bool:
        """Write the reports that are the newest of their boots; True when something shows."""
        instances = [one.instance_id for one in reports]
        held = await _ask(self._conn, "instances_for_reports.sql", instances=instances)
        circuits = await _ask(self._conn, "circuits_before.sql", instances=instances)
        before: dict[int, Before] = {row["id"]: row for row in await held.fetchall()}
        if len(before) < len(instances):
            raise InstanceGone
        for one in reports:
            told, highest = one.report.spool.acknowledged, before[one.instance_id]["highest_seq"]
            if told > highest:
                why = f"{one.report.slot} was given the receipt of batch {told}; here is {highest}"
                self.told_more.append((one.gateway_id, one.report.epoch, why))
        fresh = [r for r in reports if r.report.seq > before[r.instance_id]["status_seq"]]
        if not fresh:
            return False
        visible = await self._moved(fresh, await circuits.fetchall())
        for one in fresh:
            forced, slot = one.report.local_overrides, one.report.slot
            visible |= await local_overrides.keep(
                self._conn, one.gateway_id, slot, forced, self._now
            )
        await self._fold_observed(fresh)
        kept = {
            one.instance_id: kept_items(one.report, before[one.instance_id]["items"], self._now)
            for one in fresh
        }
        await self._deliver(fresh, before, {i: news for i, (_, news) in kept.items()})
        rows = [report_row(one.instance_id, one.report, kept[one.instance_id][0]) for one in fresh]
        await self._run("put_report.sql", rows)
        return visible or any(
            _differs(one.report, before[one.instance_id]) or bool(kept[one.instance_id][1])
            for one in fresh
        )

    async def _fold_observed(self, fresh: list[_Report]) -> None:
        states, budgets = [], []
        for one in fresh:
            where = {"gateway_id": one.gateway_id, "instance_id": one.instance_id}
            states += [
                state_row(c, self._ids[circuit_of(c)], self._now, **where)
                for c in one.report.circuits
            ]
            budgets += [budget_row(b, self._now, **where) for b in one.report.budgets]
        await fold_states(self._conn, states)
        await fold_budgets(self._conn, budgets)

    async def _moved(self, fresh: list[_Report], circuits: list[DictRow]) -> bool:
        """True when a breaker differs from what is stored in anything that the wall shows.

        What is stored and not reported any more is taken away: a target that left the
        configuration would stand on the wall for ever.
        """
        stored: dict[int, dict[Any, Any]] = defaultdict(dict)
        for instance, provider, model, region, *face in (row.values() for row in circuits):
            stored[instance][provider, model, region] = tuple(face)
        moved = False
        for one in fresh:
            faces = {tuple(circuit_of(c)): face_of(c) for c in one.report.circuits}
            known = stored[one.instance_id]
            gone = [name for name in known if name not in faces] if faces else []
            if gone:
                await self._forget(one, gone)
            moved |= bool(gone) or any(known.get(name) != face for name, face in faces.items())
        return moved

    async def _forget(self, one: _Report, gone: list[tuple[str, str, str]]) -> None:
        values = {
            "instance": one.instance_id,
            "sent_at": one.report.sent_at,
            "providers": [name[0] for name in gone],
            "models": [name[1] for name in gone],
            "regions": [name[2] for name in gone],
        }
        await self._conn.execute(named_sql(_SQL / "forget_circuits.sql"), values)

    async def _deliver(
        self, fresh: list[_Report], before: dict[int, Before], news: dict[int, list[Any]]
    ) -> None:
        """Keep what became of each item; an item without a verdict yet is delivered, no more."""
        rows: list[dict[str, Any]] = []
        lifts: list[dict[str, Any]] = []
        arrived = [r for r in fresh if _newly_received(r.report, before[r.instance_id])]
        specs = await self._specs(arrived)
        for one in fresh:
            where = {"gateway_id": one.gateway_id, "instance_id": one.instance_id}
            rows += [where | judged(item) for item in news[one.instance_id]]
            told = {(item.uid, item.generation) for item in one.report.items}
            rows += [
                where | delivered(kind, item)
                for kind, item in specs.get(one.instance_id, [])
                if (item.uid, item.generation) not in told
            ]
            was = before[one.instance_id]["applied_generation"]
            if one.report.applied_generation != was or news[one.instance_id]:
                held = [f"{item.uid}/{item.generation}" for item in one.report.items]
                lifts.append({"instance_id": one.instance_id, "held": held})
        await self._run("put_deliveries.sql", rows)
        await self._run("lift_deliveries.sql", lifts)

    async def _specs(self, arrived: list[_Report]) -> dict[int, list[Any]]:
        """The items of the present generation, for the instances that have just received it."""
        if not arrived:
            return {}
        gateways = list({one.gateway_id for one in arrived})
        told = await _heads(self._conn, gateways)
        specs = await _ask(self._conn, "specs.sql", gateways=gateways)
        heads = {row["id"]: row for row in await told.fetchall()}
        current = [
            one
            for one in arrived
            if (one.report.epoch, one.report.received_generation)
            == (heads[one.gateway_id]["epoch"], heads[one.gateway_id]["generation"])
        ]
        wanted = {one.gateway_id for one in current}
        items = {
            row["gateway_id"]: items_of(row["spec"].encode()).by_kind()
            for row in await specs.fetchall()
            if row["gateway_id"] in wanted
        }
        return {one.instance_id: items[one.gateway_id] for one in current}

    async def _run(self, file: str, rows: list[dict[str, Any]]) -> None:
        if rows:
            document = msgspec.json.encode(rows).decode()
            values = {"rows": document, "now": self._now}
            await self._conn.execute(named_sql(_SQL / file), values)


def _newly_received(report: InstanceStatus, before: Before) -> bool:
    return bool(report.received_generation != before["received_generation"])


def _differs(report: InstanceStatus, before: Before) -> bool:
    first = before["status_seq"] == 0
    left = report.goodbye and not before["has_left"]
    return first or left or any(getattr(report, name) != before[name] for name in _SHOWN)


async def _ask(conn: AsyncConnection, file: str, **values: object) -> AsyncCursor[DictRow]:
    """A statement on its way; its rows are waited for when they are fetched."""
    cursor = conn.cursor(row_factory=dict_row)
    return await cursor.execute(named_sql(_SQL / file), values)
