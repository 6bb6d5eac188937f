"""Every number of the brownout model, with its unit. The reasons stand in docs/brownout.md.

Invariant: the four numbers in ``CALIBRATED`` are what ``--calibrate`` found on the column
"three attempts, always" alone; no other policy has been looked at to choose any number here.

Units: seconds of virtual time, 0 when the ramp begins; tokens; shares and rates from 0 to 1.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import exp, log
from typing import Final

from controlplane.domain.circuit import Circuit

P99_OF_NORMAL: Final = 2.3263478740408408  # the 99th percentile of the standard normal distribution


@dataclass(frozen=True, slots=True)
class Column:
    """The figures by which policies are compared; the first three per 1,000 sessions or requests.

    ``wasted``: tokens billed for calls that failed, per 1,000 sessions. ``p99_s``: 99th percentile
    of a request's time. ``errors``: 5xx that a user saw, per 1,000 sessions. ``load``: attempts per
    minute on the failing provider in the last 10 minutes, over normal.
    """

    wasted: float
    p99_s: float
    errors: float
    load: float


OBSERVED: Final = Column(wasted=41_200, p99_s=62.0, errors=610, load=2.9)
"""What was published of the incident under three attempts, always: the only calibration target."""

PUBLISHED: Final = {
    "always": OBSERVED,
    "breaker": Column(wasted=12_900, p99_s=18.0, errors=44, load=1.1),
    "defaults": Column(wasted=4_800, p99_s=4.9, errors=19, load=0.4),
}
"""The whole published table, by the nearest of our policies: printed beside ours, never aimed at.
Its load is a peak, ours a mean."""


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The free numbers. ``turns``: mean requests of a session. ``asks_again``: the share of users
    who send the same request again after an error. ``hangs``, ``breaks``: shares of the failing
    calls; the rest are rejected at once."""

    turns: float
    asks_again: float
    hangs: float
    breaks: float


CALIBRATED: Final = Calibrated(turns=2.69, asks_again=0.608, hangs=0.312, breaks=0.0556)


@dataclass(frozen=True, slots=True)
class Model:
    """One world. ``scale`` thins the arrivals out, for quick runs of policies without memory."""

    free: Calibrated = CALIBRATED
    seed: int = 1
    scale: float = 1.0
    warm_up_s: float = 60.0
    ramp_s: float = 40 * 60.0
    concurrent: float = 200.0
    sessions_per_s: float = 41.5
    base_error_rate: float = 0.01
    peak_error_rate: float = 0.85
    median_call_s: float = 1.0
    p99_call_s: float = 4.0
    rejected_s: tuple[float, float] = (0.1, 0.5)
    prompt_tokens: int = 180
    answer_tokens: int = 120
    circuits: tuple[Circuit, ...] = (
        Circuit("alpha", "chat"),
        Circuit("beta", "chat"),
        Circuit("gamma", "chat"),
    )

    def __post_init__(self) -> None:
        if not 0 < self.scale <= 1:
            raise ValueError(f"scale must be above 0 and at most 1, got {self.scale!r}")
        if not self.free.turns >= 1:
            raise ValueError(f"turns must be at least 1, got {self.free.turns!r}")
        if self.pause_s < 0:
            raise ValueError("so many turns do not fit into a session: turns is too high")

    @property
    def failing(self) -> Circuit:
        """The circuit that browns out; it is every route's first target."""
        return self.circuits[0]

    @property
    def call_sigma(self) -> float:
        """The spread of a good call's lognormal time."""
        return log(self.p99_call_s / self.median_call_s) / P99_OF_NORMAL

    @property
    def mean_call_s(self) -> float:
        """A good call's mean time."""
        return self.median_call_s * exp(self.call_sigma**2 / 2)

    @property
    def pause_s(self) -> float:
        """The mean pause after each turn: what is left of a session's length by Little's law."""
        return self.concurrent / self.sessions_per_s / self.free.turns - self.mean_call_s

    @property
    def normal_per_minute(self) -> float:
        """Attempts a minute on the first target when nothing fails."""
        return 60 * self.sessions_per_s * self.scale * self.free.turns

    def error_rate(self, circuit: Circuit, at: float) -> float:
        """The share of this circuit's calls begun at ``at`` that fail. It stays at its peak."""
        if circuit != self.failing:
            return self.base_error_rate
        gone = min(1.0, max(0.0, at / self.ramp_s))
        return self.base_error_rate + gone * (self.peak_error_rate - self.base_error_rate)


NAMES: Final = tuple(field.name for field in fields(Column))
