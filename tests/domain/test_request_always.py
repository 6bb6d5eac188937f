"""What holds of every request, whatever its targets answer and its gates refuse."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.domain.backoff import BackoffPolicy
from controlplane.domain.budget import BudgetPolicy, Level
from controlplane.domain.budgets import Budgets
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

HINTS = st.one_of(st.none(), st.floats(0, 100))
VERDICTS = st.builds(
    Verdict,
    kind=st.sampled_from(Kind),
    reason=st.sampled_from(["overloaded", "context_length", "rate_limited"]),
    retryable=st.booleans(),
    counts_against_breaker=st.booleans(),
    scope=st.sampled_from(Scope),
    retry_after_s=HINTS,
)
TARGETS = st.lists(
    st.builds(
        Target,
        circuit=st.builds(Circuit, st.sampled_from("abc"), st.just("m"), st.just("")),
        approved=st.booleans(),
        approved_until=st.one_of(st.none(), st.floats(0, 60)),
    ),
    min_size=1,
    max_size=5,
)
SPECS = st.builds(
    RequestSpec,
    targets=TARGETS.map(tuple),
    deadline=st.floats(1, 60),
    max_attempts=st.integers(1, 6),
    attempt_timeout_s=st.sampled_from([1.0, 10.0, 100.0]),
    repeatable=st.booleans(),
    body_small=st.booleans(),
    redelivery=st.booleans(),
    max_wait_s=st.one_of(st.none(), st.floats(0, 10)),
    backoff=st.just(BackoffPolicy()),
)
REFUSALS = st.builds(
    Refusal, st.sampled_from(Gate), st.just("x"), st.one_of(st.none(), st.floats(0, 200))
)


@given(spec=SPECS, data=st.data(), task_limit=st.one_of(st.none(), st.integers(0, 4)))
@settings(max_examples=400, deadline=None)
def test_every_request_keeps_its_limits_and_ends(
    spec: RequestSpec, data: st.DataObject, task_limit: int | None
) -> None:
    budgets = Budgets(lambda level, subject: BudgetPolicy(500, min_per_second=0.02))
    task = AttemptAllowance(task_limit)
    loop = RequestLoop(spec, budgets.of("acme"), task)
    now = 0.0
    sends: list[Send] = []
    asked: list[Circuit] = []
    may_repeat, hint = True, 0.0
    for _ in range(100):
        action = loop.next(now, data.draw(st.floats(0, 1, exclude_max=True)))
        if isinstance(action, Stop):
            break
        assert now < spec.deadline
        if isinstance(action, Wait):
            assert now + action.seconds < spec.deadline
            assert action.seconds >= hint - 1e-9
            now += action.seconds + data.draw(st.floats(0, 5))  # one may sleep too long
        elif isinstance(action, Ask):
            assert action.target.usable(now)
            asked.append(action.target.circuit)
            if data.draw(st.booleans()):
                loop.admitted()
            else:
                loop.refused(data.draw(REFUSALS), now)
        else:
            assert may_repeat
            assert action.timeout_s <= spec.deadline - now + 1e-9
            sends.append(action)
            now += data.draw(st.floats(0, action.timeout_s))
            verdict = data.draw(VERDICTS)
            hint = verdict.retry_after_s or 0.0
            left_us = data.draw(st.booleans())
            loop.observe(verdict, now, left_us=left_us, other_key=False)
            resend = not left_us or (spec.repeatable and spec.body_small)
            final = (Kind.SUCCESS, Kind.PARTIAL, Kind.CLIENT_CANCELLED, Kind.CLIENT_DEADLINE)
            may_repeat = resend and verdict.kind not in final
    else:
        raise AssertionError("the loop did not end")

    assert loop.next(now, 0.5) is action
    assert len(sends) == loop.attempts <= spec.max_attempts
    assert task.used == len(sends)
    assert [send.ordinal for send in sends] == list(range(1, len(sends) + 1))
    assert_roles(spec, sends)
    runs = [circuit for n, circuit in enumerate(asked) if n == 0 or asked[n - 1] != circuit]
    assert len(runs) == len(set(runs)), "a target that was left was asked again"
    assert (action.ending is Ending.REFUSED) <= (not sends)
    assert action.retry_after_s is None or action.retry_after_s >= 0
    retries = sum(send.role is Role.RETRY for send in sends)
    for level, _, balance in budgets.balances(now):
        assert balance.spent <= retries, level
        if level is Level.SYSTEM and now < 57:
            assert balance.spent == retries


def assert_roles(spec: RequestSpec, sends: list[Send]) -> None:
    """Roles follow from ordinal and circuit alone."""
    for before, send in zip([None, *sends], sends, strict=False):
        if before is None:
            assert send.role is (Role.REDELIVERY if spec.redelivery else Role.FIRST)
        else:
            same = before.target.circuit == send.target.circuit
            assert send.role is (Role.RETRY if same else Role.FALLBACK)
            assert not send.rerouted
