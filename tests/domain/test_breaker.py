"""The automatic breaker: what trips it, how long it rests, how it comes back."""

from __future__ import annotations

import threading

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
from controlplane.domain.gate import Gate, Refusal
from controlplane.domain.verdict import Kind, Scope, Verdict

OK, FAILED, NEUTRAL = Outcome.SUCCESS, Outcome.FAILURE, Outcome.NEUTRAL


def breaker(now: float = 0.0, **settings: object) -> Breaker:
    made = Breaker(BreakerPolicy(**settings), now)  # type: ignore[arg-type]
    made.take_transitions()
    return made


def permit(b: Breaker, now: float) -> Permit:
    answer = b.admit(now)
    assert not isinstance(answer, Refusal), answer
    return answer


def call(b: Breaker, now: float, outcome: Outcome | Verdict, took: float = 0.0) -> None:
    b.record(permit(b, now - took), outcome, now)


def fail(b: Breaker, times: int, now: float = 0.0) -> None:
    for _ in range(times):
        call(b, now, FAILED)


def state(b: Breaker, now: float) -> State:
    return b.snapshot(now).state


def causes(b: Breaker) -> list[tuple[Cause, float]]:
    return [(t.cause, t.at) for t in b.take_transitions()]


def refusal(b: Breaker, now: float) -> Refusal:
    answer = b.admit(now)
    assert isinstance(answer, Refusal)
    return answer


def rate_limited(seconds: float | None) -> Verdict:
    return Verdict(Kind.RETRYABLE, "rate_limited", True, True, Scope.KEY, seconds)


def test_it_says_when_the_next_call_would_be_a_probe() -> None:
    b = breaker(ramp_shares=())
    assert not b.probing(0.0)
    fail(b, 5)
    assert not b.probing(9.9)
    assert b.probing(10.0)
    b.set_mode(Mode.FORCE_CLOSED, 10.0, until=12.0)
    assert not b.probing(11.9)
    assert b.probing(12.0)
    b.record(permit(b, 12.0), OK, 12.0)
    assert not b.probing(12.0)
    b.set_mode(Mode.FORCE_OPEN, 13.0, until=14.0)
    assert not b.probing(13.9)
    assert b.probing(14.0)


def test_it_begins_closed_and_says_so() -> None:
    b = Breaker(BreakerPolicy(), 7.0)
    (boot,) = b.take_transitions()
    assert (boot.number, boot.to_state, boot.cause, boot.at) == (1, State.CLOSED, Cause.BOOT, 7.0)
    assert b.take_transitions() == ()


def test_it_trips_on_the_nth_failure_in_a_row() -> None:
    b = breaker()
    fail(b, 4)
    call(b, 0.0, OK)
    fail(b, 4)
    assert state(b, 0.0) is State.CLOSED
    fail(b, 1)
    (trip,) = b.take_transitions()
    assert (trip.number, trip.cause, trip.next_probe_at) == (2, Cause.CONSECUTIVE_FAILURES, 10.0)
    assert (trip.counters.calls, trip.counters.failures, trip.counters.consecutive) == (10, 9, 5)


def test_neutral_results_neither_count_nor_end_a_run() -> None:
    b = breaker()
    fail(b, 4)
    call(b, 0.0, NEUTRAL)
    assert b.snapshot(0.0).counters.calls == 4
    fail(b, 1)
    assert state(b, 0.0) is State.OPEN


@pytest.mark.parametrize(
    ("kind", "counts", "expected"),
    [
        (Kind.SUCCESS, False, OK),
        (Kind.RETRYABLE, True, FAILED),
        (Kind.PARTIAL, True, FAILED),
        (Kind.RETRYABLE, False, NEUTRAL),
        (Kind.PERMANENT, False, NEUTRAL),
        (Kind.CLIENT_CANCELLED, False, NEUTRAL),
        (Kind.CLIENT_DEADLINE, False, NEUTRAL),
        (Kind.LOCAL_FAULT, False, NEUTRAL),
    ],
)
def test_a_verdict_counts_as_the_classifier_said(
    kind: Kind, counts: bool, expected: Outcome
) -> None:
    b = breaker(consecutive_failures=1)
    call(b, 1.0, Verdict(kind, "any", False, counts, Scope.PROVIDER))
    seen = b.snapshot(1.0)
    assert (seen.state is State.OPEN) == (expected is FAILED)
    assert seen.counters.calls == (1 if expected is OK else 0)


def test_the_ratio_needs_its_minimum_sample_and_is_checked_after_successes_too() -> None:
    b = breaker(consecutive_failures=None, failure_ratio=500, minimum_calls=4)
    fail(b, 2)
    call(b, 0.0, OK)
    assert state(b, 0.0) is State.CLOSED
    call(b, 0.0, OK)
    assert [c for c, _ in causes(b)] == [Cause.FAILURE_RATIO]


