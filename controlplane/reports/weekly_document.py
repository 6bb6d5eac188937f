"""The weekly report as data: a JSON document and a CSV file.

Invariant: both hold the exact, unrounded figures of the report, by name in a fixed order; money is
decimal text in pounds, a ratio that is over nothing is null, and what is missing from an amount is
counted beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from controlplane.domain.pricing import EXACT
from controlplane.reports.figures import Figures
from controlplane.reports.spreadsheet import Cell, document, plain
from controlplane.reports.weekly import Report, Weekly

# (name in JSON, column in CSV, value); money first divided at the exact context's 60 digits.
_FIGURES: tuple[tuple[str, str, Callable[[Figures], Cell]], ...] = (
    ("tasksSucceeded", "tasks_succeeded", lambda f: f.tasks_succeeded),
    ("tasksFailed", "tasks_failed", lambda f: f.tasks_failed),
    ("costGbp", "cost_gbp", lambda f: f.cost.gbp),
    ("unpricedAttempts", "unpriced_attempts", lambda f: f.cost.missing),
    ("estimatedAttempts", "estimated_attempts", lambda f: f.estimated),
    (
        "costPerSuccessfulTaskGbp",
        "cost_per_successful_task_gbp",
        lambda f: _shortened(f.cost_per_successful_task),
    ),
    ("wastedGbp", "wasted_gbp", lambda f: f.wasted.gbp),
    ("wastedFinallyGbp", "wasted_finally_gbp", lambda f: f.wasted_finally.gbp),
    ("attempts", "attempts", lambda f: f.attempts),
    ("firsts", "firsts", lambda f: f.firsts),
    ("retries", "retries", lambda f: f.retries),
    ("fallbacks", "fallbacks", lambda f: f.fallbacks),
    ("redeliveries", "redeliveries", lambda f: f.redeliveries),
    ("failedAttempts", "failed_attempts", lambda f: f.failed),
    ("retryRatio", "retry_ratio", lambda f: f.retry_ratio),
    ("amplification", "amplification", lambda f: f.amplification),
    ("failedRatio", "failed_ratio", lambda f: f.failed_ratio),
    ("refusals", "refusals", lambda f: f.refusals),
    ("wouldRefuse", "would_refuse", lambda f: f.would_refuse),
    ("openings", "openings", lambda f: f.openings),
)
TOTAL, NONE = "(total)", "(none)"
# A quotient has no end; 30 places are far below anything that is ever paid.
_PLACES = 30


def _shortened(amount: Any) -> Any:
    return None if amount is None else EXACT.quantize(amount, EXACT.scaleb(1, -_PLACES))


def as_json(report: Report) -> dict[str, Any]:
    """The report as the API answers it."""
    this, asked = report.this, report.this.question
    return {
        "kind": "WeeklyReport",
        "metadata": {"name": str(asked.week)},
        "spec": {"week": str(asked.week), "zone": asked.zone.key, "by": asked.by},
        "status": _week(this) | {"before": _week(report.before)},
    }


def _week(week: Weekly) -> dict[str, Any]:
    return {
        "week": str(week.question.week),
        "start": week.start,
        "end": week.end,
        "hours": week.question.week.hours(week.question.zone),
        "running": week.running,
        "incomplete": week.incomplete,
        "simulated": week.simulated,
        "rates": [
            {
                "currency": rate.currency,
                "day": rate.day.isoformat(),
                "gbp": plain(rate.gbp),
                "source": rate.source,
                "old": rate.is_old(week.end),
            }
            for rate in week.rates
        ],
        "total": _figures(week.total),
        "lines": [{"name": line.name} | _figures(line.figures) for line in week.lines],
        "days": [{"day": day.day.isoformat()} | _figures(day.figures) for day in week.days],
    }


def _figures(figures: Figures) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, _, value in _FIGURES:
        amount = value(figures)
        found[name] = amount
        if name.endswith("Gbp") and isinstance(amount, int | Decimal):
            found[name] = plain(amount)
    return found | {"refused": dict(figures.refused)}


def as_csv(report: Report) -> str:
    """One row for each line and one for the total, of the week and of the one before."""
    by = report.this.question.by
    header = ["week", "zone", by, *(column for _, column, _ in _FIGURES), "simulated"]
    rows: list[list[Cell]] = []
    for week in (report.this, report.before):
        lines = [(line.name or NONE, line.figures) for line in week.lines]
        for name, figures in [*lines, (TOTAL, week.total)]:
            values = [value(figures) for _, _, value in _FIGURES]
            simulated = " ".join(week.simulated)
            asked = week.question
            rows.append([str(asked.week), asked.zone.key, name, *values, simulated])
    return document(header, rows)
