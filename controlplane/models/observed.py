"""Fold what instances say of their breakers and buckets into one row each.

Invariant: a row only moves forward. Of two words about one breaker of one instance the one with the
higher transition number wins, and between reports of the same number the later report; so batches
and reports may arrive in any order, any number of times, and the row is the same (design 4.7, 5.1).
Rows are per boot: a dead boot's late word moves its own row, which nobody reads as the present.
Callers hold the instance's row (or nothing) first; rows are locked in the order of their circuits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import msgspec
from psycopg import AsyncConnection, AsyncCursor


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRow:
    """One breaker of one instance, from a transition (``report`` false) or a status report.

    Only transitions know ``counters``; only reports know what stands beside state and mode.
    ``reported_at`` is on the control plane's clock: when the batch or the report was received.
    """

    gateway_id: int
    instance_id: int
    circuit_id: int
    number: int
    state: str
    since: datetime
    cause: str
    mode: str
    reported_at: datetime
    report: bool
    next_probe_at: datetime | None = None
    counters: dict[str, int] | None = None
    override_uid: str = ""
    would_be: str = ""
    ramp_percent: int = 100
    stuck: bool = False
    keys_ready: int | None = None
    keys_total: int | None = None
    keys_note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRow:
    """One bucket of one instance. ``reported_at`` is on the control plane's clock."""

    gateway_id: int
    instance_id: int
    scope: str
    balance: int
    earned: int
    spent: int
    refused: int
    window_s: float
    reported_at: datetime


_RECORD = """
jsonb_to_recordset(%s::jsonb) AS r(
    gateway_id int, instance_id bigint, circuit_id bigint, number bigint, state text,
    since timestamptz, cause text, mode text, reported_at timestamptz, next_probe_at timestamptz,
    counters jsonb, override_uid text, would_be text, ramp_percent smallint, stuck boolean,
    keys_ready int, keys_total int, keys_note text)
"""
_INSERT = """
INSERT INTO circuit_state AS s (
    gateway_id, instance_id, circuit_id, number, state, since, cause, mode, reported_at,
    next_probe_at, counters, override_uid, would_be, ramp_percent, stuck,
    keys_ready, keys_total, keys_note)
SELECT gateway_id, instance_id, circuit_id, number, state, since, cause, mode, reported_at,
    next_probe_at, COALESCE(counters, '{}'), override_uid, would_be, ramp_percent, stuck,
    keys_ready, keys_total, keys_note
FROM """
_ON_CONFLICT = """
ORDER BY gateway_id, instance_id, circuit_id
ON CONFLICT (gateway_id, instance_id, circuit_id) DO UPDATE SET
"""
# What happened to a breaker before a report that had it no more is history (watch/reports).
_NOT_GONE = """
WHERE NOT EXISTS (
    SELECT FROM circuit_gone g
    WHERE g.instance_id = r.instance_id AND g.circuit_id = r.circuit_id AND g.at > r.since)
"""
# A transition of the number that a report has told already adds only what reports do not know.
_FOLD_TRANSITIONS = (
    f"{_INSERT}{_RECORD}{_NOT_GONE}{_ON_CONFLICT}"
    + """
    number = EXCLUDED.number,
    counters = EXCLUDED.counters,
    state = CASE WHEN EXCLUDED.number > s.number THEN EXCLUDED.state ELSE s.state END,
    since = CASE WHEN EXCLUDED.number > s.number THEN EXCLUDED.since ELSE s.since END,
    cause = CASE WHEN EXCLUDED.number > s.number THEN EXCLUDED.cause ELSE s.cause END,
    mode = CASE WHEN EXCLUDED.number > s.number THEN EXCLUDED.mode ELSE s.mode END,
    next_probe_at = CASE WHEN EXCLUDED.number > s.number
                    THEN EXCLUDED.next_probe_at ELSE s.next_probe_at END,
    stuck = CASE WHEN EXCLUDED.number > s.number THEN EXCLUDED.stuck ELSE s.stuck END,
    reported_at = GREATEST(s.reported_at, EXCLUDED.reported_at)
WHERE EXCLUDED.number > s.number OR (EXCLUDED.number = s.number AND s.counters = '{}')
"""
)
_FOLD_REPORTS = (
    f"{_INSERT}{_RECORD}{_ON_CONFLICT}"
    + """
    number = EXCLUDED.number,
    counters = CASE WHEN EXCLUDED.number > s.number THEN '{}' ELSE s.counters END,
    state = EXCLUDED.state, since = EXCLUDED.since, cause = EXCLUDED.cause, mode = EXCLUDED.mode,
    next_probe_at = EXCLUDED.next_probe_at, override_uid = EXCLUDED.override_uid,
    would_be = EXCLUDED.would_be, ramp_percent = EXCLUDED.ramp_percent, stuck = EXCLUDED.stuck,
    keys_ready = EXCLUDED.keys_ready, keys_total = EXCLUDED.keys_total,
    keys_note = EXCLUDED.keys_note, reported_at = GREATEST(s.reported_at, EXCLUDED.reported_at)
WHERE EXCLUDED.number > s.number
   OR (EXCLUDED.number = s.number AND EXCLUDED.reported_at >= s.reported_at)
"""
)
_FOLD_BUDGETS = """
INSERT INTO budget_state AS s (
    gateway_id, instance_id, scope, balance, earned, spent, refused, window_s, reported_at)
SELECT * FROM jsonb_to_recordset(%s::jsonb) AS r(
    gateway_id int, instance_id bigint, scope text, balance bigint, earned bigint, spent bigint,
    refused bigint, window_s double precision, reported_at timestamptz)
ORDER BY gateway_id, instance_id, scope
ON CONFLICT (gateway_id, instance_id, scope) DO UPDATE SET
    balance = EXCLUDED.balance, earned = EXCLUDED.earned, spent = EXCLUDED.spent,
    refused = EXCLUDED.refused, window_s = EXCLUDED.window_s, reported_at = EXCLUDED.reported_at
WHERE EXCLUDED.reported_at >= s.reported_at
"""


