"""How far an override or a probe has come, as dots and words.

Invariant: only wording and order: what each instance said, and what may be called enforced, is
decided once, in ``reports.progress``. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from controlplane.reports.progress import Progress as Report
from controlplane.reports.progress import Stage, Step
from dashboard import present

WORDS = {
    "waiting": ("arrow", "info", "on its way"),
    "delivered": ("arrow", "info", "delivered"),
    "enforced": ("tick", "closed", ""),
    "superseded": ("hand", "hand", "superseded"),
    "rejected": ("rejected", "open", "Rejected"),
    "unsupported": ("unreachable", "unk", "Unsupported"),
    "unreachable": ("unreachable", "unk", "no contact"),
    "lifted": ("tick", "closed", ""),
}
_ORDER = list(WORDS)
_WORST = {"rejected": 0, "unsupported": 1, "unreachable": 2, "waiting": 3, "delivered": 4}


@dataclass(frozen=True, slots=True)
class Dot:
    """One instance's place on the way."""

    step: Step
    state: str
    seconds: float | None

    @property
    def name(self) -> str:
        """Its slot."""
        return self.step.slot

    @property
    def note(self) -> str:
        """How long it took, or where it is."""
        if self.seconds is not None:
            return present.age(self.seconds)
        return "at boot" if self.state == "enforced" and self.step.at_boot else WORDS[self.state][2]

    @property
    def glyph(self) -> str:
        """The glyph's name."""
        return WORDS[self.state][0]

    @property
    def tone(self) -> str:
        """The tone's name."""
        return WORDS[self.state][1]


@dataclass(frozen=True, slots=True)
class Progress:
    """All dots of one item, worst first."""

    dots: tuple[Dot, ...]
    recorded_at: datetime
    since_s: float
    ended: bool

    def count(self, *states: str) -> int:
        """How many dots are in one of these states."""
        return sum(dot.state in states for dot in self.dots)

    @property
    def done(self) -> int:
        """Enforced; of an ended override: lifted."""
        return self.count("lifted" if self.ended else "enforced")

    @property
    def delivered(self) -> int:
        """Instances that have at least received it."""
        return self.count(
            "delivered", "enforced", "superseded", "rejected", "unsupported", "lifted"
        )

    @property
    def settled(self) -> bool:
        """Nothing more is awaited from an instance in contact."""
        return not self.count("waiting", "delivered")

    @property
    def unreachable(self) -> tuple[Dot, ...]:
        """Instances without contact."""
        return tuple(dot for dot in self.dots if dot.state == "unreachable")

    @property
    def refused(self) -> tuple[Dot, ...]:
        """Instances that said no."""
        return tuple(dot for dot in self.dots if dot.state in ("rejected", "unsupported"))

    @property
    def summary(self) -> list[tuple[str, str]]:
        """(tone, words) of each part: ``17 enforced``, ``1 rejected``, ``2 unreachable``."""
        names = {"waiting": "on their way", "delivered": "delivered, not yet enforced"}
        parts = []
        for state in ("enforced", "lifted", "delivered", "waiting", *_ORDER[3:7]):
            if n := self.count(state):
                parts.append((WORDS[state][1], f"{n} {names.get(state, state)}"))
        return parts or [("unk", "no instance is in contact")]

    @property
    def timing(self) -> str:
        """Median and slowest time, in words."""
        times = sorted(dot.seconds for dot in self.dots if dot.seconds is not None)
        if not times:
            return f"of {len(self.dots)} targeted"
        return (
            f"of {len(self.dots)} targeted; after {present.age(times[len(times) // 2])}"
            f" (median), {present.age(times[-1])} (slowest)"
        )

    @property
    def title(self) -> str:
        """What can be said of the whole."""
        if self.ended:
            return "is being released" if self.count("waiting", "unreachable") else "is released"
        if self.dots and self.done == len(self.dots):
            return "is in force"
        return "is partly in force" if self.done else "is recorded, not yet in force"


def shown(report: Report, now: datetime) -> Progress:
    """A report as it is shown at ``now``. Of what has ended, the way of its end."""
    ended = report.ended_at is not None
    dots = [_dot(step, ended) for step in report.steps]
    dots.sort(key=lambda dot: (_WORST.get(dot.state, 5), dot.name))
    recorded = report.ended_at or report.recorded_at
    return Progress(tuple(dots), recorded, (now - recorded).total_seconds(), ended)


def _dot(step: Step, ended: bool) -> Dot:
    if step.stage is Stage.RECORDED or (ended and step.stage is Stage.ENFORCED):
        # Of what has ended and is still enforced, the end is on its way.
        return Dot(step, "waiting", None)
    took = step.lifted_ms if ended else step.enforced_ms
    reached = step.stage in (Stage.ENFORCED, Stage.LIFTED)
    # What a boot put in force as it began says nothing of how fast a change spreads.
    counts = reached and took is not None and (ended or not step.at_boot)
    seconds = took / 1000 if counts and took is not None else None
    return Dot(step, step.stage.value.lower(), seconds)