def test_the_ratio_is_met_exactly_in_thousandths() -> None:
    b = breaker(consecutive_failures=None, failure_ratio=100, minimum_calls=10, window_calls=10)
    for _ in range(9):
        call(b, 0.0, OK)
    fail(b, 1)
    assert state(b, 0.0) is State.OPEN


def test_a_window_of_calls_forgets_the_oldest() -> None:
    b = breaker(consecutive_failures=None, failure_ratio=600, minimum_calls=4, window_calls=4)
    for outcome in (FAILED, FAILED, OK, OK, OK, FAILED):
        call(b, 0.0, outcome)
    assert b.snapshot(0.0).counters.failures == 1
    call(b, 0.0, FAILED)
    call(b, 0.0, FAILED)
    assert state(b, 0.0) is State.OPEN


def test_a_window_of_seconds_forgets_what_is_older() -> None:
    b = breaker(consecutive_failures=None, failure_ratio=500, minimum_calls=4, window_seconds=60)
    fail(b, 3, now=0.0)
    fail(b, 3, now=61.0)
    assert b.snapshot(61.0).counters.failures == 3
    fail(b, 1, now=62.0)
    assert state(b, 62.0) is State.OPEN


def test_a_quiet_window_empties_without_traffic() -> None:
    b = breaker()
    fail(b, 2, now=0.0)
    assert b.snapshot(59.0).counters.calls == 2
    assert b.snapshot(61.0).counters.calls == 0


def test_slow_calls_trip_by_their_own_ratio() -> None:
    b = breaker(consecutive_failures=None, slow_ratio=500, slow_call_seconds=8, minimum_calls=4)
    call(b, 10.0, OK, took=2.0)
    call(b, 10.0, OK, took=7.9)
    call(b, 10.0, OK, took=8.0)
    b.record(permit(b, 10.0), OK, 11.0, duration_s=30.0)
    assert [c for c, _ in causes(b)] == [Cause.SLOW_CALLS]


def test_a_slow_probe_proves_nothing_under_a_slow_call_rule() -> None:
    b = breaker(consecutive_failures=1, slow_ratio=500, slow_call_seconds=8)
    fail(b, 1)
    b.record(permit(b, 10.0), OK, 19.0)
    assert state(b, 19.0) is State.OPEN


def test_the_period_ends_without_traffic_and_at_its_own_moment() -> None:
    b = breaker()
    fail(b, 5, now=1.0)
    assert refusal(b, 10.9) == (Gate.BREAKER, "Open", 11.0)
    b.tick(17.0)
    assert causes(b)[-1] == (Cause.OPEN_PERIOD_OVER, 11.0)


def test_the_period_doubles_on_repeated_trips_up_to_the_cap() -> None:
    b = breaker(open_seconds=10, open_seconds_cap=60)
    fail(b, 5)
    at, periods = 0.0, []
    for _ in range(5):
        until = b.snapshot(at).next_probe_at
        assert until is not None
        periods.append(until - at)
        at = until
        b.record(permit(b, at), FAILED, at)
    assert periods == [10, 20, 40, 60, 60]


def test_the_period_is_short_again_only_after_the_ramp() -> None:
    b = breaker(ramp_shares=(500,), ramp_step_seconds=5)
    fail(b, 5)
    b.record(permit(b, 10.0), OK, 10.0)
    fail(b, 5, now=14.0)
    assert b.snapshot(14.0).next_probe_at == 34.0
    b.record(permit(b, 34.0), OK, 34.0)
    fail(b, 5, now=39.0)
    assert b.snapshot(39.0).next_probe_at == 49.0


def test_the_tripping_failures_retry_after_is_a_minimum_even_above_the_cap() -> None:
    b = breaker(consecutive_failures=1)
    call(b, 0.0, rate_limited(300.0))
    assert b.snapshot(0.0).next_probe_at == 300.0
    b = breaker(consecutive_failures=1)
    call(b, 0.0, rate_limited(2.0))
    assert b.snapshot(0.0).next_probe_at == 10.0


def test_a_later_failure_neither_shortens_nor_prolongs_the_period() -> None:
    b = breaker(consecutive_failures=1)
    first, second, third = (permit(b, 0.0) for _ in range(3))
    b.record(first, rate_limited(30.0), 1.0)
    b.record(second, rate_limited(1.0), 2.0)
    b.record(third, rate_limited(600.0), 3.0)
    assert b.snapshot(3.0).next_probe_at == 31.0


