"""The last hour of one circuit, and of what one budget is about, as Plotly figures.

Invariant: as in ``timeline_sheet``: one time axis a figure, and the figures of one circuit have the
same, with equal margins; a minute of which nothing is known is a
gap. Percentiles are of histograms that were merged, never averages of percentiles. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from controlplane.reports.budgets import Held, Minute
from controlplane.reports.telemetry import Step
from dashboard import present
from dashboard.timeline_sheet import Sheet

_LEFT, _HEIGHT = 56, 92
_QUANTILES = {0.5: "--unk-fill", 0.95: "--useful", 0.99: "--ink"}


@dataclass(frozen=True, slots=True)
class Rules:
    """What is drawn over a circuit's figures: limits in per cent with words, and hands on it."""

    trips: tuple[float, str] | None = None
    budget: tuple[float, str] | None = None
    hands: Sequence[tuple[datetime, str]] = ()


def circuit(
    steps: Sequence[Step], since: datetime, until: datetime, rules: Rules, zone: ZoneInfo
) -> list[dict[str, Any]]:
    """Failure ratio, retry ratio against its budget, latency, spend: four figures of one axis."""
    known = {step.at: step for step in steps}
    each = [known.get(at) for at in _minutes(since, until)]
    return [
        _single(draw, each, since, until, rules, zone)
        for draw in (_failures, _retries, _latency, _spend)
    ]


def _single(
    draw: Callable[[Sheet, Sequence[Step | None], Rules], None],
    each: Sequence[Step | None],
    since: datetime,
    until: datetime,
    rules: Rules,
    zone: ZoneInfo,
) -> dict[str, Any]:
    sheet = Sheet(since, until, zone, _LEFT)
    sheet.down = 0.0
    draw(sheet, each, rules)
    return sheet.figure(*_hands(sheet, rules))


