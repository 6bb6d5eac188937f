"""The sheet that an incident's rows are laid on: from the top down, over one time axis.

Invariant: there is one x axis; a row is a y axis with a domain of its own, given in pixels. Times
are written as local times of the reader's zone, because the axis has no zone of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

LEFT, RIGHT = 170, 16
_HEAD, _TOP, _BOTTOM = 30, 6, 40
_DOT = 4  # pixels across
_TICKS = [
    {"dtickrange": [None, 60000], "value": "%H:%M:%S"},
    {"dtickrange": [60000, 86400000], "value": "%H:%M"},
    {"dtickrange": [86400000, None], "value": "%-d %b"},
]


class Sheet:
    """Rows from the top down, in pixels; they become domains when the height is known."""

    def __init__(self, since: datetime, until: datetime, zone: ZoneInfo, left: int = LEFT) -> None:
        self.since, self.until, self.zone, self.left = since, until, zone, left
        self.data: list[dict[str, Any]] = []
        self.places: dict[str, tuple[float, float]] = {}
        self.axes: dict[str, dict[str, Any]] = {}
        self.heads: list[tuple[float, str, str]] = []
        self.notes: list[dict[str, Any]] = []
        self.down = 26.0  # room for two lines of marks' words

    def local(self, at: datetime) -> str:
        """A moment as the axis reads it."""
        return at.astimezone(self.zone).replace(tzinfo=None).isoformat(timespec="milliseconds")

    def row(self, key: str, height: float, title: str, note: str, **axis: Any) -> str:
        """Take the next ``height`` pixels for one y axis; returns its name in traces."""
        self.down += _HEAD
        self.heads.append((self.down, title, note))
        name = f"y{len(self.places) + 1}" if self.places else "y"
        self.places[name] = (self.down, self.down + height)
        self.axes[name.replace("y", "yaxis")] = axis
        self.down += height
        return name

    def limit(self, y: str, per_cent: float, words: str) -> None:
        """A limit: a purple dash over the whole axis, its words on the line."""
        self.data.append({
            "type": "scatter", "mode": "lines", "name": words, "yaxis": y,
            "x": [self.local(self.since), self.local(self.until)], "y": [per_cent, per_cent],
            "line": {"color": "--hand-fill", "width": 1.4, "dash": "dash"}, "hoverinfo": "skip",
        })  # fmt: skip
        self.notes.append({
            "xref": "paper", "yref": y, "x": 0, "y": per_cent, "xanchor": "left",
            "yanchor": "bottom", "showarrow": False, "xshift": 4, "text": words,
            "font": {"color": "--hand-ink", "size": 11},
        })  # fmt: skip

    def chart(self, key: str, height: float, title: str, note: str, **axis: Any) -> str:
        """A row with a numeric axis from zero."""
        return self.row(
            key, height, title, note, fixedrange=True, rangemode="tozero", gridcolor="--rule",
            zerolinecolor="--edge", color="--ink-soft", nticks=4, **axis,
        )  # fmt: skip

    def line(
        self, y: str, name: str, values: Sequence[float | None], colour: str, **more: Any
    ) -> dict[str, Any]:
        """A trace of minutes from the beginning; None is a gap, a minute between two is a dot."""
        begin = self.since.replace(second=0, microsecond=0)
        dots: dict[str, Any] = {}
        if any(alone := _alone(values)):
            shown = colour or more.get("line", {}).get("color") or more.get("fillcolor")
            sizes = [_DOT if each else 0 for each in alone]
            dots = {"mode": "lines+markers", "marker": {"color": shown, "size": sizes}}
        return {
            "type": "scatter", "mode": "lines", "name": name, "yaxis": y,
            "x": [self.local(begin + timedelta(minutes=i)) for i in range(len(values))],
            "y": list(values), "connectgaps": False, "line": {"color": colour, "width": 1.4},
            "hovertemplate": "%{x|%H:%M}: %{y:.3~g}<extra>" + name + "</extra>",
        } | dots | more  # fmt: skip

    def figure(self, marks: list[dict[str, Any]], shapes: list[dict[str, Any]]) -> dict[str, Any]:
        """The whole."""
        height = self.down
        for key, (top, bottom) in self.places.items():
            axis = self.axes[key.replace("y", "yaxis")]
            axis["domain"] = [max(0.0, 1 - bottom / height), 1 - top / height]
        heads = [
            _head(1 - down / height, title, note, self.left) for down, title, note in self.heads
        ]
        last = list(self.places)[-1]
        return {
            "data": self.data,
            "layout": {
                "height": round(height + 46),
                "margin": {"l": self.left, "r": RIGHT, "t": 6, "b": 40, "pad": 0},
                "paper_bgcolor": "--panel",
                "plot_bgcolor": "--panel",
                "font": {"color": "--ink-soft", "size": 11},
                "showlegend": False,
                "barmode": "overlay",
                "dragmode": "zoom",
                "hovermode": "closest",
                "hoverlabel": {
                    "bgcolor": "--panel",
                    "bordercolor": "--edge",
                    "font": {"color": "--ink"},
                },
                "annotations": [*heads, *self.notes, *marks],
                "shapes": shapes,
                "xaxis": {
                    "type": "date",
                    "anchor": last,
                    "range": [self.local(self.since), self.local(self.until)],
                    "color": "--ink-soft",
                    "gridcolor": "--rule",
                    "showgrid": False,
                    "linecolor": "--edge",
                    "showline": True,
                    "ticks": "outside",
                    "tickcolor": "--edge",
                    "tickformatstops": _TICKS,
                },
            }
            | self.axes,
        }


def _alone(values: Sequence[float | None]) -> list[bool]:
    """Which values have no known neighbour: neither a line nor an area would draw them."""
    padded = [None, *values, None]
    return [
        value is not None and padded[place] is None and padded[place + 2] is None
        for place, value in enumerate(values)
    ]


def _head(y: float, title: str, note: str, left: int) -> dict[str, Any]:
    words = f"<b>{title}</b>  <span style='font-size:11px'>{note}</span>"
    return {
        "name": "head", "xref": "paper", "yref": "paper", "x": 0, "y": y, "xshift": -left + 8,
        "yshift": 4,
        "xanchor": "left", "yanchor": "bottom", "showarrow": False, "text": words,
        "font": {"size": 12, "color": "--ink"},
    }  # fmt: skip
