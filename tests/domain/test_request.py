"""The request loop, step by step: who is asked, what is sent, when it waits, how it stops."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controlplane.domain.budget import BudgetPolicy, Level
from controlplane.domain.budgets import Budgets, Unlimited
from controlplane.domain.circuit import Circuit
from controlplane.domain.gate import Gate, Refusal
from controlplane.domain.request import RequestLoop
from controlplane.domain.request_plan import (
    Ask,
    AttemptAllowance,
    Ending,
    RequestSpec,
    Role,
    Send,
    Stop,
    Target,
    Wait,
)
from controlplane.domain.verdict import Kind, Scope, Verdict

A, B, C = (Target(Circuit(provider, "m")) for provider in ("a", "b", "c"))
OK = Verdict(Kind.SUCCESS, "ok", False, False, Scope.REQUEST)
BUSY = Verdict(Kind.RETRYABLE, "overloaded", True, True, Scope.PROVIDER)
SHUT = Refusal(Gate.BREAKER, "Open", 40.0)


def limited(seconds: float) -> Verdict:
    return Verdict(Kind.RETRYABLE, "rate_limited", True, True, Scope.KEY, seconds)


def permanent(reason: str, scope: Scope) -> Verdict:
    return Verdict(Kind.PERMANENT, reason, False, False, scope)


def spec(*targets: Target, **settings: object) -> RequestSpec:
    plan: dict[str, object] = {"targets": targets or (A,), "deadline": 60.0, **settings}
    return RequestSpec(**plan)  # type: ignore[arg-type]


def sent(loop: RequestLoop, now: float) -> Send:
    """Through open gates to the send."""
    asked = loop.next(now, 0.5)
    assert isinstance(asked, Ask), asked
    loop.admitted()
    action = loop.next(now, 0.5)
    assert isinstance(action, Send)
    return action


def stopped(loop: RequestLoop, now: float) -> Stop:
    action = loop.next(now, 0.5)
    assert isinstance(action, Stop), action
    return action


def circuits(loop: RequestLoop, verdicts: list[Verdict]) -> list[str]:
    """Run to the end with these answers; every wait is slept. Returns the providers sent to."""
    now, seen = 0.0, []
    answers = iter(verdicts)
    while not isinstance(action := loop.next(now, 0.5), Stop):
        if isinstance(action, Wait):
            now += action.seconds
        elif isinstance(action, Ask):
            loop.admitted()
        else:
            seen.append(action.target.circuit.provider)
            loop.observe(next(answers), now)
    return seen


def test_a_success_is_served_at_once() -> None:
    loop = RequestLoop(spec(A, B), Unlimited())
    send = sent(loop, 0.0)
    assert send == (A, 1, Role.FIRST, False, 60.0)
    loop.observe(OK, 2.0)
    assert stopped(loop, 2.0) == (Ending.SERVED, "ok", None, None, OK)


def test_a_retry_waits_with_jitter_and_is_the_same_target() -> None:
    loop = RequestLoop(spec(A), Unlimited())
    sent(loop, 0.0)
    loop.observe(BUSY, 1.0)
    assert loop.next(1.0, 0.5) == Wait(0.25, A)
    assert loop.next(1.1, 0.9) == Wait(pytest.approx(0.15), A)
    assert sent(loop, 1.25) == (A, 2, Role.RETRY, False, 58.75)
    loop.observe(BUSY, 2.0)
    assert loop.next(2.0, 0.5) == Wait(0.5, A)


def test_retry_after_is_a_minimum_wait_above_the_jitters_cap() -> None:
    loop = RequestLoop(spec(A), Unlimited())
    sent(loop, 0.0)
    loop.observe(limited(45.0), 1.0)
    assert loop.next(1.0, 0.5) == Wait(45.0, A)


def test_retry_after_longer_than_the_deadline_falls_back_at_once() -> None:
    loop = RequestLoop(spec(A, B), Unlimited())
    sent(loop, 0.0)
    loop.observe(limited(60.0), 1.0)
    assert sent(loop, 1.0) == (B, 2, Role.FALLBACK, False, 59.0)
    (refused,) = loop.refusals
    assert (refused.role, refused.refusal.gate) == (Role.RETRY, Gate.DEADLINE)


@pytest.mark.parametrize(("hint", "fits"), [(58.9, True), (59.0, False), (59.5, False)])
def test_a_wait_fits_only_if_it_ends_before_the_deadline(hint: float, fits: bool) -> None:
    loop = RequestLoop(spec(A), Unlimited())
    sent(loop, 0.0)
    loop.observe(limited(hint), 1.0)
    assert isinstance(loop.next(1.0, 0.5), Wait if fits else Stop)


def test_retry_after_longer_than_the_deadline_stops_without_a_fallback() -> None:
    loop = RequestLoop(spec(A), Unlimited())
    sent(loop, 0.0)
    loop.observe(limited(90.0), 1.0)
    stop = stopped(loop, 2.0)
    assert stop == (Ending.FAILED, "rate_limited", Gate.DEADLINE, 89.0, limited(90.0))


def test_a_wait_above_the_longest_worth_making_falls_back() -> None:
    loop = RequestLoop(spec(A, B, max_wait_s=5.0), Unlimited())
    sent(loop, 0.0)
    loop.observe(limited(6.0), 1.0)
    assert sent(loop, 1.0).target == B


def test_the_last_attempt_is_kept_for_a_fallback() -> None:
    assert circuits(RequestLoop(spec(A, B), Unlimited()), [BUSY, BUSY, OK]) == ["a", "a", "b"]
    assert circuits(RequestLoop(spec(A), Unlimited()), [BUSY, BUSY, OK]) == ["a", "a", "a"]


def test_attempts_end_across_all_targets_together() -> None:
    loop = RequestLoop(spec(A, B, C, max_attempts=4), Unlimited())
    assert circuits(loop, [BUSY] * 9) == ["a", "a", "a", "b"]
    assert stopped(loop, 9.0).gate is Gate.BUDGET


def test_a_fallback_keeps_the_deadline_and_the_timeout_is_what_is_left() -> None:
    loop = RequestLoop(spec(A, B, attempt_timeout_s=30.0, max_attempts=2), Unlimited())
    assert sent(loop, 0.0).timeout_s == 30.0
    loop.observe(BUSY, 30.0)
    assert sent(loop, 45.0) == (B, 2, Role.FALLBACK, False, 15.0)


def test_a_target_that_was_left_is_never_asked_again() -> None:
    loop = RequestLoop(spec(A, B, A, B, max_attempts=9), Unlimited())
    gone = permanent("model_not_found", Scope.MODEL)
    assert circuits(loop, [gone] * 9) == ["a", "b"]


def test_a_circuits_rejection_is_final_for_its_target() -> None:
    loop = RequestLoop(spec(A, B), Unlimited())
    assert loop.next(0.0, 0.5) == Ask(A, 1, Role.FIRST, False)
    loop.refused(SHUT, 0.0)
    assert sent(loop, 0.0) == (B, 1, Role.FIRST, True, 60.0)
    loop.observe(BUSY, 1.0)
    loop.next(1.0, 0.0)
    loop.refused(SHUT, 1.0)
    stop = stopped(loop, 1.0)
    assert (stop.ending, stop.reason, stop.gate) == (Ending.FAILED, "overloaded", Gate.BREAKER)


def test_all_refused_says_when_the_soonest_opens() -> None:
    loop = RequestLoop(spec(A, B, C), Unlimited())
    for refusal in (
        Refusal(Gate.BREAKER, "Open", 40.0),
        Refusal(Gate.KEY, "rate_limited", 12.0),
        Refusal(Gate.OVERRIDE, "ForceOpen", None),
    ):
        assert isinstance(loop.next(2.0, 0.5), Ask)
        loop.refused(refusal, 2.0)
    assert stopped(loop, 2.0) == (Ending.REFUSED, "rate_limited", Gate.KEY, 10.0, None)
    assert loop.attempts == 0
    assert [call.refusal.gate for call in loop.refusals] == ["breaker", "key", "override"]


def test_only_an_approved_target_is_used() -> None:
    until = Target(Circuit("d", "m"), approved_until=5.0)
    loop = RequestLoop(spec(Target(A.circuit, approved=False), until, B), Unlimited())
    assert sent(loop, 5.0).target == B
    assert [(c.target.circuit.provider, c.refusal) for c in loop.refusals] == [
        ("a", Refusal(Gate.POLICY, "not_approved")),
        ("d", Refusal(Gate.POLICY, "expired")),
    ]
    loop = RequestLoop(spec(until), Unlimited())
    assert sent(loop, 4.9).target == until
    loop = RequestLoop(spec(until), Unlimited())
    assert stopped(loop, 5.0) == (Ending.REFUSED, "expired", Gate.POLICY, None, None)


def test_no_fallback_to_a_target_without_approval() -> None:
    loop = RequestLoop(spec(A, Target(B.circuit, approved=False), max_attempts=2), Unlimited())
    assert circuits(loop, [BUSY, BUSY]) == ["a", "a"]


@pytest.mark.parametrize("woken", [None, 5.0], ids=["its wait is too long", "slept too long"])
def test_a_retry_too_is_only_made_while_the_approval_stands(woken: float | None) -> None:
    until = Target(Circuit("d", "m"), approved_until=5.0)
    budgets = Budgets(lambda level, subject: BudgetPolicy(500, min_per_second=1.0))
    loop = RequestLoop(spec(until, B), budgets.of("acme"))
    sent(loop, 0.0)
    loop.observe(limited(3.0 if woken else 4.0), 1.0)
    if woken:
        assert loop.next(1.0, 0.0) == Wait(3.0, until)
    assert sent(loop, woken or 1.0).target == B
    assert [(c.target, c.refusal) for c in loop.refusals] == [
        (until, Refusal(Gate.POLICY, "expired"))
    ]
    assert {balance.spent for _, _, balance in budgets.balances(5.0)} == {0}


def test_an_accepted_operation_times_out_and_nothing_with_side_effects_is_run_twice() -> None:
    timeout = Verdict(Kind.RETRYABLE, "timeout", True, True, Scope.PROVIDER)
    loop = RequestLoop(spec(A, B, repeatable=False), Unlimited())
    sent(loop, 0.0)
    loop.observe(timeout, 30.0, left_us=True)
    assert stopped(loop, 30.0) == (Ending.FAILED, "timeout", None, None, timeout)
    assert loop.attempts == 1


@pytest.mark.parametrize("settings", [{"repeatable": False}, {"body_small": False}])
def test_a_request_of_which_no_byte_left_may_go_again(settings: dict[str, object]) -> None:
    loop = RequestLoop(spec(A, **settings), Unlimited())
    sent(loop, 0.0)
    loop.observe(Verdict(Kind.RETRYABLE, "connect", True, True, Scope.PROVIDER), 1.0, left_us=False)
    assert loop.next(1.0, 0.5) == Wait(0.25, A)
    assert sent(loop, 1.25).role is Role.RETRY


def test_a_body_too_large_to_keep_is_not_sent_again() -> None:
    loop = RequestLoop(spec(A, B, body_small=False), Unlimited())
    sent(loop, 0.0)
    loop.observe(BUSY, 1.0)
    assert stopped(loop, 1.0).ending is Ending.FAILED


@pytest.mark.parametrize(
    ("kind", "ending"),
    [
        (Kind.PARTIAL, Ending.FAILED),
        (Kind.CLIENT_CANCELLED, Ending.CANCELLED),
        (Kind.CLIENT_DEADLINE, Ending.DEADLINE),
    ],
)
def test_some_ends_are_final_whatever_is_left(kind: Kind, ending: Ending) -> None:
    loop = RequestLoop(spec(A, B), Unlimited())
    sent(loop, 0.0)
    loop.observe(Verdict(kind, "reason", True, True, Scope.PROVIDER), 1.0)
    assert stopped(loop, 1.0).ending is ending


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (permanent("invalid_request", Scope.REQUEST), ["a"]),
        (permanent("content_filtered", Scope.REQUEST), ["a"]),
        (permanent("context_length", Scope.REQUEST), ["a", "b"]),
        (permanent("model_not_found", Scope.MODEL), ["a", "b"]),
        (permanent("quota_exhausted", Scope.KEY), ["a", "b"]),
        (Verdict(Kind.LOCAL_FAULT, "local_pool", False, False, Scope.REQUEST), ["a", "b"]),
        (BUSY, ["a", "a", "b"]),
    ],
)
def test_only_what_another_target_may_serve_goes_there(
    verdict: Verdict, expected: list[str]
) -> None:
    loop = RequestLoop(spec(A, B), Unlimited())
    assert circuits(loop, [verdict] * max(1, len(expected) - 1) + [OK]) == expected


def test_a_faulty_key_is_replaced_at_once_when_another_is_awake() -> None:
    loop = RequestLoop(spec(A, B), Unlimited())
    sent(loop, 0.0)
    loop.observe(permanent("quota_exhausted", Scope.KEY), 1.0, other_key=True)
    assert sent(loop, 1.0) == (A, 2, Role.RETRY, False, 59.0)


def test_the_budgets_refusal_falls_back_and_is_reported() -> None:
    budgets = Budgets(lambda level, subject: BudgetPolicy(0, min_per_second=0))
    loop = RequestLoop(spec(A, B), budgets.of("acme"))
    sent(loop, 0.0)
    loop.observe(BUSY, 1.0)
    assert sent(loop, 1.0).target == B
    (refused,) = loop.refusals
    assert (refused.target, refused.ordinal, refused.role) == (A, 2, Role.RETRY)
    assert refused.refusal == Refusal(Gate.BUDGET, "tenant")


def test_the_budgets_refusal_stops_without_a_fallback() -> None:
    budgets = Budgets(lambda level, subject: BudgetPolicy(0, min_per_second=0))
    loop = RequestLoop(spec(A), budgets.of("acme"))
    sent(loop, 0.0)
    loop.observe(BUSY, 1.0)
    assert stopped(loop, 1.0)[:3] == (Ending.FAILED, "overloaded", Gate.BUDGET)


def figures(budgets: Budgets, now: float) -> tuple[int, int]:
    (row,) = (b for level, _, b in budgets.balances(now) if level is Level.SYSTEM)
    return row.earned, row.spent


def test_a_first_earns_when_sent_and_gives_back_when_its_failure_counts() -> None:
    budgets = Budgets(lambda level, subject: BudgetPolicy())
    loop = RequestLoop(spec(A), budgets.of("acme"))
    sent(loop, 0.0)
    assert figures(budgets, 0.0) == (1, 0)
    loop.observe(BUSY, 1.0)
    assert figures(budgets, 1.0) == (0, 0)
    loop.next(1.0, 0.0)
    assert figures(budgets, 1.0) == (0, 1)
    loop.admitted()
    loop.next(1.0, 0.0)
    loop.observe(OK, 2.0)
    assert figures(budgets, 2.0) == (0, 1)


def test_a_failed_retry_gives_nothing_back() -> None:
    budgets = Budgets(lambda level, subject: BudgetPolicy())
    for _ in range(3):
        budgets.of("acme").earn(A.circuit, 0.0)
    circuits(RequestLoop(spec(A, max_attempts=3), budgets.of("acme")), [BUSY, BUSY, BUSY])
    assert figures(budgets, 2.0) == (3, 2)


@pytest.mark.parametrize(
    "verdict", [OK, permanent("invalid_request", Scope.REQUEST), permanent("auth", Scope.KEY)]
)
def test_a_first_keeps_its_earning_when_the_circuit_is_not_to_blame(verdict: Verdict) -> None:
    budgets = Budgets(lambda level, subject: BudgetPolicy())
    loop = RequestLoop(spec(A), budgets.of("acme"))
    sent(loop, 0.0)
    loop.observe(verdict, 1.0)
    assert figures(budgets, 1.0) == (1, 0)


def test_a_redelivery_earns_nothing_and_its_next_attempts_are_as_usual() -> None:
    budgets = Budgets(lambda level, subject: BudgetPolicy())
    loop = RequestLoop(spec(A, B, redelivery=True), budgets.of("acme"))
    assert sent(loop, 0.0).role is Role.REDELIVERY
    assert [budget.earned for _, _, budget in budgets.balances(0.0)] == []
    loop.observe(BUSY, 1.0)
    assert loop.next(1.0, 0.5) == Wait(0.25, A)
    assert sent(loop, 1.25).role is Role.RETRY
    assert figures(budgets, 1.25) == (0, 1)


def refuse_it(loop: RequestLoop) -> None:
    loop.next(9.0, 0.5)
    loop.refused(SHUT, 9.0)


def let_the_deadline_pass(loop: RequestLoop) -> None:
    loop.next(99.0, 0.5)


def admit_too_late(loop: RequestLoop) -> None:
    loop.next(9.0, 0.5)
    loop.admitted()
    assert isinstance(loop.next(99.0, 0.5), Stop)


def go_away(loop: RequestLoop) -> None:
    loop.cancelled(1.0)


@pytest.mark.parametrize("end", [refuse_it, let_the_deadline_pass, admit_too_late, go_away])
def test_a_granted_retry_that_is_not_sent_is_refunded(end: Callable[[RequestLoop], None]) -> None:
    budgets = Budgets(lambda level, subject: BudgetPolicy())
    task = AttemptAllowance(5)
    loop = RequestLoop(spec(A), budgets.of("acme"), task)
    sent(loop, 0.0)
    loop.observe(BUSY, 1.0)
    assert isinstance(loop.next(1.0, 0.5), Wait)
    assert figures(budgets, 1.0) == (0, 1)
    end(loop)
    assert figures(budgets, 9.0) == (0, 0)
    assert task.used == 1


def test_the_attempts_of_a_task_are_shared_by_its_requests() -> None:
    task = AttemptAllowance(3)
    assert circuits(RequestLoop(spec(A), Unlimited(), task), [BUSY, OK]) == ["a", "a"]
    second = RequestLoop(spec(A, B), Unlimited(), task)
    assert circuits(second, [BUSY, OK]) == ["a"]
    assert second.refusals[-1].refusal == Refusal(Gate.BUDGET, "task")
    third = RequestLoop(spec(A, B), Unlimited(), task)
    assert stopped(third, 0.0) == (Ending.REFUSED, "task", Gate.BUDGET, None, None)


def test_nothing_begins_once_the_deadline_has_passed() -> None:
    loop = RequestLoop(spec(A), Unlimited())
    assert stopped(loop, 60.0)[:3] == (Ending.DEADLINE, "deadline", Gate.DEADLINE)
    assert [call.refusal.gate for call in loop.refusals] == [Gate.DEADLINE]
    assert loop.attempts == 0


def test_a_clear_answer_at_the_last_moment_is_still_the_answer() -> None:
    loop = RequestLoop(spec(A, B), Unlimited())
    sent(loop, 0.0)
    loop.observe(permanent("invalid_request", Scope.REQUEST), 60.5)
    assert stopped(loop, 60.5)[:2] == (Ending.FAILED, "invalid_request")


def test_the_caller_may_leave_at_any_moment_and_the_end_stays() -> None:
    loop = RequestLoop(spec(A), Unlimited())
    sent(loop, 0.0)
    gone = loop.cancelled(1.0)
    assert gone.ending is Ending.CANCELLED
    assert loop.cancelled(2.0) is gone
    assert stopped(loop, 3.0) is gone


def test_steps_out_of_turn_are_refused() -> None:
    loop = RequestLoop(spec(A), Unlimited())
    with pytest.raises(RuntimeError, match="CHOOSE"):
        loop.admitted()
    loop.next(0.0, 0.5)
    with pytest.raises(RuntimeError, match="Ask"):
        loop.next(0.0, 0.5)
    loop.admitted()
    loop.next(0.0, 0.5)
    with pytest.raises(RuntimeError, match="Send"):
        loop.next(0.0, 0.5)
    with pytest.raises(RuntimeError, match="SENT"):
        loop.refused(SHUT, 0.0)


@pytest.mark.parametrize(
    ("name", "value"), [("targets", ()), ("max_attempts", 0), ("attempt_timeout_s", 0)]
)
def test_impossible_plans_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        RequestLoop(spec(**{name: value}), Unlimited())