def _hands(sheet: Sheet, rules: Rules) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A vertical for each hand; words at the newest, on the side that has room."""
    within = [hand for hand in rules.hands if sheet.since < hand[0] < sheet.until]
    lines = [
        {
            "type": "line", "xref": "x", "yref": "paper", "x0": sheet.local(at),
            "x1": sheet.local(at), "y0": 0, "y1": 1,
            "line": {"color": "--hand-fill", "width": 1.4},
        }
        for at, _ in within
    ]  # fmt: skip
    if not within:
        return [], []
    at, words = max(within)
    is_late = at - sheet.since > (sheet.until - sheet.since) / 2
    note = {
        "xref": "x", "yref": "paper", "x": sheet.local(at), "y": 1, "yanchor": "top",
        "xanchor": "right" if is_late else "left", "xshift": -4 if is_late else 4,
        "showarrow": False, "text": present.plotted(words),
        "font": {"color": "--hand-ink", "size": 11}, "bgcolor": "--panel",
    }  # fmt: skip
    return [note], lines


def _failures(sheet: Sheet, each: Sequence[Step | None], rules: Rules) -> None:
    y = sheet.chart("failed", _HEIGHT, "Failure ratio", "% of attempts", ticksuffix="%")
    failed = [s.failed / s.attempts * 100 if s and s.attempts else None for s in each]
    sheet.data.append(sheet.line(y, "failed, %", failed, "--open-fill"))
    if rules.trips is not None:
        sheet.limit(y, *rules.trips)


def _retries(sheet: Sheet, each: Sequence[Step | None], rules: Rules) -> None:
    note = "% of first attempts"
    y = sheet.chart("retries", _HEIGHT, "Retry ratio against budget", note, ticksuffix="%")
    ratios = [s.retry_ratio * 100 if s and s.retry_ratio is not None else None for s in each]
    sheet.data.append(sheet.line(y, "retries, %", ratios, "--ink"))
    if rules.budget is not None:
        sheet.limit(y, *rules.budget)


def _spend(sheet: Sheet, each: Sequence[Step | None], rules: Rules) -> None:
    y = sheet.chart(
        "money", _HEIGHT, "Spend",
        "£/min  <span style='color:--useful'>■</span> useful · "
        "<span style='color:--open-fill'>■</span> wasted", tickprefix="£",
    )  # fmt: skip
    for name, colour, amounts in (
        ("spend", "--useful", [float(s.cost_gbp) if s else None for s in each]),
        ("wasted", "--open-fill", [float(s.wasted_gbp) if s else None for s in each]),
    ):
        filled = {"fill": "tozeroy", "line": {"width": 0}, "fillcolor": colour}
        sheet.data.append(sheet.line(y, f"{name}, £/min", amounts, "", **filled))


def _latency(sheet: Sheet, each: Sequence[Step | None], rules: Rules) -> None:
    values = {quantile: [_seconds(step, quantile) for step in each] for quantile in _QUANTILES}
    words = " · ".join(
        f"<span style='color:{colour}'>■</span> p{quantile * 100:g}"
        for quantile, colour in _QUANTILES.items()
    )
    ended = any(value is not None for value in values[0.5])
    note = f"attempts that ended  {words}" if ended else "no attempt that ended is known"
    y = sheet.chart("latency", _HEIGHT, "Latency", note, ticksuffix=" s")
    for quantile, colour in _QUANTILES.items():
        sheet.data.append(sheet.line(y, f"p{quantile * 100:g}, s", values[quantile], colour))


def budget(
    minutes: Sequence[Minute], since: datetime, until: datetime, limit: int, zone: ZoneInfo
) -> dict[str, Any]:
    """What callers wanted, what was let through, and the limit; below it, what was refused."""
    sheet = Sheet(since, until, zone, _LEFT)
    sheet.down = 0.0
    known = {row.minute: row for row in minutes}
    each = [known.get(at) for at in _minutes(since, until)]
    note = "% of first attempts  <span style='color:--open-pale'>■</span> wanted, refused"
    y = sheet.chart("ratio", 150, "Retry ratio against the limit", note, ticksuffix="%")
    wanted = [(m.retries + m.refused) / m.firsts * 100 if m and m.firsts else None for m in each]
    spent = [m.retries / m.firsts * 100 if m and m.firsts else None for m in each]
    area = {"fill": "tozeroy", "fillcolor": "--open-pale", "line": {"width": 0}}
    sheet.data.append(sheet.line(y, "wanted, %", wanted, "", **area))
    under = {"fill": "tozeroy", "fillcolor": "--first", "line": {"color": "--ink", "width": 1.4}}
    sheet.data.append(sheet.line(y, "spent, %", spent, "", **under))
    sheet.limit(y, limit / 10, f"limit {present.limit(limit)}, recorded")
    y = sheet.chart("refused", 70, "Refused", "retries/s that a budget did not allow")
    refused = [m.refused / 60 if m else None for m in each]
    bars = {"type": "bar", "marker": {"color": "--open-fill"}}
    sheet.data.append(sheet.line(y, "refused/s", refused, "", **bars))
    return sheet.figure([], [])


def held(steps: Sequence[Held], since: datetime, until: datetime, zone: ZoneInfo) -> dict[str, Any]:
    """What the buckets of one scope held together, minute by minute, and what moved them."""
    sheet = Sheet(since, until, zone, _LEFT)
    sheet.down = 0.0
    known = {step.at: step for step in steps}
    each = [known.get(at) for at in _minutes(since, until)]
    y = sheet.chart("balance", 150, "Balance", "retries left, over its instances")
    # A word may be the only one in its neighbourhood: a line alone would not show it.
    balance = [s.balance if s else None for s in each]
    sheet.data.append(sheet.line(y, "balance", balance, "--ink", **_dots("--ink")))
    y = sheet.chart(
        "moved", 100, "Earned, spent, refused",
        "retries within a bucket's window  <span style='color:--useful'>■</span> earned · "
        "<span style='color:--ink'>■</span> spent · "
        "<span style='color:--open-fill'>■</span> refused",
    )  # fmt: skip
    for name, colour, values in (
        ("earned", "--useful", [s.earned if s else None for s in each]),
        ("spent", "--ink", [s.spent if s else None for s in each]),
        ("refused", "--open-fill", [s.refused if s else None for s in each]),
    ):
        sheet.data.append(sheet.line(y, name, values, colour, **_dots(colour)))
    return sheet.figure([], [])


def _dots(colour: str) -> dict[str, Any]:
    return {"mode": "lines+markers", "marker": {"color": colour, "size": 3}}


def _minutes(since: datetime, until: datetime) -> list[datetime]:
    begin = since.replace(second=0, microsecond=0)
    count = int((until - begin).total_seconds() // 60)
    return [begin + timedelta(minutes=place) for place in range(count)]


def _seconds(step: Step | None, quantile: float) -> float | None:
    found = step.latency_ms(quantile) if step else None
    return None if found is None else found / 1000
