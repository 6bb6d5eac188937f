"""What new events change beside their own tables: breakers, buckets, tasks, the minute rollup.

Invariant: it is given exactly the events that are new, each once, and every fold is commutative,
so the result depends on the set of events alone. Tables are locked in the order written here; tasks
are locked by the first of their writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from psycopg import AsyncConnection, AsyncCursor

from controlplane.domain.tasks import OutcomeRow, Task, merge, of_outcome
from controlplane.ingest.early import Early
from controlplane.ingest.rollup import Additions
from controlplane.ingest.rows import Item, Tables
from controlplane.models.observed import BudgetRow, StateRow, send_budgets, send_states
from controlplane.models.pool import named_sql
from controlplane.models.registry import stands_for_many
from controlplane.wire.events import Budget, Outcome, Transition

_SQL = Path(__file__).parent / "sql"


@dataclass(frozen=True, slots=True)
class Folded:
    """What is known after the pipeline: a cursor of ``told`` that says rows has put forward a
    breaker or a bucket; ``frozen`` gives the tasks with a word after their freeze.
    """

    told: list[AsyncCursor]
    frozen: AsyncCursor | None


async def fold(conn: AsyncConnection, new: Tables, added: Early[Additions]) -> Folded:
    """Fold inside the caller's transaction and pipeline; then call ``freeze``.

    ``added`` is what the new events add to the minute rollup.
    """
    told = await send_states(conn, _states(new.get("transition", ())))
    told += await send_budgets(conn, _budgets(new.get("budget_event", ())))
    frozen = await _fold_tasks(conn, tasks_of(new.get("outcome", ())))
    await added.value().send(conn)
    return Folded(told, frozen)


async def freeze(conn: AsyncConnection, folded: Folded) -> None:
    """Find the word that counts of the few tasks that have one after their freeze."""
    if folded.frozen is not None and (keys := await folded.frozen.fetchall()):
        given = [list(column) for column in zip(*keys, strict=True)]
        await conn.execute(named_sql(_SQL / "task_frozen.sql"), given)


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


async def _fold_tasks(
    conn: AsyncConnection, tasks: dict[tuple[int, str, str], Task]
) -> AsyncCursor | None:
    """Merge; the cursor gives the keys of tasks that have a word after their freeze."""
    if not tasks:
        return None
    rows = []
    for key in sorted(tasks):
        task = tasks[key]
        # The latest word, in force or not: which of them counts depends on what is stored already.
        first, explicit, implicit = task.first, max(task.words, default=None), task.implicit
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
    columns = [list(column) for column in zip(*rows, strict=True)]
    return await conn.execute(named_sql(_SQL / "task_upsert.sql"), columns)