def test_half_open_admits_n_probes_at_a_time() -> None:
    b = breaker(half_open_probes=2, close_after=3, probe_lease_seconds=30)
    fail(b, 5)
    one, _ = permit(b, 10.0), permit(b, 11.0)
    assert refusal(b, 12.0) == (Gate.BREAKER, "HalfOpen", 40.0)
    b.record(one, OK, 12.0)
    permit(b, 12.0)
    assert isinstance(b.admit(12.0), Refusal)


def test_a_probe_that_never_reports_gives_its_place_back_and_may_still_report() -> None:
    b = breaker(probe_lease_seconds=30)
    fail(b, 5)
    lost = permit(b, 10.0)
    assert isinstance(b.admit(39.9), Refusal)
    permit(b, 40.0)
    b.record(lost, OK, 41.0)
    assert state(b, 41.0) is State.CLOSED


def test_a_cancelled_probe_frees_its_place_and_decides_nothing() -> None:
    b = breaker()
    fail(b, 5)
    b.record(permit(b, 10.0), NEUTRAL, 10.5)
    assert state(b, 10.5) is State.HALF_OPEN
    permit(b, 10.5)


def test_half_open_waits_for_ever_while_nobody_asks() -> None:
    b = breaker()
    fail(b, 5)
    assert state(b, 5000.0) is State.HALF_OPEN


def test_half_open_without_a_decision_is_stuck_and_reopens_without_growth() -> None:
    b = breaker(half_open_max_seconds=60)
    fail(b, 5)
    permit(b, 100.0)
    assert state(b, 159.9) is State.HALF_OPEN
    assert state(b, 160.0) is State.OPEN
    assert causes(b)[-1] == (Cause.STUCK, 160.0)
    assert b.snapshot(160.0).next_probe_at == 170.0
    b.record(permit(b, 170.0), FAILED, 170.0)
    assert b.snapshot(170.0).next_probe_at == 190.0


def test_deadlines_missed_while_asleep_take_effect_in_order() -> None:
    b = breaker(half_open_max_seconds=60)
    fail(b, 5)
    permit(b, 10.0)
    b.tick(1000.0)
    assert causes(b)[1:] == [
        (Cause.OPEN_PERIOD_OVER, 10.0),
        (Cause.STUCK, 70.0),
        (Cause.OPEN_PERIOD_OVER, 80.0),
    ]


def test_a_result_from_before_the_transition_changes_nothing() -> None:
    b = breaker()
    late_success, late_failure = permit(b, 0.0), permit(b, 0.0)
    fail(b, 5)
    b.record(late_success, OK, 5.0)
    assert state(b, 5.0) is State.OPEN
    b.record(late_success, OK, 11.0)
    b.record(late_failure, FAILED, 11.0)
    assert state(b, 11.0) is State.HALF_OPEN


def test_one_call_counts_once() -> None:
    b = breaker(consecutive_failures=2)
    twice = permit(b, 0.0)
    b.record(twice, FAILED, 0.0)
    b.record(twice, FAILED, 0.0)
    assert state(b, 0.0) is State.CLOSED


def test_concurrency_ramps_back_in_steps_after_closing() -> None:
    b = breaker(ramp_shares=(100, 500), ramp_step_seconds=5, full_concurrency=20)
    fail(b, 5)
    b.record(permit(b, 10.0), OK, 10.0)
    held = [permit(b, 10.0), permit(b, 10.0)]
    assert b.ramp_share(10.0) == 100
    assert refusal(b, 11.0) == (Gate.BREAKER, "Ramp", 15.0)
    b.record(held.pop(), OK, 11.0)
    permit(b, 11.0)
    assert b.ramp_share(15.0) == 500
    for _ in range(8):
        permit(b, 15.0)
    assert refusal(b, 15.0).retry_at == 20.0
    assert b.ramp_share(20.0) == 1000
    for _ in range(100):
        permit(b, 20.0)


def test_a_call_that_never_reports_leaves_the_count_after_an_hour() -> None:
    b = breaker()
    permit(b, 0.0)
    permit(b, 1800.0)
    b.tick(3600.0)
    assert b.snapshot(3600.0).in_flight == 1


def test_settings_are_swapped_live_and_counts_stay() -> None:
    b = breaker(consecutive_failures=5, window_calls=100)
    fail(b, 4)
    b.set_policy(BreakerPolicy(consecutive_failures=6, window_seconds=30), 1.0)
    assert b.snapshot(1.0).counters.failures == 4
    fail(b, 1, now=1.0)
    assert state(b, 1.0) is State.CLOSED
    fail(b, 1, now=1.0)
    assert state(b, 1.0) is State.OPEN


