"""What each simulated provider is like at a moment: a script of phases, looped.

Invariant: ``conditions(at)`` is a pure function of the seconds since the start, so every run of a
scenario plays the same film. Seconds and milliseconds as named; rates are shares of 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum


class Fate(StrEnum):
    """How one call ends."""

    OK = "ok"
    OVERLOADED = "overloaded"  # 503
    RATE_LIMITED = "rate_limited"  # 429 with Retry-After
    QUOTA = "quota"  # 429 whose code says that no wait helps
    SERVER_ERROR = "server_error"  # 500
    BAD_REQUEST = "bad_request"  # 400
    HANG = "hang"  # the request is read, nothing ever comes back
    RESET = "reset"  # the connection is closed instead of an answer
    CUT = "cut"  # the stream or body breaks off in the middle
    STREAM_ERROR = "stream_error"  # an error object inside a 200 stream


BROWNOUT_FAULTS: Mapping[Fate, float] = {
    Fate.OVERLOADED: 0.55,
    Fate.RATE_LIMITED: 0.2,
    Fate.HANG: 0.1,
    Fate.CUT: 0.1,
    Fate.SERVER_ERROR: 0.05,
}
CHAOS_FAULTS: Mapping[Fate, float] = dict.fromkeys(
    (fate for fate in Fate if fate not in (Fate.OK, Fate.BAD_REQUEST)), 1.0
)


@dataclass(frozen=True, slots=True)
class Conditions:
    """One provider at one moment. ``latency_ms`` is the median of a log-normal with ``sigma``."""

    error_rate: float = 0.0
    latency_ms: float = 350.0
    sigma: float = 0.35
    chunk_ms: float = 25.0
    faults: Mapping[Fate, float] = field(default_factory=lambda: BROWNOUT_FAULTS)
    retry_after_s: float = 2.0
    output_tokens: int = 160

    def toward(self, other: Conditions, share: float) -> Conditions:
        """The way from these conditions to others, ``share`` of it gone; the faults are theirs."""

        def between(a: float, b: float) -> float:
            return a + (b - a) * share

        return replace(
            other,
            error_rate=between(self.error_rate, other.error_rate),
            latency_ms=between(self.latency_ms, other.latency_ms),
            sigma=between(self.sigma, other.sigma),
        )


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of the script that moves each provider from where it was to ``ends``."""

    name: str
    seconds: float
    ends: Mapping[str, Conditions]


@dataclass(frozen=True, slots=True)
class Moment:
    """Where in the script a moment is."""

    phase: str
    left_s: float
    loop: int
    conditions: Mapping[str, Conditions]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A named script. Providers start as ``start`` says; the phases repeat for ever."""

    name: str
    start: Mapping[str, Conditions]
    phases: tuple[Phase, ...] = ()

    def at(self, seconds: float) -> Moment:
        """The moment ``seconds`` after the start."""
        if not self.phases:
            return Moment("steady", float("inf"), 0, self.start)
        whole = sum(phase.seconds for phase in self.phases)
        loop, into = divmod(max(0.0, seconds), whole)
        before = self.start if loop < 1 else {**self.start, **self.phases[-1].ends}
        for phase in self.phases:
            if into < phase.seconds:
                share = into / phase.seconds
                now = {
                    name: was.toward(phase.ends.get(name, was), share)
                    for name, was in before.items()
                }
                return Moment(phase.name, phase.seconds - into, int(loop), now)
            into -= phase.seconds
            before = {**before, **phase.ends}
        return Moment(self.phases[-1].name, 0.0, int(loop), before)  # rounding ate the last instant


OPENAI = Conditions(error_rate=0.002, latency_ms=380.0)
MISTRAL = Conditions(error_rate=0.004, latency_ms=300.0)
GROQ = Conditions(error_rate=0.006, latency_ms=140.0, chunk_ms=8.0, sigma=0.45)
HEALTHY = {"openai": OPENAI, "mistral": MISTRAL, "groq": GROQ}
INSTANT = Conditions(latency_ms=0.0, sigma=0.0, chunk_ms=0.0, output_tokens=40)

_FAILING = replace(OPENAI, error_rate=0.85, latency_ms=1400.0, sigma=0.6, retry_after_s=4.0)
_LIMPING = replace(OPENAI, error_rate=0.12, latency_ms=700.0, sigma=0.5)
_CROWDED = replace(MISTRAL, error_rate=0.02, latency_ms=420.0)

# The first 20 s are healthy so that the wall has a "before"; the climb is over at 35 s, so a
# breaker that trips on five consecutive failures is open well inside the first minute.
BROWNOUT = Scenario(
    "brownout",
    HEALTHY,
    (
        Phase("healthy", 20.0, HEALTHY),
        Phase("degrading", 15.0, {"openai": _FAILING, "mistral": _CROWDED}),
        Phase("brownout", 75.0, {}),
        Phase("recovering", 25.0, {"openai": _LIMPING, "mistral": MISTRAL}),
        Phase("settling", 15.0, HEALTHY),
    ),
)
CALM = Scenario("calm", {name: replace(c, error_rate=0.0) for name, c in HEALTHY.items()})
CHAOS = Scenario(
    "chaos",
    {
        name: replace(c, error_rate=0.35, sigma=0.9, faults=CHAOS_FAULTS)
        for name, c in HEALTHY.items()
    },
)
# Set by POST /control; at once and without faults until then.
MANUAL = Scenario("manual", dict.fromkeys(HEALTHY, INSTANT))
# Answered inside the read callback, no clock: something to measure a gateway against.
BENCH = Scenario("bench", dict.fromkeys(HEALTHY, INSTANT))

SCENARIOS = {item.name: item for item in (BROWNOUT, CALM, CHAOS, MANUAL, BENCH)}
