"""After the load: what was kept, acknowledged, stored and rebuilt, side by side.

Invariant: every line compares two counts that were made independently of each other: the load's
notes, the receipts, the raw rows, the folded tables, the rebuilt tables.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from tests.product import CHECKOUT, Product
from tests.soak.notes import Witness

TABLES = ("attempt", "refusal", "outcome", "transition", "budget_event")
_LOST = CHECKOUT / "controlplane" / "reports" / "sql" / "lost_telemetry.sql"
_COMPACT = (
    "SELECT gateway_id, circuit_id, minute, switchgear_compact(array_agg(bin))"
    " FROM rollup_minute_part, unnest({0}) AS bin GROUP BY 1, 2, 3"
)
# What ingest folds, and what a rebuild makes of the rows. Parts are one for each commit: their sums
# are compared.
_FOLDED = {
    "minutes": "SELECT * FROM rollup_minute",
    "requests by minute": "SELECT * FROM rollup_minute_request",
    "latency": _COMPACT.format("latency"),
    "first byte": _COMPACT.format("first_byte"),
    "tasks": "SELECT * FROM task",
    "breakers": "SELECT gateway_id, instance_id, circuit_id, number, state, since, cause, mode"
    " FROM circuit_state WHERE number > 0",
}
_DERIVED = {
    "circuit minutes": "SELECT * FROM rollup_circuit_minute WHERE minute < %(minute)s",
    "hours": "SELECT * FROM rollup_hour WHERE hour < %(hour)s",
}
_SETTLED = (
    "SELECT grain, upto FROM rollup_watermark WHERE NOT EXISTS (SELECT FROM rollup_dirty d"
    " JOIN rollup_watermark w USING (grain) WHERE d.at < w.upto)"
)


@dataclass(frozen=True)
class Line:
    """One comparison. ``right`` is the judgement, the figures are for people."""

    what: str
    expected: object
    found: object
    right: bool


def same(what: str, expected: object, found: object) -> Line:
    """A line that is right when both are equal."""
    return Line(what, expected, found, expected == found)


def compare(product: Product, witness: Witness, began: datetime) -> list[Line]:
    """Every comparison, from the product at rest."""
    lines = _answers(witness)
    stored = _stored_ids(product)
    lines += _events(product, witness, stored)
    lines += _receipts(product, witness, stored)
    lines += _losses(product, witness, set(stored), began)
    lines += _rebuilt(product, began)
    return lines


def _answers(witness: Witness) -> list[Line]:
    bad = {
        f"{what} {status}": count
        for (what, status), count in witness.answers.items()
        if status not in (200, 304, 410, 429, 503)
    }
    return [same("answers that are faults", {}, bad)]


def _stored_ids(product: Product) -> Counter[UUID]:
    stored: Counter[UUID] = Counter()
    for table in TABLES:
        stored.update(row[0] for row in product.query(f"SELECT id FROM {table}"))
    return stored


def _events(product: Product, witness: Witness, stored: Counter[UUID]) -> list[Line]:
    whole = {e for e in witness.kept if witness.boot_of[e] not in witness.lossy}
    twice = sum(count > 1 for count in stored.values())
    return [
        same("kept by whole spools = stored", len(whole), sum(e in stored for e in whole)),
        same("stored twice", 0, twice),
        same("stored and never intended", 0, len(set(stored) - set(witness.intended))),
        same(
            "minutes' attempts = raw attempts",
            product.query("SELECT count(*) FROM attempt")[0][0],
            int(product.query("SELECT coalesce(sum(attempts), 0) FROM rollup_minute")[0][0]),
        ),
    ]


def _receipts(product: Product, witness: Witness, stored: Counter[UUID]) -> list[Line]:
    rows = product.query(
        "SELECT i.boot_id, r.seq, r.stored, r.duplicates, jsonb_array_length(r.unread)"
        " FROM receipt r JOIN instance i ON i.id = r.instance_id"
    )
    held = {(row[0], row[1]): (row[2], row[3], row[4]) for row in rows}
    said = int(product.query("SELECT coalesce(sum(stored), 0) FROM receipt")[0][0])
    whole = [b for b in witness.gateway_of if b not in witness.lossy]
    holes = product.query(
        "SELECT count(*) FROM instance WHERE boot_id = ANY(%s) AND highest_seq <> contiguous_seq",
        (whole,),
    )
    whole_acked = sum(boot not in witness.lossy for boot, _ in witness.acknowledged)
    # A small spool may give up a batch whose answer is still on its way.
    whole_held = sum(boot not in witness.lossy for boot, _ in held)
    return [
        same("batches acknowledged = receipts", whole_acked, whole_held),
        same("receipts that say otherwise", 0, _differ(witness.acknowledged, held)),
        same("answers that changed", 0, len(witness.contradicted)),
        same("events that receipts say = rows", said, stored.total()),
        same("whole spools with a hole", 0, holes[0][0]),
        same("dead letters", 0, product.query("SELECT count(*) FROM dead_letter")[0][0]),
    ]


def _differ(one: dict[Any, Any], other: dict[Any, Any]) -> int:
    return sum(other.get(key) != value for key, value in one.items())


def _losses(product: Product, witness: Witness, stored: set[UUID], began: datetime) -> list[Line]:
    """Of the spools that are too small: a loss is named, and nobody else is named for one.

    A boot's gap names its own loss. What lay behind its last batch, in a spool that was given up
    when its owner was dead, is told by the gateway's living instances.
    """
    missing = Counter(witness.boot_of[e] for e in witness.kept if e not in stored)
    rows = _lost(product, began)
    by_gap = {row["boot_id"] for row in rows if row["lost"] > 0}
    by_count = {row["name"] for row in rows if row["dropped"] > 0}
    unnamed = [boot for boot in set(missing) - by_gap if witness.gateway_of[boot] not in by_count]
    told = {
        "batches": sum(int(row["lost"]) for row in rows),
        "dropped": sum(row["dropped"] for row in rows),
    }
    return [
        Line("events lost by small spools, told as", missing.total(), told, True),
        same("lost and not told", 0, len(unnamed)),
        same("gaps without a loss", 0, len(by_gap - set(missing))),
        same("gateways that lost, of those that have room", 0, len(by_count - _lossy(witness))),
    ]


def _lossy(witness: Witness) -> set[str]:
    return {witness.gateway_of[boot] for boot in witness.lossy}


def _lost(product: Product, since: datetime) -> list[dict[str, Any]]:
    with psycopg.connect(_dsn(product), row_factory=dict_row) as db:
        return db.execute(_LOST.read_bytes(), {"since": since - timedelta(hours=1)}).fetchall()


def _dsn(product: Product) -> str:
    return product.environment()["DATABASE_URL"]


def _rebuilt(product: Product, began: datetime) -> list[Line]:
    """Fold, derive, rebuild: three answers that must be one."""
    marks = _settled(product)
    if not marks:
        return [Line("what is marked gets derived", "within 120 s", "marks are left", False)]
    before = _tables(product, marks)
    start = (began - timedelta(hours=1)).isoformat()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "manage.py", "rebuild", "--from", start],
        cwd=CHECKOUT,
        env=product.environ | product.environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode:
        return [Line("rebuild", "exit 0", done.stderr[-300:], False)]
    after = _tables(product, marks)
    return [
        Line(
            f"{name}: folded = rebuilt",
            f"{len(rows)} rows",
            f"{len(_off(name, rows, after[name]))} differ",
            not _off(name, rows, after[name]),
        )
        for name, rows in before.items()
    ]


def _settled(product: Product) -> dict[str, datetime]:
    """The watermarks at a moment when nothing before them is marked; empty if none comes in 120 s.

    A minute before its watermark is derived or marked, and the worker of a busy machine may be
    behind: what is marked may be wrong and is not to be compared.
    """
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        found = dict(product.query(_SETTLED))
        if found:
            return found
        time.sleep(0.5)
    return {}


def _off(name: str, folded: set[str], rebuilt: set[str]) -> set[str]:
    """Rows that differ. Of breakers a status report may have taken one off the wall since."""
    return folded - rebuilt if name == "breakers" else folded ^ rebuilt


def _tables(product: Product, marks: dict[str, datetime]) -> dict[str, set[str]]:
    found = {}
    with psycopg.connect(_dsn(product)) as db:
        for name, statement in _FOLDED.items():
            found[name] = {repr(row) for row in db.execute(statement.encode()).fetchall()}
        for name, statement in _DERIVED.items():
            rows = db.execute(statement.encode(), marks).fetchall()
            found[name] = {repr(row) for row in rows}
    return found
