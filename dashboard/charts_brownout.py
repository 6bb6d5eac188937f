"""The brownout replay as a page: the ramp, the failing provider's breaker, attempts and retries.

Reads what ``python -m gateway.brownout --json`` prints, so this side needs nothing of the gateway.
Invariant: the page is one file that loads nothing; every policy has the same axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

COLOURS = {"Closed": "#2f9c8b", "HalfOpen": "#b97a08", "Open": "#cf3f2c"}
_FIRSTS, _RETRIES, _FAILURES, _RATE = "#8a94a3", "#b97a08", "#cf3f2c", "#3a4350"
_FIGURES = (
    ("wasted", "wasted tokens per 1,000 sessions", ",.0f"),
    ("p99_s", "p99 of a request, s", ".2f"),
    ("errors", "user-facing 5xx per 1,000 sessions", ",.1f"),
    ("load", "load on the failing provider, × normal", ".4f"),
)
_LANE_PX, _CHART_PX, _RAMP_PX = 26, 150, 120


class Unreadable(ValueError):
    """The JSON is not a run of the brownout; the message names what is missing."""


def page(run: Mapping[str, Any]) -> str:
    """The whole page. Raises ``Unreadable``."""
    try:
        chart = figure(run).to_html(full_html=False, include_plotlyjs=True)
        table = _table(run)
    except (KeyError, TypeError) as error:
        raise Unreadable(f"not the output of gateway.brownout --json: {error}") from error
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Brownout</title><style>'
        "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem}"
        "table{border-collapse:collapse;margin:1rem 0}td,th{padding:.25rem .75rem;text-align:right;"
        "border-bottom:1px solid #d7dbe0}td:first-child,th:first-child{text-align:left}</style>"
        "<h1>A 40-minute brownout, replayed</h1><p>Simulated traffic in virtual time through the "
        "gateway's own breaker, budgets and request loop. Minute 0 is when the first provider "
        f"begins to fail. A breaker's lane: {_keys()}.</p>{table}{chart}</html>"
    )


def figure(run: Mapping[str, Any]) -> go.Figure:
    """The ramp on top; below it each policy's lane and its calls a minute."""
    policies: Mapping[str, Any] = run["policies"]
    if not policies:
        raise KeyError("policies")
    minutes = int(run["model"]["ramp_s"] // 60)
    heights = [_RAMP_PX] + [_LANE_PX, _CHART_PX] * len(policies)
    titles = ["share of the first provider's calls that fail, %"]
    for told in policies.values():
        titles += [f"<b>{escape(told['title'])}</b>", ""]
    drawn = make_subplots(
        rows=len(heights),
        cols=1,
        shared_xaxes=True,
        vertical_spacing=0.022,
        row_heights=[height / sum(heights) for height in heights],
        subplot_titles=titles,
    )
    _ramp(drawn, run["model"])
    most = max(m["attempts"] for told in policies.values() for m in told["minutes"])
    for place, told in enumerate(policies.values()):
        _lane(drawn, 2 + 2 * place, run, told["transitions"], minutes)
        _calls(drawn, 3 + 2 * place, told["minutes"], most, legend=place == 0)
    drawn.update_xaxes(range=[0, minutes], showgrid=False)
    drawn.update_xaxes(title_text="minute", row=len(heights), col=1)
    drawn.update_layout(
        height=sum(heights) + 40 * len(heights),
        barmode="stack",
        bargap=0.1,
        template="plotly_white",
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        margin={"l": 60, "r": 20, "t": 90, "b": 50},
    )
    return drawn


def _ramp(drawn: go.Figure, model: Mapping[str, Any]) -> None:
    ends = [100 * model["base_error_rate"], 100 * model["peak_error_rate"]]
    line = go.Scatter(
        x=[0, model["ramp_s"] / 60], y=ends, line={"color": _RATE}, showlegend=False, name="fails"
    )
    drawn.add_trace(line, row=1, col=1)


def _lane(
    drawn: go.Figure,
    row: int,
    run: Mapping[str, Any],
    transitions: Sequence[Mapping[str, Any]],
    minutes: int,
) -> None:
    """One bar for each stretch in one state; a policy without a breaker has an empty lane."""
    first = run["model"]["circuits"][0]
    name = f"{first[0]}/{first[1]}"
    steps = [step for step in transitions if step["circuit"] == name]
    ends = [*(step["at_s"] / 60 for step in steps[1:]), float(minutes)]
    for state, colour in COLOURS.items():
        spans = (
            [
                (max(0.0, step["at_s"] / 60), end)
                for step, end in zip(steps, ends, strict=True)
                if step["to"] == state and end > 0
            ]
            if steps
            else []
        )
        bar = go.Bar(
            x=[end - begin for begin, end in spans],
            base=[begin for begin, _ in spans],
            y=["breaker"] * len(spans),
            orientation="h",
            marker={"color": colour, "line": {"width": 0}},
            name=state,
            legendgroup=state,
            showlegend=False,
            hovertemplate=f"{state} from minute %{{base:.2f}} for %{{x:.2f}} min<extra></extra>",
        )
        drawn.add_trace(bar, row=row, col=1)
    said = {} if steps else {"ticktext": ["no breaker"], "tickvals": ["breaker"]}
    drawn.update_yaxes(row=row, col=1, categoryarray=["breaker"], type="category", **said)


def _calls(
    drawn: go.Figure, row: int, minutes: Sequence[Mapping[str, int]], most: int, *, legend: bool
) -> None:
    at = [place + 0.5 for place in range(len(minutes))]
    retries = [minute["retries"] for minute in minutes]
    others = [minute["attempts"] - minute["retries"] for minute in minutes]
    for name, values, colour in (
        ("first attempts a minute, failing provider", others, _FIRSTS),
        ("retries a minute", retries, _RETRIES),
    ):
        bar = go.Bar(
            x=at, y=values, name=name, marker={"color": colour}, legendgroup=name, showlegend=legend
        )
        drawn.add_trace(bar, row=row, col=1)
    failures = go.Scatter(
        x=at,
        y=[minute["failures"] for minute in minutes],
        name="of these failed",
        legendgroup="failed",
        showlegend=legend,
        line={"color": _FAILURES, "width": 1.5},
    )
    drawn.add_trace(failures, row=row, col=1)
    drawn.update_yaxes(row=row, col=1, range=[0, most * 1.05], rangemode="tozero")


def _keys() -> str:
    return ", ".join(f'<b style="color:{colour}">{name}</b>' for name, colour in COLOURS.items())


def _table(run: Mapping[str, Any]) -> str:
    policies = run["policies"].values()
    head = "".join(f"<th>{escape(told['title'])}</th>" for told in policies)
    rows = ""
    for name, label, form in _FIGURES:
        cells = "".join(f"<td>{_cell(told, name, form)}</td>" for told in policies)
        rows += f"<tr><td>{label}</td>{cells}</tr>"
    return f"<table><tr><th></th>{head}</tr>{rows}</table>"


def _cell(told: Mapping[str, Any], name: str, form: str) -> str:
    text = format(told["figures"][name], form)
    published = told.get("published")
    return f"{text}<br><small>published {published[name]:,}</small>" if published else text
