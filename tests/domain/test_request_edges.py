"""The request loop where two rules meet: each test is a line that nothing else held in place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controlplane.domain.budgets import Unlimited
from controlplane.domain.circuit import Circuit
from controlplane.domain.gate import Gate, Refusal
from controlplane.domain.request import RequestLoop
from controlplane.domain.request_plan import Ask, Ending, Role, Stop, Wait
from controlplane.domain.verdict import Scope
from tests.domain.test_request import (
    BUSY,
    OK,
    A,
    B,
    circuits,
    limited,
    permanent,
    sent,
    spec,
    stopped,
)

SPENT = permanent("quota_exhausted", Scope.KEY)


class Grants(Unlimited):
    """Remembers whose budget was asked."""

    def __init__(self) -> None:
        self.asked: list[Circuit] = []

    def ask(self, circuit: Circuit, now: float) -> Refusal | None:
        self.asked.append(circuit)
        return None


def test_the_first_retry_of_a_fallback_waits_as_a_first_retry() -> None:
    loop = RequestLoop(spec(A, B, max_attempts=9), Unlimited())
    sent(loop, 10.0)
    loop.observe(BUSY, 10.0)
    assert isinstance(loop.next(10.0, 0.5), Wait)
    loop.next(12.0, 0.5)
    loop.refused(Refusal(Gate.BREAKER, "Open", 40.0), 12.0)
    sent(loop, 12.0)
    loop.observe(BUSY, 12.0)
    assert loop.next(12.0, 1.0) == Wait(0.5, B)


def test_a_retry_of_a_fallback_is_a_retry_and_spends_the_fallbacks_budget() -> None:
    grants = Grants()
    loop = RequestLoop(spec(A, B, max_attempts=9), grants)
    sent(loop, 0.0)
    loop.observe(permanent("model_not_found", Scope.MODEL), 0.0)
    assert sent(loop, 0.0).role is Role.FALLBACK
    loop.observe(BUSY, 0.0)
    assert loop.next(0.0, 1.0) == Wait(0.5, B)
    assert sent(loop, 0.5)[:3] == (B, 3, Role.RETRY)
    assert grants.asked == [B.circuit]


def test_another_key_helps_against_a_fault_of_the_key_alone() -> None:
    loop = RequestLoop(spec(A), Unlimited())
    sent(loop, 0.0)
    loop.observe(BUSY, 0.0, other_key=True)
    assert loop.next(0.0, 1.0) == Wait(0.5, A)
    loop = RequestLoop(spec(A), Unlimited())
    sent(loop, 0.0)
    loop.observe(limited(30.0), 0.0, other_key=True)
    assert sent(loop, 0.0).role is Role.RETRY


@pytest.mark.parametrize(("hint", "waits"), [(4.9, True), (5.0, True), (5.1, False)])
def test_the_longest_wait_worth_making_is_worth_making(hint: float, waits: bool) -> None:
    loop = RequestLoop(spec(A, max_wait_s=5.0), Unlimited())
    sent(loop, 0.0)
    loop.observe(limited(hint), 0.0)
    action = loop.next(0.0, 0.0)
    assert action == (Wait(hint, A) if waits else action)
    assert isinstance(action, Wait if waits else Stop)


def test_a_wait_that_is_refused_says_until_when() -> None:
    loop = RequestLoop(spec(A, max_wait_s=5.0), Unlimited())
    sent(loop, 0.0)
    loop.observe(limited(30.0), 10.0)
    assert stopped(loop, 10.0).retry_after_s == 30.0
    assert loop.refusals[-1].refusal == Refusal(Gate.DEADLINE, "wait_too_long", 40.0)


def test_the_last_attempt_is_not_kept_for_the_same_circuit_again() -> None:
    again = replace(A)
    assert circuits(RequestLoop(spec(A, again, max_attempts=2), Unlimited()), [BUSY, OK]) == [
        "a",
        "a",
    ]


def test_the_last_attempt_is_not_kept_for_a_target_that_may_not_be_used() -> None:
    barred = replace(B, approved=False)
    loop = RequestLoop(spec(A, barred, max_attempts=2), Unlimited())
    assert circuits(loop, [BUSY, OK]) == ["a", "a"]


def test_too_late_after_a_passing_fault_is_too_late() -> None:
    loop = RequestLoop(spec(A, B), Unlimited())
    sent(loop, 0.0)
    loop.observe(BUSY, 60.5)
    assert stopped(loop, 60.5)[:3] == (Ending.DEADLINE, "deadline", Gate.DEADLINE)
    assert loop.refusals == []  # no call was about to be made


def test_too_late_with_another_key_asked_for_is_too_late() -> None:
    loop = RequestLoop(spec(A), Unlimited())
    sent(loop, 0.0)
    loop.observe(SPENT, 1.0, other_key=True)
    assert isinstance(loop.next(1.0, 0.5), Ask)
    loop.admitted()
    assert stopped(loop, 60.0)[:2] == (Ending.DEADLINE, "deadline")
    assert [(c.ordinal, c.refusal.gate) for c in loop.refusals] == [(2, Gate.DEADLINE)]


def test_too_late_at_the_gates_names_the_target_that_was_asked() -> None:
    loop = RequestLoop(spec(A, B), Unlimited())
    loop.next(0.0, 0.5)
    loop.refused(Refusal(Gate.BREAKER, "Open", 40.0), 1.0)
    loop.next(1.0, 0.5)
    loop.admitted()
    stopped(loop, 60.0)
    assert [(c.target, c.refusal.gate) for c in loop.refusals] == [
        (A, Gate.BREAKER),
        (B, Gate.DEADLINE),
    ]


def test_a_result_without_a_send_is_out_of_turn() -> None:
    loop = RequestLoop(spec(A), Unlimited())
    with pytest.raises(RuntimeError, match="CHOOSE"):
        loop.observe(OK, 0.0)
