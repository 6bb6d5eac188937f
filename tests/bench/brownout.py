"""The brownout's table: every policy over three attempts, always (docs/brownout.md)."""

from __future__ import annotations

import os
from collections.abc import Iterator

from gateway.brownout.__main__ import run
from gateway.brownout.calibration import TOLERANCE, misses
from gateway.brownout.model import NAMES, Model
from gateway.brownout.policies import ALWAYS, POLICIES
from tests.bench.figures import Figure, say

UNITS = {"wasted": "tokens/1000 sessions", "p99_s": "s", "errors": "5xx/1000 sessions", "load": "x"}


def measure() -> Iterator[Figure]:
    """Four figures a policy. A first column that no longer holds is said, and still printed."""
    tallies = run(Model(), list(POLICIES), jobs=os.cpu_count() or 1)
    columns = {name: tally.column() for name, tally in tallies.items()}
    first = columns.pop(ALWAYS.name)
    for name, miss in misses(first).items():
        if abs(miss) > TOLERANCE:
            say(f"the calibration no longer holds: {name} misses by {miss:+.1%}")
    for field in NAMES:
        base = getattr(first, field)
        yield Figure(f"brownout.always.{field}", base, UNITS[field])
        for policy, column in columns.items():
            value = getattr(column, field)
            yield Figure(
                f"brownout.{policy}.{field}", value, UNITS[field], ALWAYS.title, value / base
            )