async def fold_states(conn: AsyncConnection, rows: Iterable[StateRow]) -> int:
    """Put breakers forward; returns how many rows changed. Transitions first, then reports."""
    return sum([cursor.rowcount for cursor in await send_states(conn, rows)])


async def send_states(conn: AsyncConnection, rows: Iterable[StateRow]) -> list[AsyncCursor]:
    """The same, also in a pipeline, after which the cursors know how many rows changed."""
    transitions: dict[tuple[int, int, int], StateRow] = {}
    reports: dict[tuple[int, int, int], StateRow] = {}
    for row in rows:
        newest = reports if row.report else transitions
        key = (row.gateway_id, row.instance_id, row.circuit_id)
        held = newest.get(key)
        if held is None or (row.number, row.reported_at) > (held.number, held.reported_at):
            newest[key] = row
    return [
        await conn.execute(sql, (_document(chosen.values()),))
        for sql, chosen in ((_FOLD_TRANSITIONS, transitions), (_FOLD_REPORTS, reports))
        if chosen
    ]


async def fold_budgets(conn: AsyncConnection, rows: Iterable[BudgetRow]) -> int:
    """Put buckets forward by time; returns how many rows changed."""
    return sum([cursor.rowcount for cursor in await send_budgets(conn, rows)])


async def send_budgets(conn: AsyncConnection, rows: Iterable[BudgetRow]) -> list[AsyncCursor]:
    """The same, also in a pipeline, after which the cursor knows how many rows changed."""
    newest: dict[tuple[int, int, str], BudgetRow] = {}
    for row in rows:
        key = (row.gateway_id, row.instance_id, row.scope)
        held = newest.get(key)
        if held is None or row.reported_at >= held.reported_at:
            newest[key] = row
    if not newest:
        return []
    return [await conn.execute(_FOLD_BUDGETS, (_document(newest.values()),))]


def _document(rows: Iterable[StateRow] | Iterable[BudgetRow]) -> str:
    return msgspec.json.encode(list(rows)).decode()
