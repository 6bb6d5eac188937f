"""The override layer: forced modes beat every state and end by themselves."""

from __future__ import annotations

import pytest

from controlplane.domain.breaker import (
    Breaker,
    BreakerPolicy,
    Cause,
    Mode,
    Outcome,
    Permit,
    State,
    would_have_refused,
)
from controlplane.domain.gate import Gate, Refusal

OK, FAILED = Outcome.SUCCESS, Outcome.FAILURE


def permit(b: Breaker, now: float) -> Permit:
    answer = b.admit(now)
    assert not isinstance(answer, Refusal), answer
    return answer


def tripped(at: float = 0.0) -> Breaker:
    b = Breaker(BreakerPolicy(consecutive_failures=1), 0.0)
    b.record(permit(b, at), FAILED, at)
    b.take_transitions()
    return b


def test_force_open_refuses_everything_and_names_its_end() -> None:
    b = Breaker(BreakerPolicy(), 0.0)
    b.set_mode(Mode.FORCE_OPEN, 1.0, until=61.0)
    assert b.admit(60.9) == (Gate.OVERRIDE, "ForceOpen", 61.0)
    assert b.snapshot(60.9).would_be is State.CLOSED


@pytest.mark.parametrize("before", [Breaker(BreakerPolicy(), 0.0), tripped()])
def test_force_open_ends_in_half_open_whatever_came_before(before: Breaker) -> None:
    before.take_transitions()
    before.set_mode(Mode.FORCE_OPEN, 1.0, until=5.0)
    seen = before.snapshot(7.0)
    assert (seen.state, seen.mode, seen.since) == (State.HALF_OPEN, Mode.AUTO, 5.0)
    (end,) = before.take_transitions()
    assert (end.cause, end.at, end.mode) == (Cause.OVERRIDE_EXPIRED, 5.0, Mode.AUTO)


@pytest.mark.parametrize("to", [Mode.AUTO, Mode.FORCE_CLOSED, Mode.OBSERVE_ONLY])
def test_a_released_force_open_goes_to_half_open(to: Mode) -> None:
    b = Breaker(BreakerPolicy(), 0.0)
    b.set_mode(Mode.FORCE_OPEN, 1.0)
    b.set_mode(to, 2.0)
    assert b.snapshot(2.0).state is State.HALF_OPEN
    assert b.take_transitions()[-1].cause is Cause.OVERRIDE_RELEASED


def test_a_release_after_the_end_is_nothing() -> None:
    b = Breaker(BreakerPolicy(), 0.0)
    b.set_mode(Mode.FORCE_OPEN, 1.0, until=5.0)
    b.set_mode(Mode.AUTO, 7.0)
    last = b.take_transitions()[-1]
    assert (last.number, last.cause, last.at) == (2, Cause.OVERRIDE_EXPIRED, 5.0)


def test_a_probe_would_not_have_been_refused_and_those_beside_it_would() -> None:
    b = tripped()
    b.set_mode(Mode.OBSERVE_ONLY, 10.0)
    probe, beside = b.admit(10.0), b.admit(10.0)
    assert not isinstance(probe, Refusal)
    assert not isinstance(beside, Refusal)
    assert (would_have_refused(probe), would_have_refused(beside)) == (False, True)


def test_extending_a_force_open_is_no_transition() -> None:
    b = Breaker(BreakerPolicy(), 0.0)
    b.take_transitions()
    b.set_mode(Mode.FORCE_OPEN, 1.0, until=5.0)
    b.set_mode(Mode.FORCE_OPEN, 2.0, until=50.0)
    assert isinstance(b.admit(49.0), Refusal)
    assert b.take_transitions() == ()


def test_the_old_timer_does_not_end_a_force_open() -> None:
    b = tripped()
    b.set_mode(Mode.FORCE_OPEN, 2.0)
    answer = b.admit(40.0)
    assert isinstance(answer, Refusal)
    assert answer.gate is Gate.OVERRIDE
    assert b.snapshot(40.0).would_be is State.HALF_OPEN


@pytest.mark.parametrize("mode", [Mode.FORCE_CLOSED, Mode.OBSERVE_ONLY])
def test_a_letting_mode_lets_all_through_and_keeps_measuring(mode: Mode) -> None:
    b = Breaker(BreakerPolicy(consecutive_failures=2), 0.0)
    b.set_mode(mode, 0.0)
    for _ in range(2):
        call = permit(b, 1.0)
        assert not would_have_refused(call)
        b.record(call, FAILED, 1.0)
    assert b.snapshot(1.0).would_be is State.OPEN
    passed = permit(b, 2.0)
    assert would_have_refused(passed)
    b.record(passed, OK, 2.0)
    assert b.snapshot(2.0).would_be is State.OPEN
    assert b.take_transitions()[-1].mode is mode


def test_a_letting_mode_ends_in_the_state_that_was_measured() -> None:
    b = Breaker(BreakerPolicy(consecutive_failures=1), 0.0)
    b.set_mode(Mode.FORCE_CLOSED, 0.0, until=5.0)
    b.record(permit(b, 1.0), FAILED, 1.0)
    permit(b, 4.9)
    assert isinstance(b.admit(5.0), Refusal)
    assert b.snapshot(5.0).state is State.OPEN


def test_under_a_letting_mode_only_the_probes_vote() -> None:
    b = tripped()
    b.set_mode(Mode.FORCE_CLOSED, 1.0)
    probe, other = permit(b, 10.0), permit(b, 10.0)
    assert would_have_refused(other)
    b.record(other, FAILED, 10.0)
    assert b.snapshot(10.0).would_be is State.HALF_OPEN
    b.record(probe, OK, 10.0)
    assert b.snapshot(10.0).would_be is State.CLOSED


def test_force_closed_lifts_the_ramp_limit() -> None:
    b = Breaker(BreakerPolicy(consecutive_failures=1, full_concurrency=1), 0.0)
    b.record(permit(b, 0.0), FAILED, 0.0)
    b.record(permit(b, 10.0), OK, 10.0)
    permit(b, 10.0)
    assert isinstance(b.admit(10.0), Refusal)
    b.set_mode(Mode.FORCE_CLOSED, 10.0)
    permit(b, 10.0)


def test_results_of_calls_from_before_a_force_open_are_still_measured() -> None:
    b = Breaker(BreakerPolicy(consecutive_failures=1), 0.0)
    before = permit(b, 0.0)
    b.set_mode(Mode.FORCE_OPEN, 1.0)
    b.record(before, FAILED, 2.0)
    assert b.snapshot(2.0).would_be is State.OPEN


def test_a_mode_whose_end_has_passed_is_never_put_in_force() -> None:
    b = Breaker(BreakerPolicy(), 0.0)
    b.set_mode(Mode.FORCE_OPEN, 10.0, until=10.0)
    assert b.snapshot(10.0).mode is Mode.AUTO
    permit(b, 10.0)


def test_deadlines_of_override_and_state_apply_in_order_of_time() -> None:
    b = tripped()
    b.set_mode(Mode.FORCE_OPEN, 1.0, until=20.0)
    b.tick(100.0)
    assert [(t.cause, t.at, t.mode) for t in b.take_transitions()] == [
        (Cause.OPEN_PERIOD_OVER, 10.0, Mode.FORCE_OPEN),
        (Cause.OVERRIDE_EXPIRED, 20.0, Mode.AUTO),
    ]
