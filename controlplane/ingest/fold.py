"""What new events change beside their own tables: breakers, buckets, tasks, the minute rollup.

Invariant: it is given exactly the events that are new, each once, and every fold is commutative,
so the result depends on the set of events alone. Tables are locked in the order written here.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from psycopg import AsyncConnection, AsyncCursor

from controlplane.domain.tasks import OutcomeRow, Task, merge, of_outcome
from controlplane.ingest import rollup
from controlplane.ingest.rows import Item, Tables
from controlplane.models.observed import BudgetRow, StateRow, send_budgets, send_states
from controlplane.models.pool import named_sql
from controlplane.models.registry import stands_for_many
from controlplane.wire.events import Budget, Outcome, Transition

_TASK_UPSERT = Path(__file__).parent / "sql" / "task_upsert.sql"


async def fold(conn: AsyncConnection, new: Tables, budgets: list[Item]) -> list[AsyncCursor]:
    """Fold inside the caller's transaction and pipeline.

    After the pipeline, a cursor that says rows has put forward a breaker or a bucket.
    """
    told = await send_states(conn, _states(new.get("transition", ())))
    told += await send_budgets(conn, _budgets(budgets))
    await _fold_tasks(conn, tasks_of(new.get("outcome", ())))
    await rollup.add(conn, *rollup.counted(new))
    return told


def _states(items: Iterable[Item]) -> list[StateRow]:
    return [
        StateRow(
            gateway_id=item.origin.gateway_id,
            instance_id=item.origin.instance_id,
            circuit_id=item.circuit_id or 0,
            number=event.number,
            state=event.to_state,
            since=event.occurred_at,
            cause=event.cause,
            mode=event.mode,
            next_probe_at=event.next_probe_at,
            counters={
                "calls": event.counters.calls,
                "failures": event.counters.failures,
                "slow": event.counters.slow,
                "consecutive": event.counters.consecutive,
            },
            stuck=event.cause == "Stuck",
            reported_at=item.origin.received_at,
            report=False,
        )
        for item in items
        if isinstance(event := item.event, Transition) and not stands_for_many(item.circuit_id)
    ]


def _budgets(items: Iterable[Item]) -> list[BudgetRow]:
    return [
        BudgetRow(
            gateway_id=item.origin.gateway_id,
            instance_id=item.origin.instance_id,
            scope=event.scope,
            balance=event.balance,
            earned=event.earned,
            spent=event.spent,
            refused=event.refused,
            window_s=event.window_s,
            # A gateway's clock that runs ahead must not silence its later words.
            reported_at=min(event.occurred_at, item.origin.received_at),
        )
        for item in items
        if isinstance(event := item.event, Budget)
    ]


def tasks_of(items: Iterable[Item]) -> dict[tuple[int, str, str], Task]:
    """What these outcomes say of tasks with the header, by gateway, tenant and task."""
    found: dict[tuple[int, str, str], Task] = {}
    for item in items:
        event = item.event
        if not isinstance(event, Outcome) or not event.task:
            continue
        said = of_outcome(
            OutcomeRow(
                id=event.id,
                occurred_at=event.occurred_at,
                success=event.success,
                explicit=event.explicit,
                route=event.route,
                request=event.request,
                started_at=event.started_at,
                ended_at=event.ended_at,
            )
        )
        key = (item.origin.gateway_id, event.tenant, event.task)
        found[key] = merge(found[key], said) if key in found else said
    return found


async def _fold_tasks(conn: AsyncConnection, tasks: dict[tuple[int, str, str], Task]) -> None:
    if not tasks:
        return
    rows = []
    for key in sorted(tasks):
        task = tasks[key]
        first, explicit, implicit = task.first, task.explicit, task.implicit
        rows.append(
            (
                *key,
                first and first.at,
                first and first.request,
                first.route if first else "",
                task.last_ended_at,
                explicit and explicit.at,
                explicit and explicit.id,
                explicit and explicit.success,
                implicit and implicit.at,
                implicit and implicit.id,
                implicit and implicit.success,
            )
        )
    await conn.execute(named_sql(_TASK_UPSERT), [list(c) for c in zip(*rows, strict=True)])
