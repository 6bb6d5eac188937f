"""Unlucky sequences of one retry budget, step by step (design 4.3).

A script is steps of a time and a word: ``9f`` nine firsts, ``r`` a retry that must be granted,
``r!`` one that must be refused, ``3r`` exactly three granted and a fourth refused, ``back:0`` gives
back a first that was sent at 0, ``refund``, ``=4`` the balance, ``name=value`` a setting,
``instances:2`` the count of live instances.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from controlplane.domain.budget import BudgetPolicy, RetryBudget

TENTH = BudgetPolicy(min_per_second=0.0)  # a tenth of the firsts, over 60 s in slices of 3 s
FLOOR = BudgetPolicy(ratio_per_mille=0, min_per_second=0.1)  # six in 60 s, whatever comes


class Run:
    """One bucket and the settings it has now."""

    def __init__(self, policy: BudgetPolicy) -> None:
        self.policy, self.instances = policy, 1
        self.bucket = RetryBudget(policy)

    def step(self, now: float, word: str) -> None:
        if found := re.fullmatch(r"(\d+)f", word):
            for _ in range(int(found[1])):
                self.bucket.earn(now)
        elif found := re.fullmatch(r"(\d*)r(!?)", word):
            for _ in range(int(found[1] or not found[2])):
                assert self._granted(now)
            if found[1] or found[2]:
                assert not self._granted(now)
        elif word == "refund":
            self.bucket.refund(now)
        elif word.startswith("back:"):
            self.bucket.give_back(float(word[5:]), now)
        elif word.startswith("="):
            assert self.bucket.balance(now).balance == int(word[1:])
        else:
            self._set(word)

    def _granted(self, now: float) -> bool:
        if not self.bucket.allows(now):
            return False
        self.bucket.spend(now)
        return True

    def _set(self, word: str) -> None:
        if word.startswith("instances:"):
            self.instances = int(word[10:])
        else:
            name, _, value = word.partition("=")
            number = float(value) if "." in value else int(value)
            self.policy = replace(self.policy, **{name: number})
        self.bucket.set_policy(self.policy, self.instances)


SEQUENCES: dict[str, tuple[BudgetPolicy, str]] = {
    # the inequality
    "nine firsts are not ten": (TENTH, "0 9f  0 r!  0 1f  0 1r"),
    "one in a thousand": (replace(TENTH, ratio_per_mille=1), "0 999f  0 r!  0 1f  0 1r"),
    "one each": (replace(TENTH, ratio_per_mille=1000), "0 3f  0 3r"),
    "twice as many retries as firsts": (replace(TENTH, ratio_per_mille=2000), "0 3f  0 6r"),
    "no ratio and no floor": (replace(TENTH, ratio_per_mille=0), "0 5000f  0 r!  0 =0"),
    "huge counts": (replace(TENTH, burst=5000), "0 10000f  0 =1000  0 1000r  0 =0"),
    "the floor alone": (FLOOR, "0 6r  0 500f  0 r!"),
    "a floor of less than one": (replace(FLOOR, min_per_second=0.01), "0 r!"),
    "the floor and what was earned are not added": (
        replace(TENTH, min_per_second=0.1), "0 70f  0 7r"),
    "the ceiling": (replace(TENTH, max_per_second=0.1), "0 1000f  0 6r"),
    "a ceiling of nothing leaves the floor": (
        replace(TENTH, min_per_second=0.05, max_per_second=0.0), "0 1000f  0 3r"),
    "a ceiling below the floor": (
        replace(TENTH, min_per_second=0.1, max_per_second=0.05), "0 1000f  0 6r"),
    # the burst
    "as many as the burst in one second": (replace(TENTH, burst=2), "0 100f  0 2r  0.999 r!  1 2r"),
    "a burst of one": (replace(TENTH, burst=1), "0 100f  0 1r  0.9 r!  1 1r  2.5 1r  3.4 r!"),
    "a burst of none": (replace(TENTH, burst=0), "0 100f  0 r!  9 r!"),
    "the second slides": (replace(TENTH, burst=2), "0 100f  0 r  0.6 1r  1 1r  1.5 r!  1.6 1r"),
    "a refund does not end a burst": (
        replace(TENTH, burst=1), "0 100f  0 r  0 refund  0.5 r!  0.5 =10  1 1r"),
    # the window
    "firsts leave it after their slice": (TENTH, "0 10f  59.9 r  60 =0  60 r!"),
    "a first late in its slice leaves with it": (TENTH, "2.9 10f  59.9 =1  60 =0"),
    "a first of the next slice stays": (TENTH, "3 10f  62.9 =1  63 =0"),
    "retries leave it as firsts do": (TENTH, "0 10f  0 1r  60 10f  60 1r"),
    "a retry outlives the first that earned it": (
        TENTH, "0 10f  30 r  60 10f  60 r!  89.9 =0  90 1r"),
    "a long silence forgets all": (TENTH, "0 10f  0 r  1000000 =0  1000000 10f  1000000 1r"),
    "a thread's time lies before another's": (TENTH, "30 5f  29 5f  29 1r  30 r!"),
    # giving back
    "a failed first earned nothing": (TENTH, "0 10f  1 back:0  1 r!  1 1f  1 1r"),
    "an outage mints nothing": (
        TENTH, "0 3f  1 back:0  1 back:0  1 back:0  1 =0  1 10f  1 1r"),
    "what was spent on it stays spent": (TENTH, "0 20f  0 2r  1 back:0  1 10f  1 r!  1 1f  1 1r"),
    "after it has left the window nothing is taken": (TENTH, "0 1f  60 10f  61 back:0  61 1r"),
    "it is taken from where it was earned": (TENTH, "0 10f  30 10f  31 back:0  60 =1  60 1r"),
    # refunds
    "a refund is for once": (TENTH, "0 10f  0 r  1 refund  1 refund  1 1r"),
    "a refund is of one": (TENTH, "0 20f  0 r  3 r  4 refund  4 1r"),
    "a refund is of the newest": (
        TENTH, "0 r!  0 20f  0 r  30 10f  30 r  31 refund  59.9 r  60 r!"),
    "without a retry there is none": (TENTH, "0 10f  0 refund  0 1r"),
    # settings
    "what was held is laid into slices of the new width": (
        TENTH, "6 10f  8 window_seconds=30.0  37.4 =1  37.5 =0  37.5 9f  37.5 r!  37.5 1f"
        "  37.5 1r"),
    "two slices become one": (
        replace(TENTH, window_seconds=30.0),
        "0 5f  1.5 5f  2 window_seconds=60.0  59.9 =1  60 =0  60 10f  60 1r"),
    "a shorter window forgets": (TENTH, "0 10f  8 window_seconds=6.0  8 r!"),
    "a shorter window keeps what lies in it": (TENTH, "6 10f  8 window_seconds=6.0  8 1r"),
    "a longer window remembers what is still held": (
        replace(TENTH, window_seconds=6.0), "0 10f  1 window_seconds=60.0  50 1r"),
    "a first is given back across a change of window": (
        TENTH, "6 10f  8 window_seconds=6.0  8 back:6  8 r!"),
    "a higher ratio, at once": (TENTH, "0 10f  0 1r  0 ratio_per_mille=300  0 2r"),
    "a lower ratio owes": (
        TENTH, "0 20f  0 2r  0 ratio_per_mille=50  0 =0  0 10f  0 r!  0 30f  0 1r"),
    "half of the floor for each of two": (FLOOR, "0 instances:2  0 3r"),
    "of many each has one": (FLOOR, "0 instances:50  0 1r"),
    "of nothing each has nothing": (replace(FLOOR, min_per_second=0.0), "0 instances:50  0 r!"),
    "the ratio is not shared": (TENTH, "0 instances:50  0 10f  0 1r"),
    "the burst is shared and at least one": (
        replace(TENTH, burst=3), "0 100f  0 instances:2  0 2r  1 instances:9  1 1r"),
}  # fmt: skip


@pytest.mark.parametrize("name", SEQUENCES)
def test_it_does_what_the_design_says(name: str) -> None:
    policy, script = SEQUENCES[name]
    run = Run(policy)
    words = script.split()
    for now, word in zip(words[::2], words[1::2], strict=True):
        run.step(float(now), word)
