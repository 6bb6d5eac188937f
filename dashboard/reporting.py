"""A weekly report in words: headlines, lines of its table, and what must be said about it. Pure.

Invariant: what is not known is ``–`` with its reason and never a zero; a change is red only when it
is the worse direction. Costs of one task are pence with three decimals, weekly ratios per cent with
two; other amounts as everywhere (``present.money``).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import ROUND_HALF_UP, Decimal
from functools import reduce

from controlplane.domain.calendar import Week
from controlplane.domain.pricing import EXACT
from controlplane.reports.figures import Figures, Known
from controlplane.reports.weekly import Line, Rate, Report
from dashboard.present import NOT_KNOWN, count, money

LINES = 100
_NO_NAME = {
    "circuit": "(none)",
    "route": "(no route)",
    "tenant": "(no tenant)",
    "gateway": "(no gateway)",
}


@dataclass(frozen=True, slots=True)
class Change:
    """How a figure stands to the week before. ``tone``: worse, better or none."""

    words: str
    tone: str


@dataclass(frozen=True, slots=True)
class Headline:
    """One large figure."""

    title: str
    figure: str
    unit: str
    change: Change
    before: str


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table, in words. ``bar`` is 0 to 100, of the most wasted line."""

    name: str
    href: str
    succeeded: str
    failed: str
    cost: str
    cost_note: str
    per_task: str
    per_task_note: str
    change: Change
    wasted: str
    bar: int
    retry: str
    failure: str
    refused: str
    openings: str


def per_task(gbp: Decimal | None) -> str:
    """A cost of one task: ``0.209p``, ``61.300p``, from £1 on ``£1.045``."""
    if gbp is None:
        return NOT_KNOWN
    if gbp == 0:
        return "0p"
    if gbp >= 1:
        return pounds(gbp, 3)
    pence = _rounded(EXACT.multiply(gbp, Decimal(100)), 3)
    return f"{pence}p" if pence else "<0.001p"


def pounds(gbp: Decimal, places: int) -> str:
    """Pounds rounded once, here: ``£0.01``; what would round to nothing says so: ``<£0.01``."""
    shown = _rounded(gbp, places)
    sign = "-" if gbp < 0 else ""
    if gbp and not shown:
        return f"{sign}<£{Decimal(1).scaleb(-places):f}"
    return f"{sign}£{shown.copy_abs():,}"


def _rounded(value: Decimal, places: int) -> Decimal:
    return value.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP, EXACT)


def share(ratio: float | None) -> str:
    """A weekly ratio with two decimals: ``0.91%``."""
    if ratio is None:
        return NOT_KNOWN
    if ratio == 0:
        return "0%"
    return "<0.01%" if ratio < 0.00005 else f"{ratio * 100:.2f}%"


def change(
    now: Decimal | float | None, before: Decimal | float | None, *, more_is_worse: bool = True
) -> Change:
    """The relative change; without both figures, or with none before, nothing is judged."""
    if now is None or before is None or not before:
        return Change("", "none")
    ratio = float(now) / float(before) - 1
    if abs(ratio) < 0.0005:
        return Change("= 0.0%", "none")
    arrow = "▲" if ratio > 0 else "▼"
    size = f"{abs(ratio) * 100:,.1f}%" if abs(ratio) < 10 else f"×{ratio + 1:,.0f}"
    return Change(f"{arrow} {size}", "worse" if (ratio > 0) == more_is_worse else "better")


def headlines(report: Report) -> list[Headline]:
    """The four figures on top."""
    now, before = report.this.total, report.before.total
    cost = now.cost_per_successful_task
    per_thousand = f"{money(cost * 1000)} per 1,000" if cost is not None else _why_no_cost(now)
    return [
        Headline(
            "Cost per successful task",
            per_task(cost),
            per_thousand,
            change(cost, before.cost_per_successful_task),
            per_task(before.cost_per_successful_task),
        ),
        Headline(
            "Wasted",
            money(now.wasted_finally.gbp),
            f"{share(now.wasted_share)} of spend",
            change(now.wasted_finally.gbp, before.wasted_finally.gbp),
            money(before.wasted_finally.gbp),
        ),
        Headline(
            "Retry rate",
            share(now.retry_ratio),
            "of first attempts",
            change(now.retry_ratio, before.retry_ratio),
            share(before.retry_ratio),
        ),
        Headline(
            "Successful tasks",
            f"{now.tasks_succeeded:,}",
            f"{share(now.task_success_ratio)} of those closed",
            change(now.task_success_ratio, before.task_success_ratio, more_is_worse=False),
            f"{before.tasks_succeeded:,}, {share(before.task_success_ratio)}",
        ),
    ]


