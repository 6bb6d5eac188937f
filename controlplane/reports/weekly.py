"""One week by one split: what was sent, what it cost, which tasks it closed; the one before beside.

Invariant: all figures of a week come out of one snapshot, and both columns of every split (cost and
tasks) add up to the week's total exactly. An attempt belongs to the week in which it was begun and
to its own circuit, route, tenant and gateway; a task to the week in which it closed, to the circuit
of its last attempt, the route and tenant of its first request and the gateway that closed it
(design 4.7).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from django.conf import settings
from django.db import OperationalError, connection
from msgspec import Struct

from controlplane.domain.calendar import Week, last_finished, zone_named
from controlplane.domain.circuit import Circuit
from controlplane.errors import InvalidInput, TooSlow
from controlplane.models.pool import is_timeout, named_sql
from controlplane.reports.figures import ZERO, Figures, Known

SPLITS = ("circuit", "route", "tenant", "gateway")
# A task with the header closes this long after its last request ended, if nobody says before.
IDLE = timedelta(minutes=15)
# From then on a rate is shown with its date.
OLD = timedelta(days=7)
# What stands for a task without an attempt, and for attempts and tasks that name no route.
NO_KEY = ""
# So many hours are always read from raw events while a week runs.
_FEW_HOURS = 2
_SQL = Path(__file__).parent / "sql"


@dataclass(frozen=True, slots=True)
class Question:
    """A week of a zone, by one split."""

    week: Week
    zone: ZoneInfo
    by: str = "circuit"


@dataclass(frozen=True, slots=True)
class Line:
    """One key of the split. ``name`` is '' for what has none."""

    key: str
    name: str
    figures: Figures


@dataclass(frozen=True, slots=True)
class Day:
    """One local day."""

    day: date
    figures: Figures


class Rate(Struct, frozen=True, array_like=True):
    """An exchange rate that some attempt of the week was told in pounds with."""

    currency: str
    day: date
    gbp: Decimal
    source: str

    def is_old(self, end: datetime) -> bool:
        """True when it was over a week old at the week's end (design 4.6)."""
        return end.date() - self.day > OLD


@dataclass(frozen=True, slots=True)
class Weekly:
    """One week's figures. ``incomplete``: raw events of its beginning are no longer kept;
    ``running``: it is not over yet. ``simulated`` names the simulated gateways that it counts.
    """

    question: Question
    start: datetime
    end: datetime
    total: Figures
    lines: list[Line]
    days: list[Day]
    simulated: list[str]
    rates: list[Rate]
    incomplete: bool
    running: bool


@dataclass(frozen=True, slots=True)
class Report:
    """A week with the week before it."""

    this: Weekly
    before: Weekly

    def earlier(self, key: str) -> Figures:
        """The week before of one key; nothing when it had none."""
        return next((line.figures for line in self.before.lines if line.key == key), Figures())


class _Attempts(Struct, frozen=True, array_like=True):
    key: str | None
    day: int | None
    attempts: int
    firsts: int
    retries: int
    fallbacks: int
    redeliveries: int
    succeeded: int
    failed: int
    cost_gbp: Decimal | None
    unpriced: int
    estimated: int
    wasted_gbp: Decimal | None
    wasted_unpriced: int
    wasted_finally_gbp: Decimal | None
    wasted_finally_unpriced: int


class _Tasks(Struct, frozen=True, array_like=True):
    key: str | None
    day: int | None
    succeeded: int
    failed: int


class _Refused(Struct, frozen=True, array_like=True):
    key: str | None
    gate: str
    refused: int
    would_refuse: int


class _Opened(Struct, frozen=True, array_like=True):
    key: str | None
    openings: int


class _Document(Struct, frozen=True):
    attempts: list[_Attempts]
    tasks: list[_Tasks]
    refusals: list[_Refused]
    openings: list[_Opened]
    simulated: list[str]
    rates: list[Rate]
    circuits: dict[str, tuple[str, str, str]]
    gateways: dict[str, str]


def question(week: str, zone: str, by: str, now: datetime) -> Question:
    """Read what a person asked for; '' means the default. ``InvalidInput`` names every fault.

    Defaults: the last finished week of the report's zone, by circuit.
    """
    errors = []
    found_zone, found_week = zone_named("UTC"), None
    try:
        found_zone = zone_named(zone or settings.REPORT_ZONE)
    except ValueError as error:
        errors.append({"field": "zone", "message": str(error)})
    try:
        found_week = Week.parse(week) if week else last_finished(now, found_zone)
    except ValueError as error:
        errors.append({"field": "week", "message": str(error)})
    if by and by not in SPLITS:
        errors.append({"field": "by", "message": f"write one of {', '.join(SPLITS)}"})
    if errors or found_week is None:
        raise InvalidInput("; ".join(e["message"] for e in errors), errors=errors)
    return Question(found_week, found_zone, by or "circuit")


