"""Properties of the breaker over any sequence of calls, results, overrides and pauses."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from controlplane.domain.breaker import Breaker, BreakerPolicy, Cause, Mode, Outcome, Permit, State
from controlplane.domain.gate import Gate, Refusal

POLICIES = st.builds(
    BreakerPolicy,
    consecutive_failures=st.one_of(st.none(), st.integers(1, 4)),
    failure_ratio=st.one_of(st.none(), st.integers(100, 1000)),
    slow_ratio=st.one_of(st.none(), st.integers(100, 1000)),
    slow_call_seconds=st.sampled_from([5.0, 30.0]),
    minimum_calls=st.integers(1, 6),
    window_calls=st.one_of(st.none(), st.integers(1, 8)),
    half_open_probes=st.integers(1, 3),
    half_open_max_seconds=st.sampled_from([20.0, 60.0]),
    close_after=st.integers(1, 4),
    ramp_shares=st.sampled_from([(), (100, 500)]),
    full_concurrency=st.integers(1, 4),
)
PAUSES = st.sampled_from([0.0, 0.1, 1.0, 5.0, 10.0, 29.9, 30.0, 60.0, 3700.0])


class Calls(RuleBasedStateMachine):
    """Each permit is remembered with the transition number under which it was given."""

    permits = Bundle("permits")

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.policy = BreakerPolicy(consecutive_failures=2)
        self.breaker = Breaker(self.policy, self.now)
        self.admitted: dict[Permit, int] = {}
        self.reported: set[Permit] = set()
        self.probes: dict[Permit, float] = {}
        self.last_number = 0
        self.mode, self.mode_until = Mode.AUTO, None

    @rule(pause=PAUSES)
    def time_passes(self, pause: float) -> None:
        self.now += pause

    @rule(policy=POLICIES)
    def settings_change(self, policy: BreakerPolicy) -> None:
        before = self.breaker.snapshot(self.now)
        self.policy = policy
        self.breaker.set_policy(policy, self.now)
        after = self.breaker.snapshot(self.now)
        if before.state is State.HALF_OPEN and after.cause is Cause.STUCK:
            # A shorter patience in half-open ends it now, and is dated now.
            assert (after.state, after.since) == (State.OPEN, self.now)
            return
        assert (before.state, before.number, before.next_probe_at) == (
            after.state,
            after.number,
            after.next_probe_at,
        )

    @rule(mode=st.sampled_from(Mode), life=st.one_of(st.none(), PAUSES))
    def a_person_decides(self, mode: Mode, life: float | None) -> None:
        until = None if life is None else self.now + life
        self.breaker.set_mode(mode, self.now, until)
        alive = mode is not Mode.AUTO and (until is None or until > self.now)
        self.mode, self.mode_until = (mode, until) if alive else (Mode.AUTO, None)

    @rule(target=permits)
    def ask(self) -> object:
        before = self.breaker.snapshot(self.now)
        answer = self.breaker.admit(self.now)
        if before.mode is Mode.FORCE_OPEN:
            assert isinstance(answer, Refusal)
            assert answer.gate is Gate.OVERRIDE
        if before.mode in (Mode.FORCE_CLOSED, Mode.OBSERVE_ONLY):
            assert not isinstance(answer, Refusal)
        if before.mode is Mode.AUTO and before.state is State.OPEN:
            assert isinstance(answer, Refusal)
            assert answer.retry_at == before.next_probe_at
        if isinstance(answer, Refusal):
            assert answer.retry_at is None or answer.retry_at > self.now
            return multiple()
        self.admitted[answer] = before.number
        if before.state is State.HALF_OPEN and not answer[3]:
            self.probes[answer] = self.now
            assert before.probes_out < self.policy.half_open_probes
        return answer

    @rule(permit=permits, outcome=st.sampled_from(Outcome))
    def report(self, permit: Permit, outcome: Outcome) -> None:
        before = self.breaker.snapshot(self.now)
        stale = self.admitted[permit] != before.number or permit in self.reported or permit[3]
        self.breaker.record(permit, outcome, self.now)
        after = self.breaker.snapshot(self.now)
        if stale:
            assert before == after
        elif outcome is Outcome.NEUTRAL:
            assert (after.state, after.counters) == (before.state, before.counters)
        self.reported.add(permit)

    @invariant()
    def transitions_are_numbered_without_a_gap_and_dated_in_order(self) -> None:
        at = float("-inf")
        for change in self.breaker.take_transitions():
            assert change.number == self.last_number + 1
            assert at <= change.at <= self.now
            self.last_number, at = change.number, change.at

    @invariant()
    def an_override_is_in_force_exactly_until_its_end(self) -> None:
        if self.mode_until is not None and self.now >= self.mode_until:
            self.mode, self.mode_until = Mode.AUTO, None
        assert self.breaker.snapshot(self.now).mode is self.mode

    @invariant()
    def no_more_probes_are_out_than_leased(self) -> None:
        seen = self.breaker.snapshot(self.now)
        ours = [
            began
            for permit, began in self.probes.items()
            if permit not in self.reported
            and self.admitted[permit] == seen.number
            and began + self.policy.probe_lease_seconds > self.now
        ]
        if seen.state is State.HALF_OPEN:
            assert seen.probes_out == len(ours)

    def teardown(self) -> None:
        """From wherever the run ended, successes alone lead back to Closed at full concurrency."""
        self.breaker.set_mode(Mode.AUTO, self.now)
        for _ in range(400):
            seen = self.breaker.snapshot(self.now)
            if seen.state is State.CLOSED and seen.ramp_share == 1000:
                return
            answer = self.breaker.admit(self.now)
            if not isinstance(answer, Refusal):
                self.breaker.record(answer, Outcome.SUCCESS, self.now)
            self.now += 1.0
        raise AssertionError(f"wedged: {self.breaker.snapshot(self.now)}")


Calls.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestCalls = Calls.TestCase
