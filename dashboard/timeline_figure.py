"""An incident as one Plotly figure: every row over the same time axis.

Invariant: there is one x axis, so zoom and pan can never put two rows out of step; a minute of
which nothing is known is a gap. Times are written as local times of the reader's zone, because the
axis has no zone of its own. Colours are names of tokens.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from controlplane.reports.incident import Incident, Minute
from dashboard import present
from dashboard.timeline import Lane
from dashboard.timeline_sheet import Sheet

_ROW, _CHART = 20, 84
_REASONS = 4
_LETTERS = 112  # of 11 px that the axis holds on a screen of 1024
# kind of a span -> (colour, height of its block in a row of 1)
_BLOCKS = {
    "closed": ("--closed-fill", 0.12),
    "half": ("--half-fill", 0.38),
    "part": ("--open-pale", 0.72),
    "open": ("--open-fill", 0.72),
    "gap": ("--unk-wash", 0.72),
}
_WORDS = {
    "closed": "Closed",
    "half": "HalfOpen or ramping",
    "part": "Open on some instances",
    "open": "Open",
    "gap": "no data",
}
_STACK = ["--open-fill", "--half-fill", "--info-ink", "--hand-fill", "--unk-fill"]


@dataclass(frozen=True, slots=True)
class Rows:
    """What is drawn: circuits' lanes, instances' lanes below them, and silent instances."""

    circuits: list[Lane]
    instances: list[Lane]
    silent: list[Lane]

    @property
    def all(self) -> list[Lane]:
        """From the top down."""
        return [*self.circuits, *self.instances, *self.silent]


class Timeline(Sheet):
    """The sheet of one incident."""

    def __init__(self, incident: Incident, zone: ZoneInfo) -> None:
        super().__init__(incident.since, incident.until, zone)
        self.incident = incident


def figure(incident: Incident, rows: Rows, zone: ZoneInfo) -> dict[str, Any]:
    """The figure of one incident."""
    sheet = Timeline(incident, zone)
    _breakers(sheet, rows)
    if incident.overrides:
        _overrides(sheet)
    minutes = _whole(incident)
    _retries(sheet, minutes)
    _errors(sheet)
    _money(sheet, minutes)
    return sheet.figure(*_marks(sheet))


def _breakers(sheet: Timeline, rows: Rows) -> None:
    lanes = rows.all
    count = max(len(lanes), 1)
    y = sheet.row(
        "lanes", _ROW * count, "Breakers",
        "height is the state; a lane is the state of most instances, pale when some are open",
        range=[-count, 0], fixedrange=True, showgrid=False, zeroline=False, color="--ink-soft",
        tickmode="array", tickvals=[-place - 0.64 for place in range(len(lanes))],
        ticktext=[_tick(lane, rows) for lane in lanes],
    )  # fmt: skip
    blocks: dict[str, list[tuple[int, Any]]] = {kind: [] for kind in _BLOCKS}
    caps: list[tuple[int, Any]] = []
    for place, lane in enumerate(lanes):
        for span in lane.spans:
            blocks[span.kind].append((place, span))
            if span.hand:
                caps.append((place, span))
    for kind, found in blocks.items():
        colour, height = _BLOCKS[kind]
        sheet.data.append(_bars(sheet, y, _WORDS[kind], found, lanes, colour, 0.04, height))
        if kind == "gap":
            sheet.data[-1]["marker"]["pattern"] = {
                "shape": "/", "fgcolor": "--unk-fill", "bgcolor": "--unk-wash", "size": 5,
                "solidity": 0.25,
            }  # fmt: skip
    sheet.data.append(_bars(sheet, y, "by hand", caps, lanes, "--panel", 0.5, 0.1))
    sheet.data.append(_bars(sheet, y, "by hand", caps, lanes, "--hand-fill", 0.6, 0.18))


def _tick(lane: Lane, rows: Rows) -> str:
    indent = "" if lane in rows.circuits else "\u2003"
    return indent + present.cut(lane.name, 24)


def _bars(
    sheet: Timeline, y: str, name: str, found: list[tuple[int, Any]], lanes: list[Lane],
    colour: str, above: float, height: float,
) -> dict[str, Any]:  # fmt: skip
    return {
        "type": "bar", "orientation": "h", "name": name, "yaxis": y,
        "base": [sheet.local(span.begin) for _, span in found],
        "x": [(span.end - span.begin).total_seconds() * 1000 for _, span in found],
        "y": [-place - 1 for place, _ in found],
        "offset": above, "width": height,
        "customdata": [
            f"{lanes[place].name}: {name}, {sheet.local(span.begin)[11:19]} to "
            f"{sheet.local(span.end)[11:19]}" for place, span in found
        ],
        "hovertemplate": "%{customdata}<extra></extra>",
        "marker": {"color": colour, "line": {"width": 0}},
    }  # fmt: skip


def _overrides(sheet: Timeline) -> None:
    hands = sheet.incident.overrides
    y = sheet.row(
        "hands", _ROW * len(hands), "Overrides", "whose hand, and why",
        range=[-len(hands), 0], fixedrange=True, showgrid=False, zeroline=False,
        color="--ink-soft", tickmode="array",
        tickvals=[-place - 0.5 for place in range(len(hands))],
        ticktext=[
            present.plotted(present.cut(f"{h.model or h.provider or 'any'} {h.region}".strip(), 24))
            for h in hands
        ],
    )  # fmt: skip
    for place, hand in enumerate(hands):
        begin = max(hand.created_at, sheet.incident.since)
        end = min(hand.over_at, sheet.incident.until)
        for colour, above, height in (("--hand-wash", 0.1, 0.8), ("--hand-fill", 0.82, 0.12)):
            sheet.data.append({
                "type": "bar", "orientation": "h", "yaxis": y, "name": hand.mode,
                "base": [sheet.local(begin)], "x": [(end - begin).total_seconds() * 1000],
                "y": [-place - 1], "offset": above, "width": height,
                "marker": {"color": colour, "line": {"width": 0}}, "hoverinfo": "skip",
            })  # fmt: skip
        sheet.notes.append(_hand_words(sheet, y, place, hand, begin))


def _hand_words(sheet: Timeline, y: str, place: int, hand: Any, begin: datetime) -> dict[str, Any]:
    """Whose hand and why, cut to the room on that side of its begin that has more."""
    whole = sheet.incident.until - sheet.incident.since
    after = (sheet.incident.until - begin) / whole
    is_right = after >= 0.3
    room = int(_LETTERS * (after if is_right else 1 - after))
    words = f"{hand.mode} · {hand.created_by} · {hand.reason}"
    return {
        "name": "hand", "xref": "x", "yref": y, "x": sheet.local(begin), "y": -place - 0.54,
        "xshift": 4 if is_right else -4, "xanchor": "left" if is_right else "right",
        "yanchor": "middle", "showarrow": False,
        "text": present.plotted(present.clipped(words, max(room, 12))),
        "font": {"color": "--hand-ink", "size": 11},
    }  # fmt: skip


def _whole(incident: Incident) -> list[Minute | None]:
    """Every minute of the stretch up to the last whole one; None where no gateway said anything."""
    known = {row.minute: row for row in incident.minutes}
    at = incident.since.replace(second=0, microsecond=0)
    end = min(incident.until, incident.at - timedelta(minutes=1))
    found = []
    while at < end:
        found.append(known.get(at))
        at += timedelta(minutes=1)
    return found


def _retries(sheet: Timeline, minutes: list[Minute | None]) -> None:
    y = sheet.chart("retries", _CHART, "Retry ratio", "% of first attempts, fleet", ticksuffix="%")
    ratios = [m.retries / m.firsts * 100 if m and m.firsts else None for m in minutes]
    sheet.data.append(sheet.line(y, "retry ratio, %", ratios, "--ink"))
    limit = sheet.incident.limit_per_mille
    if limit is not None:
        sheet.limit(y, limit / 10, f"system budget {present.limit(limit)}")


def _errors(sheet: Timeline) -> None:
    counts = Counter[str]()
    for row in sheet.incident.errors:
        counts[row.reason] += row.count
    named = [reason for reason, _ in counts.most_common(_REASONS)]
    none = "none failed" if sheet.incident.minutes else "none is known of"
    note = "attempts/s" if counts else f"attempts/s; {none}"
    words = " · ".join(
        f"<span style='color:{_STACK[place]}'>■</span> {present.plotted(reason)}"
        for place, reason in enumerate([*named, *(["other"] if len(counts) > len(named) else [])])
    )
    y = sheet.chart("errors", _CHART, "Errors by class", f"{note}  {words}")
    begin = sheet.incident.since.replace(second=0, microsecond=0)
    total = len(_whole(sheet.incident))
    rows: dict[str, list[float | None]] = {}
    for reason in [*named, *(["other"] if len(counts) > len(named) else [])]:
        rows[reason] = [0.0] * total
    for row in sheet.incident.errors:
        place = int((row.minute - begin).total_seconds() // 60)
        key = row.reason if row.reason in rows else "other"
        if 0 <= place < total:
            rows[key][place] = (rows[key][place] or 0) + row.count / 60
    for place, (reason, values) in enumerate(rows.items()):
        stacked = {"stackgroup": "errors", "line": {"width": 0}, "fillcolor": _STACK[place]}
        sheet.data.append(sheet.line(y, f"{present.plotted(reason)}/s", values, "", **stacked))


def _money(sheet: Timeline, minutes: list[Minute | None]) -> None:
    y = sheet.chart("money", _CHART, "Spend",
        "£/min, fleet  <span style='color:--useful'>■</span> useful · "
        "<span style='color:--open-fill'>■</span> wasted", tickprefix="£",
    )  # fmt: skip
    cost = [float(m.cost_gbp) if m else None for m in minutes]
    wasted = [float(m.wasted_gbp) if m else None for m in minutes]
    filled = {"fill": "tozeroy", "line": {"width": 0}}
    said = {"hovertemplate": "%{x|%H:%M}: £%{y:.4f}<extra>%{fullData.name}</extra>"}
    sheet.data.append(sheet.line(y, "spend", cost, "", fillcolor="--useful", **filled, **said))
    sheet.data.append(
        sheet.line(y, "wasted", wasted, "", fillcolor="--open-fill", **filled, **said)
    )


def _marks(sheet: Timeline) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Verticals through every row, their words at the top."""
    words, lines = [], []
    hands = [h.created_at for h in sheet.incident.overrides if h.created_at > sheet.incident.since]
    for at, colour in [(at, "--hand-fill") for at in hands] + [
        (mark.at, "--info-ink") for mark in sheet.incident.marks
    ]:
        lines.append({
            "type": "line", "xref": "x", "yref": "paper", "x0": sheet.local(at),
            "x1": sheet.local(at), "y0": 0, "y1": 1,
            "line": {"color": colour, "width": 1, "dash": "dot"},
        })  # fmt: skip
    for place, mark in enumerate(sheet.incident.marks):
        words.append({
            "name": "mark", "xref": "x", "yref": "paper", "x": sheet.local(mark.at), "y": 1,
            "xanchor": "left", "yanchor": "top", "xshift": 3, "yshift": -14 * (place % 2),
            "showarrow": False,
            "text": present.plotted(present.cut(mark.text, 36)),
            "font": {"color": "--info-ink", "size": 11},
        })  # fmt: skip
    return words, lines
