"""The table of a run: each policy's figures, what was published, and the share of the first column.

Invariant: a figure is rounded here and nowhere else; a ratio is made from unrounded figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from gateway.brownout.calibration import misses
from gateway.brownout.model import PUBLISHED, Column, Model
from gateway.brownout.policies import POLICIES
from gateway.brownout.tally import Tally

_ROWS = (
    ("wasted", "wasted tokens per 1,000 sessions", ",.0f"),
    ("p99_s", "p99 of a request, seconds", ".2f"),
    ("errors", "user-facing 5xx per 1,000 sessions", ",.1f"),
    ("load", "load on the failing provider, x normal", ".4f"),
)


def document(model: Model, tallies: Mapping[str, Tally]) -> dict[str, Any]:
    """The run as JSON: model, figures, series and transitions of every policy that was run."""
    columns = {name: tally.column() for name, tally in tallies.items()}
    first = columns.get("always")
    told: dict[str, Any] = {}
    for name, tally in tallies.items():
        entry: dict[str, Any] = {"title": POLICIES[name].title, "figures": asdict(columns[name])}
        if first is not None and name != "always":
            entry["over_always"] = _over(columns[name], first)
        if name in PUBLISHED:
            entry["published"] = asdict(PUBLISHED[name])
        told[name] = {**entry, **tally.told()}
    whole: dict[str, Any] = {"model": asdict(model), "policies": told}
    if first is not None:
        whole["calibration_misses"] = misses(first)
    return whole


def text(model: Model, tallies: Mapping[str, Tally]) -> str:
    """The same for people: one line a figure, one column a policy."""
    columns = {name: tally.column() for name, tally in tallies.items()}
    lines = [["", *(POLICIES[name].title for name in columns)]]
    for field, label, form in _ROWS:
        lines.append([label, *(format(getattr(c, field), form) for c in columns.values())])
        published = [
            format(getattr(PUBLISHED[name], field), form) if name in PUBLISHED else ""
            for name in columns
        ]
        lines.append(["    published", *published])
        first = columns.get("always")
        if first is not None:
            ratios = [_against(getattr(c, field), getattr(first, field)) for c in columns.values()]
            lines.append(["    against three attempts, always", *ratios])
    head = f"seed {model.seed}, scale {model.scale:g}, {next(iter(tallies.values())).sessions:,}"
    return f"{head} sessions\n\n{_aligned(lines)}"


def _over(column: Column, first: Column) -> dict[str, float]:
    return {field: getattr(column, field) / getattr(first, field) for field, _, _ in _ROWS}


def _against(value: float, first: float) -> str:
    return "-" if value == first else f"{(value / first - 1) * 100:+.1f} %"


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    rows = []
    for line in lines:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        rows.append("  ".join(cells).rstrip())
    return "\n".join(rows)
