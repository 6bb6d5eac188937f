"""What a benchmark gives: one measured value, and what it is held against.

Invariant: a ratio is always ours over the other's, both measured in the same run.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Figure:
    """One line. ``against`` names the other side; without one there is no ratio."""

    name: str
    value: float
    unit: str
    against: str | None = None
    ratio: float | None = None

    def line(self) -> str:
        """As JSON; six significant digits say more than any of these measurements knows."""
        fields = asdict(self)
        for name in ("value", "ratio"):
            if fields[name] is not None:
                fields[name] = float(f"{fields[name]:.6g}")
        return json.dumps(fields)


def say(text: str) -> None:
    """About the run, for people."""
    print(text, file=sys.stderr, flush=True)


def interleaved(
    subjects: Mapping[str, Callable[[], float]], rounds: int
) -> dict[str, Sequence[float]]:
    """Each subject once a round, so that a slow moment of the machine hits all of them."""
    results: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(rounds):
        for name, measure in subjects.items():
            results[name].append(measure())
    return {name: tuple(values) for name, values in results.items()}


def medians(results: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The median of each."""
    return {name: median(values) for name, values in results.items()}


def per_call_us(run: Callable[[int], None], calls: int) -> float:
    """Microseconds of processor that one of ``calls`` calls takes inside ``run(calls)``.

    Processor time and not the clock on the wall: what is measured waits for nothing, and the
    machine may be doing other things.
    """
    began = time.process_time()
    run(calls)
    return (time.process_time() - began) / calls * 1e6
