"""One word for an item's progress never claims more than every instance said."""

import pytest

from controlplane.reports.progress import Progress, Stage, Step
from tests import builders


@pytest.mark.parametrize(
    ("stages", "phase"),
    [
        ("", "Pending"),
        ("Enforced Enforced", "Enforced"),
        ("Enforced Recorded", "Progressing"),
        ("Superseded Delivered", "Progressing"),
        ("Enforced Superseded", "PartiallyEnforced"),
        ("Superseded Superseded", "Superseded"),
        ("Superseded Unreachable", "NotEnforced"),
        ("Unreachable Unreachable", "NotEnforced"),
        ("Rejected Unsupported", "Failed"),
        ("Rejected Unreachable", "NotEnforced"),
    ],
)
def test_the_phase_of_what_each_instance_said(stages: str, phase: str) -> None:
    now = builders.now()
    steps = [Step("demo", str(n), "b", Stage(said), now) for n, said in enumerate(stages.split())]
    assert Progress(now, tuple(steps)).phase == phase
