"""From what was seen of one attempt to a verdict. Pure; ``judge`` holds the order of questions.

Extend it in ``providers`` (facts about providers), ``rules`` (what a reason means) or ``faults``
(connections that failed).
"""

from controlplane.domain.classify.judge import classify
from controlplane.domain.classify.observation import Cause, Context, Fault, Observation, Phase
from controlplane.domain.classify.stream import STREAM_MARKERS, StreamEvent, StreamProgress

__all__ = [
    "STREAM_MARKERS",
    "Cause",
    "Context",
    "Fault",
    "Observation",
    "Phase",
    "StreamEvent",
    "StreamProgress",
    "classify",
]
