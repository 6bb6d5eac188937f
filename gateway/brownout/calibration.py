"""How the four free numbers were found: on the column "three attempts, always" and nothing else.

Each free number moves one figure most: ``turns`` the errors, ``asks_again`` the load, ``breaks``
the wasted tokens, ``hangs`` the 99th percentile. The first three are corrected in proportion after
every run; ``hangs``, whose figure moves in steps of a whole timeout, is found by bisection.
Deterministic. Invariant: no policy but ``always`` is ever run here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gateway.brownout.model import NAMES, OBSERVED, Calibrated, Column, Model
from gateway.brownout.policies import ALWAYS
from gateway.brownout.replay import replay

START = Calibrated(turns=3.0, asks_again=0.5, hangs=0.2, breaks=0.05)
SETTLING = 3
BISECTIONS = 9
SCALE = 0.2
TOLERANCE = 0.10

Say = Callable[[str], None]


def calibrate(model: Model, say: Say = lambda line: None) -> Calibrated:
    """The free numbers, rounded to three digits. ``model.scale`` decides how long it takes."""
    free = START
    low, high = 0.02, 0.6
    for step in range(SETTLING + BISECTIONS):
        column = replay(replace(model, free=free), ALWAYS).column()
        say(f"{step:2} {free} -> {column}")
        free = _corrected(free, column)
        if step >= SETTLING:
            low, high = (free.hangs, high) if column.p99_s < OBSERVED.p99_s else (low, free.hangs)
            free = replace(free, hangs=(low + high) / 2)
    return Calibrated(*(float(f"{getattr(free, n):.3g}") for n in Calibrated.__slots__))


def misses(column: Column) -> dict[str, float]:
    """By how much (0.1 is 10 % too much) each figure misses what was observed."""
    return {name: getattr(column, name) / getattr(OBSERVED, name) - 1 for name in NAMES}


def _corrected(free: Calibrated, column: Column) -> Calibrated:
    # An error brings a share of asks_again more requests with it, so the load moves less than
    # in proportion to it: q is about how many requests fail at the end of the ramp.
    q = 0.42
    asks_again = free.asks_again + (OBSERVED.load / column.load - 1) * (
        (1 - free.asks_again * q) / q
    )
    return Calibrated(
        turns=max(1.0, free.turns * OBSERVED.errors / column.errors),
        asks_again=min(0.95, max(0.0, asks_again)),
        hangs=free.hangs,
        breaks=min(0.5, free.breaks * OBSERVED.wasted / column.wasted),
    )