def report(asked: Question, now: datetime) -> Report:
    """The week asked for and the one before it."""
    before = Question(asked.week.shifted(-1), asked.zone, asked.by)
    return Report(weekly(asked, now), weekly(before, now))


def weekly(asked: Question, now: datetime) -> Weekly:
    """One week's figures as the database knows them at ``now``."""
    midnights = asked.week.midnights(asked.zone)
    start, end = midnights[0], midnights[-1]
    values = {
        "start": start,
        "end": end,
        "midnights": list(midnights[:-1]),
        "by": asked.by,
        "now": now,
        "idle": IDLE,
    }
    document = _read(asked.week, values)
    sums = _Sums(document)
    name = _namer(asked.by, document)
    keys = sorted(sums.keys(), key=lambda key: (key == NO_KEY, name(key)))
    return Weekly(
        question=asked,
        start=start,
        end=end,
        total=sums.of(None, None),
        lines=[Line(key, name(key), sums.of(key, None)) for key in keys],
        days=[Day(asked.week.monday() + timedelta(days=n), sums.of(None, n + 1)) for n in range(7)],
        simulated=document.simulated,
        rates=document.rates,
        incomplete=start < now - timedelta(days=settings.RAW_RETENTION_DAYS),
        running=now < end,
    )


def _read(week: Week, values: dict[str, Any]) -> _Document:
    """All of it in one statement. ``TooSlow`` says how much had to come from raw events."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(named_sql(_SQL / "weekly.sql"), values)
            return msgspec.json.decode(cursor.fetchone()[0], type=_Document)
    except OperationalError as error:
        if not is_timeout(error):
            raise
        with connection.cursor() as cursor:
            cursor.execute(named_sql(_SQL / "weekly_underived.sql"), values)
            (hours,) = cursor.fetchone()
        if hours <= _FEW_HOURS:
            raise TooSlow() from error
        raise TooSlow(
            f"{hours} hours of {week} are not derived yet, and to read them from raw events took"
            " longer than a statement may (30 s). They are derived in the background, the newest"
            " first: try again in some minutes. The page Telemetry says if that work stands still."
        ) from error


def _namer(by: str, document: _Document) -> Callable[[str], str]:
    if by == "circuit":
        circuits = {key: str(Circuit(*parts)) for key, parts in document.circuits.items()}
        return lambda key: circuits.get(key, f"circuit {key}") if key else ""
    if by == "gateway":
        return lambda key: document.gateways.get(key, f"gateway {key}")
    return lambda key: key


class _Sums:
    """The document's rows by (key, day): (None, None) is the week's total."""

    def __init__(self, document: _Document) -> None:
        self._attempts = {(row.key, row.day): row for row in document.attempts}
        self._tasks = {(row.key, row.day): row for row in document.tasks}
        self._openings = {row.key: row.openings for row in document.openings}
        self._refused: dict[str | None, dict[str, int]] = {}
        self._would_refuse: dict[str | None, int] = {}
        for row in sorted(document.refusals, key=lambda row: row.gate):
            if row.refused:
                self._refused.setdefault(row.key, {})[row.gate] = row.refused
            would = self._would_refuse.get(row.key, 0)
            self._would_refuse[row.key] = would + row.would_refuse

    def keys(self) -> set[str]:
        """Every key that anything happened to."""
        found = {key for key, _ in [*self._attempts, *self._tasks]}
        found |= {*self._refused, *self._would_refuse, *self._openings}
        return {key for key in found if key is not None}

    def of(self, key: str | None, day: int | None) -> Figures:
        """One line's figures; refusals and openings are not known by day."""
        sent = self._attempts.get((key, day))
        tasks = self._tasks.get((key, day))
        by_day = day is not None
        refused: Mapping[str, int] = {} if by_day else self._refused.get(key, {})
        closed: dict[str, Any] = {
            "tasks_succeeded": tasks.succeeded if tasks else 0,
            "tasks_failed": tasks.failed if tasks else 0,
            "would_refuse": 0 if by_day else self._would_refuse.get(key, 0),
            "openings": 0 if by_day else self._openings.get(key, 0),
        }
        if sent is None:
            return Figures(refused=refused, **closed)
        return Figures(
            attempts=sent.attempts,
            firsts=sent.firsts,
            retries=sent.retries,
            fallbacks=sent.fallbacks,
            redeliveries=sent.redeliveries,
            succeeded=sent.succeeded,
            failed=sent.failed,
            cost=_known(sent.cost_gbp, sent.unpriced),
            estimated=sent.estimated,
            wasted=_known(sent.wasted_gbp, sent.wasted_unpriced),
            wasted_finally=_known(sent.wasted_finally_gbp, sent.wasted_finally_unpriced),
            refused=refused,
            **closed,
        )


def _known(gbp: Decimal | None, missing: int) -> Known:
    # SQL's sum is NULL when there was no known amount.
    return Known(gbp if gbp is not None else ZERO, missing)