def rows(report: Report) -> list[Row]:
    """The table: most wasted first, what has no name last, the tail folded into one line."""
    lines = sorted(report.this.lines, key=_worst_first)
    shown, folded = lines[:LINES], lines[LINES:]
    most = max((_waste(line) for line in shown), default=Decimal(0))
    by = report.this.question.by
    found = [_row(report, line, line.name or _NO_NAME[by], most) for line in shown]
    if folded:
        rest = reduce(Figures.__add__, (line.figures for line in folded))
        earlier = reduce(Figures.__add__, (report.earlier(line.key) for line in folded))
        found.append(_words(count(len(folded), f"other {by}"), "", rest, earlier, 0))
    return found


def total(report: Report) -> Row:
    """The last line."""
    return _words("Total", "", report.this.total, report.before.total, 0)


def cautions(report: Report) -> list[str]:
    """What a reader must know before believing the figures."""
    this, found = report.this, []
    if this.running:
        found.append("This week is not over: its figures grow.")
    if this.incomplete:
        found.append("Raw events of this week's beginning are no longer kept: it is incomplete.")
    elif report.before.incomplete:
        found.append("Raw events of the week before are no longer kept in full.")
    if missing := this.total.cost.missing:
        found.append(
            f"{count(missing, 'attempt')} of {this.total.attempts:,} cannot be priced:"
            " they are in no amount."
        )
    return found


def rates(report: Report) -> list[str]:
    """The exchange rates used, newest last: ``USD 1 = £0.7572 (rate of 8 Oct 2026, old)``."""
    return [_rate(rate, rate.is_old(report.this.end)) for rate in report.this.rates]


def title(week: Week) -> str:
    """``Week 48, Mon 23 to Sun 29 Nov 2026``."""
    first = week.monday()
    last = first + timedelta(days=6)
    begin = f"{first:%a %-d}" if first.month == last.month else f"{first:%a %-d %b}"
    if first.year != last.year:
        begin = f"{first:%a %-d %b %Y}"
    return f"Week {week.number}, {begin} to {last:%a %-d %b %Y}"


def _worst_first(line: Line) -> tuple[bool, Decimal, Decimal, str]:
    return (line.name == "", -_waste(line), -line.figures.cost.sum_gbp, line.name)


def _waste(line: Line) -> Decimal:
    return line.figures.wasted_finally.sum_gbp


def _row(report: Report, line: Line, name: str, most: Decimal) -> Row:
    bar = int(100 * _waste(line) / most) if most else 0
    href = line.name if report.this.question.by == "circuit" else ""
    return _words(name, href, line.figures, report.earlier(line.key), bar)


def _words(name: str, href: str, now: Figures, before: Figures, bar: int) -> Row:
    cost = now.cost_per_successful_task
    return Row(
        name=name,
        href=href,
        succeeded=f"{now.tasks_succeeded:,}",
        failed=f"{now.tasks_failed:,}",
        cost=money(now.cost.gbp),
        cost_note=_missing(now.cost),
        per_task=per_task(cost),
        per_task_note="" if cost is not None else _why_no_cost(now),
        change=change(cost, before.cost_per_successful_task),
        wasted=money(now.wasted_finally.gbp),
        bar=bar,
        retry=share(now.retry_ratio),
        failure=share(now.failed_ratio),
        refused=f"{now.refusals:,}",
        openings=f"{now.openings:,}",
    )


def _missing(amount: Known) -> str:
    return f"+ {amount.missing:,} unpriced" if amount.missing else ""


def _why_no_cost(figures: Figures) -> str:
    return "cost not known" if figures.tasks_succeeded else "no successful task"


def _rate(rate: Rate, old: bool) -> str:
    said = f"{rate.currency} 1 = {pounds(rate.gbp, 4)}, rate of {rate.day:%-d %b %Y}"
    return f"{said}, old" if old else said
