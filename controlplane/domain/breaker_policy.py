"""The words and the settings of a circuit breaker: states, modes, causes, policy, reports.

Invariant: everything here is frozen data. Ratios are whole thousandths so that a threshold such as
0.1 is met exactly; durations are seconds; times are the owner's monotonic seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from controlplane.domain.verdict import Kind, Verdict


class State(StrEnum):
    """The automatic breaker's own state."""

    CLOSED = "Closed"
    OPEN = "Open"
    HALF_OPEN = "HalfOpen"


class Mode(StrEnum):
    """The layer above the states: what a person (or nobody: Auto) has decided."""

    AUTO = "Auto"
    FORCE_OPEN = "ForceOpen"
    FORCE_CLOSED = "ForceClosed"
    OBSERVE_ONLY = "ObserveOnly"


class Cause(StrEnum):
    """Why a transition happened. A closed list: screens and reports have a sentence for each."""

    BOOT = "Boot"
    CONSECUTIVE_FAILURES = "ConsecutiveFailures"
    FAILURE_RATIO = "FailureRatio"
    SLOW_CALLS = "SlowCalls"
    OPEN_PERIOD_OVER = "OpenPeriodOver"
    PROBE_SUCCEEDED = "ProbeSucceeded"
    PROBE_FAILED = "ProbeFailed"
    STUCK = "Stuck"
    OVERRIDE_EXPIRED = "OverrideExpired"
    OVERRIDE_RELEASED = "OverrideReleased"
    PROBE_NOW = "ProbeNow"
    RESET = "Reset"
    SIBLING = "Sibling"


class Outcome(IntEnum):
    """What a finished call says about its circuit. NEUTRAL frees its place and decides nothing."""

    SUCCESS = 0
    FAILURE = 1
    NEUTRAL = 2


def outcome_of(verdict: Verdict) -> Outcome:
    """The breaker's view of a verdict: the request's, the caller's and our own faults say nothing.

    A stream that broke after output is a failure exactly when the classifier counted it.
    """
    if verdict.counts_against_breaker:
        return _FAILURE
    return _SUCCESS if verdict.kind is _OK else _NEUTRAL


# Reading a member off its Enum class costs several times a module global in CPython 3.11, and
# this runs on every call.
_SUCCESS, _FAILURE, _NEUTRAL, _OK = Outcome.SUCCESS, Outcome.FAILURE, Outcome.NEUTRAL, Kind.SUCCESS


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When to trip, how long to stay open, how to come back. Each way of tripping is optional.

    ``failure_ratio`` and ``slow_ratio`` are thousandths of the calls in the window, which is the
    last ``window_calls`` calls if that is set, else the last ``window_seconds``. A probe's place is
    given back after ``probe_lease_seconds``; its late result still counts. ``ramp_shares`` are
    thousandths of ``full_concurrency`` allowed in each step of ``ramp_step_seconds`` after closing.
    Raises ``ValueError`` naming the field.
    """

    consecutive_failures: int | None = 5
    failure_ratio: int | None = None
    slow_ratio: int | None = None
    slow_call_seconds: float = 30.0
    minimum_calls: int = 20
    window_seconds: float = 60.0
    window_calls: int | None = None
    open_seconds: float = 10.0
    open_seconds_cap: float = 60.0
    half_open_probes: int = 1
    probe_lease_seconds: float = 30.0
    close_after: int = 1
    half_open_max_seconds: float = 60.0
    ramp_shares: tuple[int, ...] = (100, 250, 500)
    ramp_step_seconds: float = 5.0
    full_concurrency: int = 64

    def __post_init__(self) -> None:
        for name in _WHOLE_FROM_1:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value!r}")
        for name in _ABOVE_0:
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be above 0 seconds, got {getattr(self, name)!r}")
        for name in ("failure_ratio", "slow_ratio"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= 1000:
                raise ValueError(f"{name} must be 1 to 1000 thousandths, got {value!r}")
        if self.open_seconds_cap < self.open_seconds:
            raise ValueError("open_seconds_cap must not be below open_seconds")
        if any(not 1 <= share <= 1000 for share in self.ramp_shares):
            raise ValueError("ramp_shares must each be 1 to 1000 thousandths")

    def open_for(self, trips: int) -> float:
        """The open period of the trip that follows ``trips`` earlier ones: doubled up to the cap.

        The exponent is bounded: 2.0 ** 1024 would overflow on a circuit that never recovers.
        """
        return min(self.open_seconds_cap, self.open_seconds * 2.0 ** min(trips, 60))


_WHOLE_FROM_1 = (
    "consecutive_failures",
    "minimum_calls",
    "window_calls",
    "half_open_probes",
    "close_after",
    "full_concurrency",
)
_ABOVE_0 = (
    "slow_call_seconds",
    "window_seconds",
    "open_seconds",
    "open_seconds_cap",
    "probe_lease_seconds",
    "half_open_max_seconds",
    "ramp_step_seconds",
)


@dataclass(frozen=True, slots=True)
class Counters:
    """What the breaker had counted: of the window, and of the current HalfOpen."""

    calls: int = 0
    failures: int = 0
    slow: int = 0
    consecutive: int = 0
    probe_successes: int = 0


@dataclass(frozen=True, slots=True)
class Transition:
    """One change of the automatic state. ``number`` rises by one per circuit and boot.

    ``at`` is when it took effect, which for a deadline is the deadline and not the call that
    noticed it. ``mode`` was in force then: under a forced mode this is what *would* have happened.
    """

    number: int
    from_state: State
    to_state: State
    cause: Cause
    at: float
    counters: Counters
    next_probe_at: float | None = None
    mode: Mode = Mode.AUTO


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The breaker at one moment, for status reports. ``ramp_share`` is in thousandths."""

    state: State
    mode: Mode
    mode_until: float | None
    since: float
    number: int
    cause: Cause
    next_probe_at: float | None
    ramp_share: int
    in_flight: int
    probes_out: int
    trips: int
    counters: Counters

    @property
    def would_be(self) -> State | None:
        """The state that the automatic breaker would have shown; None when it is in charge."""
        return None if self.mode is Mode.AUTO else self.state