@pytest.mark.parametrize("seconds", [20.0, 60.0, 600.0])
def test_a_new_window_keeps_what_still_lies_in_it(seconds: float) -> None:
    b = breaker(consecutive_failures=None, window_seconds=60)
    fail(b, 2, now=1.5)
    call(b, 31.5, OK)
    b.set_policy(BreakerPolicy(consecutive_failures=None, window_seconds=seconds), 33.0)
    counters = b.snapshot(33.0).counters
    assert (counters.calls, counters.failures) == ((1, 0) if seconds == 20.0 else (3, 2))
    b.set_policy(BreakerPolicy(consecutive_failures=None, window_calls=2), 33.0)
    assert b.snapshot(33.0).counters.calls == min(2, counters.calls)


def test_new_settings_keep_the_open_deadline() -> None:
    b = breaker()
    fail(b, 5)
    b.set_policy(BreakerPolicy(open_seconds=1), 2.0)
    assert state(b, 9.9) is State.OPEN
    assert state(b, 10.0) is State.HALF_OPEN


def test_a_person_can_ask_for_a_probe_now_or_reset() -> None:
    b = breaker()
    assert not b.probe_now(0.0)
    fail(b, 5)
    assert b.probe_now(1.0)
    assert state(b, 1.0) is State.HALF_OPEN
    b.reset(2.0)
    assert (state(b, 2.0), b.ramp_share(2.0)) == (State.CLOSED, 1000)
    assert [c for c, _ in causes(b)][-2:] == [Cause.PROBE_NOW, Cause.RESET]


def test_a_sibling_opens_with_the_same_deadline_and_closes_with_it() -> None:
    leader, follower = breaker(), breaker()
    fail(leader, 5, now=3.0)
    (trip,) = leader.take_transitions()
    follower.follow(trip, 3.1)
    (followed,) = follower.take_transitions()
    assert (followed.cause, followed.next_probe_at) == (Cause.SIBLING, 13.0)
    leader.follow(followed, 3.2)
    assert leader.take_transitions() == ()
    leader.record(permit(leader, 13.0), OK, 13.5)
    follower.follow(leader.take_transitions()[-1], 13.6)
    assert state(follower, 13.6) is State.CLOSED
    assert follower.ramp_share(13.6) == 100


def test_a_person_comes_after_what_had_ended_by_itself() -> None:
    b = breaker()
    fail(b, 5)
    assert not b.probe_now(10.0)  # it is half-open already
    b.reset(11.0)
    assert causes(b) == [
        (Cause.CONSECUTIVE_FAILURES, 0.0),
        (Cause.OPEN_PERIOD_OVER, 10.0),
        (Cause.RESET, 11.0),
    ]


def test_an_echo_of_a_sibling_is_not_followed() -> None:
    b = breaker()
    counters = b.snapshot(0.0).counters
    b.follow(Transition(2, State.CLOSED, State.OPEN, Cause.SIBLING, 0.0, counters, 40.0), 0.0)
    assert b.take_transitions() == ()


@pytest.mark.parametrize("until", [10.0, 9.0, 2.0, None])
def test_a_sibling_never_shortens_our_period(until: float | None) -> None:
    b = breaker()
    fail(b, 5)
    b.take_transitions()
    snapshot = b.snapshot(3.0)
    news = Transition(
        2, State.CLOSED, State.OPEN, Cause.FAILURE_RATIO, 2.0, snapshot.counters, until
    )
    b.follow(news, 3.0)
    assert b.snapshot(3.0).next_probe_at == 10.0
    assert b.take_transitions() == ()


def test_a_transition_counts_only_what_still_lies_in_the_window() -> None:
    b = breaker()
    fail(b, 2)
    b.reset(1000.0)
    (reset,) = b.take_transitions()
    assert (reset.counters.calls, reset.counters.failures) == (0, 0)


def test_numbers_rise_by_one() -> None:
    b = breaker()
    for round_ in range(3):
        fail(b, 5, now=round_ * 1000.0)
        b.record(permit(b, round_ * 1000.0 + 500.0), OK, round_ * 1000.0 + 500.0)
    assert [t.number for t in b.take_transitions()] == list(range(2, 11))


def test_threads_lose_no_result() -> None:
    b = breaker(consecutive_failures=None)

    def work() -> None:
        for _ in range(2000):
            b.record(permit(b, 1.0), FAILED, 1.0)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen = b.snapshot(1.0)
    assert (seen.counters.failures, seen.in_flight) == (8000, 0)


@pytest.mark.parametrize(
    "settings",
    [
        {"consecutive_failures": 0},
        {"failure_ratio": 1001},
        {"slow_ratio": 0},
        {"window_seconds": 0},
        {"open_seconds": float("nan")},
        {"open_seconds": 61},
        {"half_open_probes": 0},
        {"ramp_shares": (0,)},
    ],
)
def test_impossible_settings_are_refused_by_name(settings: dict[str, object]) -> None:
    (name,) = settings
    with pytest.raises(ValueError, match=name):
        BreakerPolicy(**settings)  # type: ignore[arg-type]
