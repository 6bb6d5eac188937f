"""Paths of inline SVG: the quarter-hour's attempts, the state lane under it, the instance cells.

Invariant: every drawing is a fixed set of path strings, so that the wall patches attributes and
never builds nodes; height carries the state, colour only repeats it. Boxes: 240 x 18 (area),
240 x 6 (lane), 240 x 8 (cells); SVG stretches them to the card's width.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

WIDTH = 240.0
AREA_HEIGHT = 18.0
LANE_HEIGHT = 6.0
CELL_HEIGHT = 8.0
MANY = 24  # above this many instances, equal neighbours become one segment


def _n(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


def box(x: float, y: float, width: float, height: float) -> str:
    """One rectangle of a path."""
    return f"M{_n(x)} {_n(y)}h{_n(width)}v{_n(height)}h{_n(-width)}z"


def area(values: Sequence[float | None], top: float) -> str:
    """A filled area over the box; None is a gap, not a zero. Empty when nothing is known."""
    if len(values) < 2 or top <= 0:
        return ""
    step = WIDTH / (len(values) - 1)
    parts: list[str] = []
    for known, run in groupby(enumerate(values), key=lambda pair: pair[1] is not None):
        points = [(i * step, v) for i, v in run if v is not None]
        if not known or len(points) < 2:
            continue
        line = "L".join(
            f"{_n(x)} {_n(AREA_HEIGHT - min(v / top, 1) * AREA_HEIGHT)}" for x, v in points
        )
        parts.append(
            f"M{_n(points[0][0])} {_n(AREA_HEIGHT)}L{line}L{_n(points[-1][0])} {_n(AREA_HEIGHT)}z"
        )
    return "".join(parts)


def line(values: Sequence[float | None], top: float, height: float = AREA_HEIGHT) -> str:
    """A stroked line over the box's width; None breaks it."""
    if len(values) < 2:
        return ""
    step = WIDTH / (len(values) - 1)
    parts: list[str] = []
    for known, run in groupby(enumerate(values), key=lambda pair: pair[1] is not None):
        points = [(i * step, v) for i, v in run if v is not None]
        if not known or len(points) < 2:
            continue
        scale = (height - 2) / top if top > 0 else 0
        parts.append("M" + "L".join(f"{_n(x)} {_n(height - 1 - v * scale)}" for x, v in points))
    return "".join(parts)


# kind of a slot in a lane -> (top, height) of its block within LANE_HEIGHT
_LANE_BLOCKS = {
    "closed": (4.5, 1.5),
    "half": (3.0, 3.0),
    "open": (0.0, 6.0),
    "part": (0.0, 6.0),
    "gap": (0.0, 6.0),
}


def lane(slots: Sequence[str]) -> dict[str, str]:
    """Paths by kind for equal slots of time. ``hand-`` before a kind adds the cap of a person."""
    found, at = [], 0
    for kind, run in groupby(slots):
        length = len(list(run))
        found.append((at / len(slots), (at + length) / len(slots), kind))
        at += length
    return stretches(found)


def stretches(found: Iterable[tuple[float, float, str]]) -> dict[str, str]:
    """Paths by kind for stretches of a lane, each from and to a share of its width."""
    paths = dict.fromkeys([*_LANE_BLOCKS, "hand"], "")
    for begin, end, kind in found:
        x, width = begin * WIDTH, (end - begin) * WIDTH
        base = kind.removeprefix("hand-")
        top, height = _LANE_BLOCKS[base]
        if base != kind:
            paths["hand"] += box(x, 0, width, 2)
            top, height = max(top, 3.0), min(height, 3.0)
        paths[base] += box(x, top, width, height)
    return paths


# kind of an instance's cell -> (top, height) within CELL_HEIGHT
_CELL_BLOCKS = {
    "closed": (6.0, 2.0),
    "half": (4.0, 4.0),
    "open": (0.0, 8.0),
    "unknown": (0.0, 8.0),
    "reject": (0.8, 6.4),
    "silent": (0.5, 7.0),
}


def cells(kinds: Iterable[str]) -> dict[str, str]:
    """Paths by kind, one cell an instance, in the order given."""
    each = list(kinds)
    paths = dict.fromkeys([*_CELL_BLOCKS, "hand"], "")
    if not each:
        return paths
    step = WIDTH / max(len(each), 6)
    gap = 2.0 if len(each) <= MANY else 0.0
    at = 0
    runs = [(kind, 1) for kind in each]
    if len(each) > MANY:
        runs = [(kind, len(list(run))) for kind, run in groupby(each)]
    for kind, length in runs:
        x, width = at * step, length * step - max(gap, 1.0)
        base = kind.removeprefix("hand-")
        top, height = _CELL_BLOCKS[base]
        if base != kind:
            paths["hand"] += box(x, 0, width, 2.6)
            top, height = max(top, 4.0), min(height, 4.0)
        paths[base] += box(x, top, width, height)
        at += length
    return paths
