"""One simulated call: how it ends, how long it takes, what it is billed.

Invariant: the verdicts are the classifier's own on what a gateway would have seen. Answers are not
streamed, so a call that breaks off has delivered nothing and may be sent again.
"""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import NamedTuple

from controlplane.domain.circuit import Circuit
from controlplane.domain.classify import Cause, Fault, Observation, Phase, classify
from controlplane.domain.verdict import Verdict
from gateway.brownout.model import Model


class Call(NamedTuple):
    """One call as drawn. ``wasted``: tokens billed without an answer."""

    seconds: float
    verdict: Verdict
    wasted: int


def _verdict(
    *, status: int | None = None, body: object = None, fault: Fault | None = None
) -> Verdict:
    # The date only matters for waits that are written as dates, and there are none.
    now = datetime(2000, 1, 1, tzinfo=UTC)
    return classify(Observation("simulated", now, status=status, body=body, fault=fault))


GOOD = _verdict(status=200, body={"choices": [{"finish_reason": "stop"}]})
REJECTED = _verdict(status=503, body={"error": {"message": "overloaded"}})
HUNG = _verdict(fault=Fault(Phase.AWAITING_HEADERS, Cause.TIMEOUT))
BROKEN = _verdict(status=200, fault=Fault(Phase.READING_BODY, Cause.RESET))


class Providers:
    """All three of them, on one stream of random draws."""

    def __init__(self, model: Model, draw: Random) -> None:
        self._model = model
        self._draw = draw
        self._sigma = model.call_sigma
        self._breaks_below = model.free.hangs + model.free.breaks

    def call(self, circuit: Circuit, at: float, timeout_s: float) -> Call:
        """A call begun at ``at``. Not even a good one takes longer than ``timeout_s``."""
        model, draw = self._model, self._draw
        if draw.random() >= model.error_rate(circuit, at):
            seconds = self._generating()
            return Call(seconds, GOOD, 0) if seconds < timeout_s else Call(timeout_s, HUNG, 0)
        how = draw.random()
        if how < model.free.hangs:
            return Call(timeout_s, HUNG, 0)
        if how < self._breaks_below:
            done = draw.random()
            billed = model.prompt_tokens + round(done * model.answer_tokens)
            return Call(min(timeout_s, done * self._generating()), BROKEN, billed)
        return Call(min(timeout_s, draw.uniform(*model.rejected_s)), REJECTED, 0)

    def _generating(self) -> float:
        return self._model.median_call_s * self._draw.lognormvariate(0.0, self._sigma)
