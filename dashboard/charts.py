"""Figures of a report as Plotly draws them: plain data, held in tests to Plotly's schema.

Invariant: a colour is the name of a token (``--useful``), which the page replaces by the theme's
value; a day or a line of which something is not known has a gap, never a zero. Pence and per cent.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from controlplane.reports.figures import Figures
from controlplane.reports.weekly import Line, Report, Weekly
from dashboard.present import cut, money, plotted
from dashboard.reporting import per_task, share

BARS = 15
_NAME = 34
_ROW_PX, _FRAME_PX = 24, 54
# Between a name and its bar; Plotly drops a plain one.
_SPACE = "\u2002"


def by_line(report: Report) -> dict[str, Any]:
    """Cost per successful task and retry rate of the costliest lines, side by side."""
    lines = sorted(report.this.lines, key=lambda line: line.figures.cost.sum_gbp)[-BARS:]
    names = [line.name or "(none)" for line in lines]
    return {
        "data": [
            _bars("cost per successful task", names, lines, "x", "--useful", _pence, _said_cost),
            _bars("retry rate", names, lines, "x2", "--half-fill", _retries, _said_retry),
        ],
        "layout": _layout(
            height=_FRAME_PX + _ROW_PX * max(len(lines), 2),
            margin={"l": 8, "r": 36, "t": 8, "b": 44},
            xaxis=_axis([0, 0.46], "cost per successful task, pence", rangemode="tozero"),
            xaxis2=_axis([0.54, 1], "retry rate, % of first attempts", rangemode="tozero"),
            yaxis={
                "automargin": True,
                "type": "category",
                "tickmode": "array",
                "tickvals": names,
                "ticktext": [plotted(cut(name, _NAME)) + _SPACE for name in names],
                "showgrid": False,
                "color": "--ink-soft",
            },
        ),
    }


def by_day(report: Report) -> dict[str, Any]:
    """Cost per successful task against the week before, and waste, by local day."""
    this, before = report.this, report.before
    labels = [f"{day.day:%a %-d}" for day in this.days]
    return {
        "data": [
            _line("week before", labels, before, "--ink-faint", dash="dot"),
            _line("this week", labels, this, "--ink", dash="solid"),
            _waste("not served", labels, this, "--open-fill", _not_served),
            _waste("served, task failed", labels, this, "--open-pale", _of_failed_tasks),
        ],
        "layout": _layout(
            height=260,
            barmode="stack",
            xaxis=_axis([0, 0.46], "") | {"type": "category"},
            xaxis2=_axis([0.54, 1], "") | {"type": "category", "anchor": "y2"},
            yaxis=_upright("cost per successful task, pence") | {"rangemode": "tozero"},
            yaxis2=_upright("wasted, £") | {"anchor": "x2", "rangemode": "tozero"},
        ),
    }


def _bars(
    name: str, names: list[str], lines: list[Line], axis: str, colour: str, value: Any, said: Any
) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": names,
        "x": [value(line.figures) for line in lines],
        "xaxis": axis,
        "text": [said(line.figures) for line in lines],
        "textposition": "outside",
        "cliponaxis": False,
        "textfont": {"color": "--ink-soft", "size": 11},
        "marker": {"color": colour},
        "customdata": [plotted(name) for name in names],
        "hovertemplate": "%{customdata}<br>%{text}<extra></extra>",
    }


def _line(name: str, labels: list[str], week: Weekly, colour: str, dash: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": labels,
        "y": [_pence(day.figures) for day in week.days],
        "text": [per_task(day.figures.cost_per_successful_task) for day in week.days],
        "connectgaps": False,
        "line": {"color": colour, "width": 1.5, "dash": dash},
        "marker": {"color": colour, "size": 5},
        "hovertemplate": "%{x}: %{text}<extra>" + name + "</extra>",
    }


def _waste(name: str, labels: list[str], week: Weekly, colour: str, value: Any) -> dict[str, Any]:
    amounts = [value(day.figures) for day in week.days]
    return {
        "type": "bar",
        "name": name,
        "x": labels,
        "y": [None if amount is None else float(amount) for amount in amounts],
        "text": [money(amount) for amount in amounts],
        "textposition": "none",
        "xaxis": "x2",
        "yaxis": "y2",
        "marker": {"color": colour},
        "hovertemplate": "%{x}: %{text}<extra>" + name + "</extra>",
    }


def _layout(*, height: int, **axes: Any) -> dict[str, Any]:
    return {
        "height": height,
        "margin": {"l": 8, "r": 16, "t": 30, "b": 28},
        "paper_bgcolor": "--panel",
        "plot_bgcolor": "--panel",
        "font": {"color": "--ink-soft", "size": 11},
        "bargap": 0.35,
        "showlegend": "barmode" in axes,
        "legend": {"orientation": "h", "x": 0, "y": 1.14, "font": {"size": 11}},
        "hoverlabel": {"bgcolor": "--panel", "bordercolor": "--edge", "font": {"color": "--ink"}},
        "dragmode": False,
    } | axes


def _axis(domain: list[float], words: str, **more: Any) -> dict[str, Any]:
    return {
        "domain": domain,
        "title": {"text": words, "font": {"size": 11}},
        "gridcolor": "--rule",
        "zerolinecolor": "--rule",
        "color": "--ink-soft",
        "fixedrange": True,
    } | more


def _upright(words: str) -> dict[str, Any]:
    return {
        "title": {"text": words, "font": {"size": 11}},
        "automargin": True,
        "gridcolor": "--rule",
        "zerolinecolor": "--rule",
        "color": "--ink-soft",
        "fixedrange": True,
    }


def _pence(figures: Figures) -> float | None:
    cost = figures.cost_per_successful_task
    return None if cost is None else float(cost * 100)


def _retries(figures: Figures) -> float | None:
    ratio = figures.retry_ratio
    return None if ratio is None else ratio * 100


def _said_cost(figures: Figures) -> str:
    return per_task(figures.cost_per_successful_task)


def _said_retry(figures: Figures) -> str:
    return share(figures.retry_ratio)


def _not_served(figures: Figures) -> Decimal | None:
    return figures.wasted.gbp


def _of_failed_tasks(figures: Figures) -> Decimal | None:
    whole, part = figures.wasted_finally.gbp, figures.wasted.gbp
    return None if whole is None or part is None else whole - part
