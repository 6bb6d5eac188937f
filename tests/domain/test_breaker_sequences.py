"""Unlucky sequences of calls, results, overrides and settings, step by step (design 4.2).

A script is steps of a time and a word. ``a`` asks and must be let through, ``a!Open@10`` must be
refused with that detail and retry time; ``a+``, ``a-``, ``a~`` report success, failure, neither;
``a-600`` a failure whose provider asks for 600 s; ``*9+`` nine calls that succeed. ``=Open@10`` is
the state and its next probe, ``share:100`` the ramp. ``ForceOpen@50`` is an override until 50,
``Auto`` ends it; ``probe``, ``reset``, ``sibling:Open@40``; ``name=value`` changes a setting.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from controlplane.domain.breaker import (
    Breaker,
    BreakerPolicy,
    Cause,
    Mode,
    Outcome,
    Permit,
    State,
    Transition,
)
from controlplane.domain.breaker_policy import Counters
from controlplane.domain.gate import Refusal
from controlplane.domain.verdict import Kind, Scope, Verdict

TWICE = BreakerPolicy(consecutive_failures=2, ramp_shares=())
TRIP = "0 a  0 a-  0 b  0 b-"
RATIO = replace(TWICE, consecutive_failures=None, failure_ratio=500, minimum_calls=4)
RAMP = replace(TWICE, ramp_shares=(100, 500), full_concurrency=10)
TEN = replace(RATIO, failure_ratio=1000, minimum_calls=2, window_seconds=20.0)
RESULTS = {"+": Outcome.SUCCESS, "-": Outcome.FAILURE, "~": Outcome.NEUTRAL}
MODES = frozenset(mode.value for mode in Mode)
WORD = re.compile(r"(?P<name>\*?\w+)(?P<what>[-+~!])?(?P<detail>.*)")


class Run:
    """One breaker and the permits that its script has named."""

    def __init__(self, policy: BreakerPolicy) -> None:
        self.policy = policy
        self.breaker = Breaker(policy, 0.0)
        self.permits: dict[str, Permit] = {}

    def step(self, now: float, word: str) -> None:
        name, _, detail = word.partition("@")
        if word.startswith("="):
            self._is(now, name[1:], detail)
        elif name in MODES:
            self.breaker.set_mode(Mode(name), now, float(detail) if detail else None)
        elif word.startswith("share:"):
            assert self.breaker.ramp_share(now) == int(word[6:])
        elif word.startswith("sibling:"):
            self._follow(now, State(name[8:]), detail)
        elif word in ("probe", "reset"):
            (self.breaker.probe_now if word == "probe" else self.breaker.reset)(now)
        elif "=" in word:
            setting, _, value = word.partition("=")
            self.policy = replace(self.policy, **{setting: _value(value)})
            self.breaker.set_policy(self.policy, now)
        else:
            self._call(now, word)

    def _is(self, now: float, state: str, probe: str) -> None:
        seen = self.breaker.snapshot(now)
        assert seen.state == state
        if probe:
            assert seen.next_probe_at == pytest.approx(float(probe))

    def _follow(self, now: float, state: State, probe: str) -> None:
        until = float(probe) if probe else None
        cause = Cause.FAILURE_RATIO if state is State.OPEN else Cause.PROBE_SUCCEEDED
        self.breaker.follow(Transition(1, State.CLOSED, state, cause, now, Counters(), until), now)

    def _call(self, now: float, word: str) -> None:
        found = WORD.fullmatch(word)
        assert found is not None, word
        name, what, detail = found["name"], found["what"], found["detail"]
        if name.startswith("*"):
            for _ in range(int(name[1:])):
                self._call(now, "bulk")
                self._call(now, f"bulk{what}")
        elif what == "!":
            answer = self.breaker.admit(now)
            assert isinstance(answer, Refusal), f"{word} was let through"
            reason, _, after = detail.partition("@")
            assert answer.detail.startswith(reason)
            assert not after or answer.retry_at == pytest.approx(float(after))
        elif what is None:
            answer = self.breaker.admit(now)
            assert not isinstance(answer, Refusal), f"{word} was refused: {answer}"
            self.permits[name] = answer
        elif detail:
            verdict = Verdict(Kind.RETRYABLE, "overloaded", True, True, Scope.MODEL, float(detail))
            self.breaker.record(self.permits[name], verdict, now)
        else:
            self.breaker.record(self.permits[name], RESULTS[what], now)


def _value(text: str) -> Any:
    if text == "()":
        return ()
    return None if text == "None" else float(text) if "." in text else int(text)


SEQUENCES: dict[str, tuple[BreakerPolicy, str]] = {
    # clocks
    "a thread's time lies before another's": (TWICE, "5 a  5 a-  4.9 b  4.9 b-  4.9 =Open@14.9"),
    "a step back does not end the open period": (TWICE, f"{TRIP}  -5 x!Open@10  9.9 x!  10 p"),
    "a long sleep passes every deadline in order": (
        TWICE, f"{TRIP}  10 p  100000 =HalfOpen  100000 q"),
    "a run of failures has no window": (TWICE, "0 a  0 a-  1000000 b  1000000 b-  1000000 =Open"),
    # late results
    "a success from before the trip does not break a new run": (
        TWICE, f"0 old  {TRIP}  10 p  10 p+  11 c  11 c-  12 old+  13 d  13 d-  13 =Open@23"),
    "a failure from before the trip does not lengthen a new run": (
        TWICE, f"0 old  {TRIP}  10 p  10 p+  11 old-  12 c  12 c-  12 =Closed"),
    "a success while open closes nothing": (TWICE, f"0 old  {TRIP}  5 old+  5 =Open@10"),
    "a failure while open prolongs nothing": (TWICE, f"0 old  {TRIP}  5 old-600  5 =Open@10"),
    "a call from before a reset is nobody's": (TWICE, "0 a  0 b  1 reset  2 a-  2 b-  2 =Closed"),
    "one result, however often it is told": (TWICE, "0 a  0 a-  1 a-  1 =Closed"),
    "a failure told again as success stays": (TWICE, "0 a  0 a-  0 a+  1 b  1 b-  1 =Open"),
    # probes
    "one probe at a time, and the next when it is back": (
        replace(TWICE, close_after=2),
        f"{TRIP}  10 p  10 x!HalfOpen@40  11 p+  11 q  11 x!HalfOpen@41  12 q+  12 =Closed"),
    "a probe that reports twice is one": (
        replace(TWICE, close_after=2), f"{TRIP}  10 p  11 p+  11 p+  11 =HalfOpen"),
    "two probes, the failure first": (
        replace(TWICE, half_open_probes=2), f"{TRIP}  10 p  10 q  11 q-  12 p+  12 =Open@31"),
    "two probes, the success first": (
        replace(TWICE, half_open_probes=2), f"{TRIP}  10 p  10 q  11 p+  12 q-  12 =Closed"),
    "a lost probe's place is free when its lease ends": (
        TWICE, f"{TRIP}  10 p  39.9 x!HalfOpen@40  40 q  41 p+  41 =Closed  42 q-  42 =Closed"),
    "a late failure of a lost probe reopens": (
        TWICE, f"{TRIP}  10 p  40 q  41 p-  41 =Open@61  42 q+  42 =Open@61"),
    "a cancelled probe gives its place back": (
        TWICE, f"{TRIP}  10 p  11 p~  11 q  12 q+  12 =Closed"),
    "cancelled probes do not win time": (
        TWICE, f"{TRIP}  10 p  11 p~  60 q  69.9 =HalfOpen  70 =Open@80  71 q+  71 =Open@80"),
    "without a permit half-open waits": (TWICE, f"{TRIP}  500 =HalfOpen  500 p  559.9 =HalfOpen"),
    "it is stuck by its first permit, not by its begin": (
        TWICE, f"{TRIP}  500 p  560 =Open@570  570 =HalfOpen  571 p+  571 =HalfOpen"),
    "a result that comes with the end of patience is too late": (
        TWICE, f"{TRIP}  10 p  70 p+  70 =Open@80"),
    "and one that comes after it": (TWICE, f"{TRIP}  10 p  75 p+  75 =Open@80"),
    "some successes, but not enough, are stuck too": (
        replace(TWICE, close_after=2), f"{TRIP}  10 p  11 p+  70 =Open@80"),
    "stuck repeats the last period and does not grow it": (
        TWICE, f"{TRIP}  10 p  10 p-  10 =Open@30  30 q  90 =Open@110  110 r  110 r-"
        "  110 =Open@150"),
    "of three probes whose leases ended one failure decides": (
        replace(TWICE, probe_lease_seconds=1.0),
        f"{TRIP}  10 p  11 q  12 r  12.5 q-  12.5 =Open  13 p+  13 r+  13 =Open"),
    # the open period
    "it doubles up to its cap": (
        TWICE, f"{TRIP}  10 p  10 p-  10 =Open@30  30 q  30 q-  30 =Open@70  70 r  70 r-"
        "  70 =Open@130  130 s  130 s-  130 =Open@190"),
    "retry-after above the cap is kept whole": (
        TWICE, "0 a  0 a-  0 b  0 b-600  0 =Open@600  599.9 x!Open@600  600 p"),
    "retry-after of a failure that did not trip is not": (
        TWICE, "0 a  0 a-600  0 b  0 b-  0 =Open@10"),
    "retry-after below the period shortens nothing": (TWICE, "0 a  0 a-  0 b  0 b-1  0 =Open@10"),
    "retry-after of nothing and less": (TWICE, "0 a  0 a-0  0 b  0 b--5  0 =Open@10"),
    "retry-after of a probe, and the growth beside it": (
        TWICE, f"{TRIP}  10 p  10 p-120  10 =Open@130  130 q  130 q-  130 =Open@170"),
    # ratios
    "the success that completes the sample trips": (
        RATIO, "0 *2-  0 *1+  0 =Closed  0 *1+  0 =Open"),
    "just below the ratio": (RATIO, "0 *1-  0 *3+  0 =Closed"),
    "just below the sample": (RATIO, "0 *3-  0 =Closed  0 *1-  0 =Open"),
    "neutral results complete no sample": (RATIO, "0 *3-  0 *9~  0 =Closed"),
    "the smallest ratio needs a failure": (
        replace(RATIO, failure_ratio=1, minimum_calls=1), "0 *5000+  0 =Closed"),
    "and one in a thousand is enough": (
        replace(RATIO, failure_ratio=1, minimum_calls=1000, window_calls=1000),
        "0 *1-  0 *998+  0 =Closed  0 *1+  0 =Open"),
    "a whole ratio bears one success": (
        replace(RATIO, failure_ratio=1000, minimum_calls=3, window_calls=3),
        "0 *2-  0 *1+  0 *2-  0 =Closed  0 *1-  0 =Open"),
    "a window of one call": (
        replace(RATIO, window_calls=1, minimum_calls=1), "0 *9+  0 =Closed  0 *1-  0 =Open"),
    "a sample larger than the window of calls never comes": (
        replace(RATIO, window_calls=3, minimum_calls=4), "0 *9-  0 =Closed"),
    "exactly at the edge of the window": (TEN, "0 *1-  20 *1-  20 =Closed"),
    "just inside the window": (TEN, "0 *1-  19.99 *1-  19.99 =Open"),
    "between two slices a call keeps its own": (TEN, "0.99 *1-  1 *1+  20 *1-  20 =Closed"),
    "a tiny window": (
        replace(TEN, window_seconds=0.02), "0 *1-  0.021 *1-  0.021 =Closed  0.0215 *1-"
        "  0.03 =Open"),
    "either rule alone trips": (
        replace(RATIO, consecutive_failures=3), "0 *3-  0 =Open@10"),
    "both rules at once trip once": (
        replace(RATIO, consecutive_failures=3, minimum_calls=3), "0 *3-  0 =Open@10"),
    "499.75 in a thousand are not 500": (
        replace(RATIO, window_calls=2000, minimum_calls=1999), "0 *999-  0 *1000+  0 =Closed"),
    "a half-open failure needs no sample": (RATIO, "0 *4-  10 p  10 p-  10 =Open@30"),
    "after closing the window is empty": (RATIO, "0 *4-  10 p  10 p+  11 *3-  11 =Closed"),
    # slow calls
    "slow successes trip": (
        replace(TWICE, slow_ratio=500, minimum_calls=2, slow_call_seconds=30.0),
        "0 a  0 b  30 a+  30 =Closed  30 b+  30 =Open@40"),
    "all of three slow": (
        replace(TWICE, slow_ratio=500, minimum_calls=3, slow_call_seconds=30.0),
        "0 a  0 b  0 c  30 a+  30 b+  30 =Closed  30 c+  30 =Open@40"),
    "one of three slow": (
        replace(TWICE, slow_ratio=500, minimum_calls=3, slow_call_seconds=30.0),
        "0 a  0 b  0 c  1 a+  1 b+  30 c+  30 =Closed"),
    "a quick probe under the rule for slow calls": (
        replace(TWICE, slow_ratio=500, slow_call_seconds=30.0),
        f"{TRIP}  10 p  39.9 p+  39.9 =Closed"),
    "just not slow": (
        replace(TWICE, slow_ratio=500, minimum_calls=2, slow_call_seconds=30.0),
        "0 a  0 b  29.9 a+  29.9 b+  30 =Closed"),
    "a slow probe is as good as another without that rule": (
        TWICE, f"{TRIP}  10 p  50 p+  50 =Closed"),
    "and reopens with it": (
        replace(TWICE, slow_ratio=500, slow_call_seconds=30.0),
        f"{TRIP}  10 p  50 p+  50 =Open@70"),
    # the ramp
    "it lets back in steps": (
        RAMP, f"{TRIP}  10 p  10 p+  10 share:100  10 a  10 b!Ramp@15  11 a+  11 b  14.9 c!Ramp"
        "  15 share:500  15 c  15 d  15 e  15 f  15 g!Ramp@20  20 share:1000  20 g  20 *9+"),
    "what says nothing gives its place in the ramp back": (
        RAMP, f"{TRIP}  10 p  10 p+  10 a  10 a~  10 b  10 c!Ramp"),
    "a trip in the ramp is a repeated one": (RAMP, f"{TRIP}  10 p  10 p+  12 *2-  12 =Open@32"),
    "after the ramp it is the first again": (RAMP, f"{TRIP}  10 p  10 p+  20 *2-  20 =Open@30"),
    "a ramp that is taken away is over": (
        RAMP, f"{TRIP}  10 p  10 p+  10 a  11 ramp_shares=()  11 share:1000  11 b"),
    "half-open has no ramp": (
        RAMP, f"{TRIP}  10 p  10 p+  11 ForceOpen@12  12 =HalfOpen  12 share:1000"),
    "a reset needs no ramp": (
        RAMP, f"{TRIP}  10 p  10 p+  11 reset  11 share:1000  12 *2-  12 =Open@22"),
    # overrides
    "a force over open ends in half-open, sooner": (
        TWICE, f"{TRIP}  2 ForceOpen@5  4.9 x!ForceOpen@5  5 =HalfOpen  5 p  5 x!HalfOpen"),
    "a force over open ends in half-open, later": (
        TWICE, f"{TRIP}  2 ForceOpen@50  10 =HalfOpen  49.9 x!ForceOpen@50  50 p"
        "  50 x!HalfOpen@80"),
    "both end at one moment": (TWICE, f"{TRIP}  2 ForceOpen@10  10 =HalfOpen  10 p  10 x!HalfOpen"),
    "a released force is not closed": (
        TWICE, "0 ForceOpen  1 Auto  1 =HalfOpen  1 p  1 x!HalfOpen"),
    "forced open, then forced closed": (
        TWICE, "0 ForceOpen  1 ForceClosed  1 p  1 x  1 p+  1 =Closed  2 x-  2 =Closed"),
    "forced closed over open does not end it": (
        TWICE, f"{TRIP}  1 ForceClosed@5  1 x  1 x+  5 y!Open@10  10 p"),
    "forced closed, the first caller in time is its probe": (
        TWICE, f"{TRIP}  1 ForceClosed@15  12 p  12 p-  12 =Open@32  14 x  15 y!Open@32"),
    "observed only, it trips by itself at the end": (
        TWICE, "0 ObserveOnly@5  1 *2-  1 =Open@11  2 x  4.9 y  5 z!Open@11"),
    "an extended force": (TWICE, "0 ForceOpen@5  4 ForceOpen@9  5 x!ForceOpen@9  9 p"),
    "a shortened force": (TWICE, "0 ForceOpen@100  4 ForceOpen@5  5 =HalfOpen"),
    "a force that has ended before it came": (TWICE, "2 ForceOpen@2  2 =Closed  2 a"),
    "a reset does not end a force": (
        TWICE, f"{TRIP}  1 ForceOpen@9  2 reset  3 x!ForceOpen@9  9 =HalfOpen"),
    "results of before a force are still measured": (
        TWICE, "0 a  0 b  1 ForceOpen@9  2 a-  2 b-  2 =Open@12  9 =HalfOpen"),
    "observed in half-open, one probe votes": (
        TWICE, f"{TRIP}  10 ObserveOnly@20  10 p  10 x  11 x-  11 =HalfOpen  12 p+  12 =Closed"),
    # settings
    "an open period keeps its end": (
        TWICE, f"{TRIP}  1 open_seconds_cap=900.0  1 open_seconds=900.0"
        "  1 =Open@10  10 p  10 p-  10 =Open@910"),
    "more probes, at once": (TWICE, f"{TRIP}  10 p  10 half_open_probes=2  10 q  10 x!HalfOpen"),
    "fewer probes, as they come back": (
        replace(TWICE, half_open_probes=2, close_after=3),
        f"{TRIP}  10 p  10 q  10 half_open_probes=1  11 p~  11 x!HalfOpen  11 q~  11 r"),
    "a shorter lease, at once": (
        TWICE, f"{TRIP}  10 p  20 x!HalfOpen  20 probe_lease_seconds=5.0  20 q"),
    "fewer successes are enough at the next": (
        replace(TWICE, close_after=9), f"{TRIP}  10 p  10 p+  10 close_after=1  10 =HalfOpen  11 q"
        "  11 q+  11 =Closed"),
    "a shorter patience in half-open begins no sooner than it was set": (
        TWICE, f"{TRIP}  10 p  30 half_open_max_seconds=5.0  30 =Open@40  39.9 x!Open@40  40 q"),
    "a longer patience comes too late": (
        TWICE, f"{TRIP}  10 p  75 half_open_max_seconds=600.0  75 =Open@80"),
    "another word for slow, at once": (
        replace(TWICE, slow_ratio=500, minimum_calls=2),
        "0 slow_call_seconds=1.0  0 a  0 b  2 a+  2 b+  2 =Open@12"),
    "a longer patience in half-open": (
        TWICE, f"{TRIP}  10 p  30 half_open_max_seconds=600.0  70 =HalfOpen  610 =Open@620"),
    "fewer failures trip at the next one": (
        replace(TWICE, consecutive_failures=9),
        "0 *3-  0 consecutive_failures=2  0 =Closed  0 *1-  0 =Open"),
    "a success before it ends the run all the same": (
        replace(TWICE, consecutive_failures=9),
        "0 *3-  0 consecutive_failures=2  0 *1+  0 *1-  0 =Closed"),
    "a new rule judges what was counted under the old": (
        replace(TWICE, consecutive_failures=None, minimum_calls=4),
        "0 *3-  0 failure_ratio=500  0 =Closed  1 *1+  1 =Open"),
    # siblings and people
    "a sibling opens, and our probe is nobody's": (
        TWICE, f"{TRIP}  10 p  11 sibling:Open@40  11 =Open@40  12 p+  12 =Open@40  40 q"),
    "a sibling never shortens": (TWICE, f"{TRIP}  1 sibling:Open@5  1 =Open@10"),
    "a sibling's trip is one of ours": (TWICE, "0 sibling:Open@8  8 p  8 p-  8 =Open@28"),
    "a sibling in half-open is no news": (TWICE, f"{TRIP}  1 sibling:HalfOpen  1 =Open@10"),
    "a sibling that closes what is closed brings no ramp": (RAMP, "0 sibling:Closed  0 share:1000"),
    "a sibling comes after what had ended by itself": (
        TWICE, f"{TRIP}  10 p  75 sibling:Open@78  75 =Open@80"),
    "a sibling closes": (RAMP, f"{TRIP}  5 sibling:Closed  5 =Closed  5 share:100"),
    "a sibling's word under a force waits": (
        TWICE, "0 ForceOpen@9  1 sibling:Open@40  1 x!ForceOpen  9 =HalfOpen"),
    "a probe by hand": (TWICE, f"{TRIP}  3 probe  3 p  3 x!HalfOpen  4 p-  4 =Open@24"),
    "a probe by hand while closed is nothing": (TWICE, "0 probe  0 =Closed  0 *9+"),
    "a probe by hand under a force lets nobody through": (
        TWICE, f"{TRIP}  1 ForceOpen@9  2 probe  2 =HalfOpen  3 x!ForceOpen@9"),
}  # fmt: skip


@pytest.mark.parametrize("name", SEQUENCES)
def test_it_does_what_the_design_says(name: str) -> None:
    policy, script = SEQUENCES[name]
    run = Run(policy)
    words = script.split()
    for now, word in zip(words[::2], words[1::2], strict=True):
        run.step(float(now), word)
