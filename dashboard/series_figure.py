"""The last hour of one circuit, and of what one budget is about, as Plotly figures.

Invariant: as in ``timeline_sheet``: one time axis a figure; a minute of which nothing is known is a
gap. Percentiles are of histograms that were merged, never averages of percentiles. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from controlplane.reports.budgets import Held, Minute
from controlplane.reports.telemetry import Step
from dashboard import present
from dashboard.timeline_sheet import Sheet

_LEFT, _HEIGHT = 56, 92
_QUANTILES = {0.5: "--unk-fill", 0.95: "--useful", 0.99: "--ink"}


def circuit(
    steps: Sequence[Step], since: datetime, until: datetime, limit: int | None, zone: ZoneInfo
) -> dict[str, Any]:
    """Failure ratio, retry ratio against its budget, latency, spend."""
    sheet = Sheet(since, until, zone, _LEFT)
    sheet.down = 0.0
    known = {step.at: step for step in steps}
    each = [known.get(at) for at in _minutes(since, until)]
    y = sheet.chart("failed", _HEIGHT, "Failure ratio", "% of attempts", ticksuffix="%")
    failed = [s.failed / s.attempts * 100 if s and s.attempts else None for s in each]
    sheet.data.append(sheet.line(y, "failed, %", failed, "--open-fill"))
    y = sheet.chart("retries", _HEIGHT, "Retry ratio", "% of first attempts", ticksuffix="%")
    ratios = [s.retry_ratio * 100 if s and s.retry_ratio is not None else None for s in each]
    sheet.data.append(sheet.line(y, "retries, %", ratios, "--ink"))
    if limit is not None:
        sheet.limit(y, limit / 10, f"budget {present.limit(limit)}")
    _latency(sheet, each)
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
    return sheet.figure([], [])


def _latency(sheet: Sheet, each: Sequence[Step | None]) -> None:
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
