"""The automatic breaker without lock or override: counting, tripping, probing, ramping.

Invariant: every change of state goes through ``_enter``, which raises the generation (so that older
results count for nothing), forgets the calls in flight and starts an empty window. The caller
holds the lock, and deadlines up to ``now`` have been applied, in every method here.

Units: seconds on the owner's monotonic clock; shares and ratios in thousandths.
"""

from __future__ import annotations

from collections import deque
from math import ceil, inf

from controlplane.domain.breaker_policy import (
    BreakerPolicy,
    Cause,
    Counters,
    Mode,
    State,
    Transition,
)
from controlplane.domain.gate import Gate, Refusal
from controlplane.domain.window import CallWindow, TimeWindow

KEPT_TRANSITIONS = 256
"""Undrained transitions kept; older ones are lost and show as a gap in ``number``."""

# Reading a member off its Enum class costs 5 times a module global in CPython 3.11.
CLOSED, OPEN, HALF_OPEN = State.CLOSED, State.OPEN, State.HALF_OPEN


class Automaton:
    """State and rules; ``Breaker`` adds the lock, the override layer and the public methods."""

    __slots__ = (
        "_calls",
        "_cause",
        "_consecutive",
        "_due",
        "_first_probe_at",
        "_free",
        "_generation",
        "_mode",
        "_mode_until",
        "_number",
        "_open_until",
        "_policy",
        "_probe_successes",
        "_ramp_from",
        "_shut",
        "_since",
        "_slow_from",
        "_state",
        "_token",
        "_transitions",
        "_trips",
        "_window",
    )

    def __init__(self, policy: BreakerPolicy, now: float) -> None:
        self._policy = policy
        self._slow_from = policy.slow_call_seconds
        self._window = window_for(policy)
        self._mode = Mode.AUTO
        self._mode_until: float | None = None
        self._calls: dict[int, float] = {}
        self._generation = self._number = self._token = self._trips = 0
        self._open_until = -inf
        self._ramp_from: float | None = None
        self._first_probe_at: float | None = None
        self._transitions: deque[Transition] = deque(maxlen=KEPT_TRANSITIONS)
        self._state = CLOSED
        self._consecutive = self._probe_successes = 0
        self._enter(CLOSED, Cause.BOOT, now)

    def _automatic_refusal(self, now: float) -> Refusal | None:
        if self._state is OPEN:
            return Refusal(Gate.BREAKER, OPEN.value, self._open_until)
        if self._state is HALF_OPEN:
            leases = self._leases(now)
            if len(leases) < self._policy.half_open_probes:
                return None
            return Refusal(Gate.BREAKER, HALF_OPEN.value, min(leases))
        if self._ramp_from is None:
            return None
        limit = ceil(self._share(now) * self._policy.full_concurrency / 1000)
        if len(self._calls) < limit:
            return None
        later = (end for end in self._step_ends() if now < end)
        return Refusal(Gate.BREAKER, "Ramp", next(later, self._due))

    def _count(self, failed: bool, slow: bool, now: float, retry_after: float | None) -> None:
        policy, window = self._policy, self._window
        window.add(now, failed, slow)
        if failed:
            self._consecutive += 1
            if policy.consecutive_failures and self._consecutive >= policy.consecutive_failures:
                self._trip(Cause.CONSECUTIVE_FAILURES, now, retry_after)
                return
        else:
            self._consecutive = 0
        # Ratios are judged after successes too: a success can be what completes the sample.
        calls = window.calls
        if calls < policy.minimum_calls:
            return
        if policy.failure_ratio and window.failures * 1000 >= policy.failure_ratio * calls:
            self._trip(Cause.FAILURE_RATIO, now, retry_after)
        elif policy.slow_ratio and window.slow * 1000 >= policy.slow_ratio * calls:
            self._trip(Cause.SLOW_CALLS, now, retry_after)

    def _judge_probe(self, failed: bool, slow: bool, now: float, retry_after: float | None) -> None:
        # With a slow-call rule a slow success proves nothing: closing on it would only flap.
        if failed or (slow and self._policy.slow_ratio is not None):
            self._trip(Cause.PROBE_FAILED, now, retry_after)
            return
        self._probe_successes += 1
        if self._probe_successes >= self._policy.close_after:
            self._close(Cause.PROBE_SUCCEEDED, now)

    def _trip(self, cause: Cause, at: float, retry_after: float | None) -> None:
        # Stuck is no new evidence against the circuit, so it repeats the last period.
        stuck = cause is Cause.STUCK
        earlier = max(0, self._trips - 1) if stuck else self._trips
        self._open_until = at + max(self._policy.open_for(earlier), retry_after or 0.0)
        self._trips += not stuck
        self._ramp_from = None
        self._enter(OPEN, cause, at)

    def _close(self, cause: Cause, at: float) -> None:
        self._ramp_from = at
        self._enter(CLOSED, cause, at)

    def _enter(self, to: State, cause: Cause, at: float) -> None:
        self._number += 1
        self._generation += 1
        self._window.expire(at)
        self._transitions.append(
            Transition(
                number=self._number,
                from_state=self._state,
                to_state=to,
                cause=cause,
                at=at,
                counters=self._counters(),
                next_probe_at={OPEN: self._open_until, HALF_OPEN: at}.get(to),
                mode=self._mode,
            )
        )
        self._state, self._cause, self._since = to, cause, at
        self._calls.clear()
        self._window = window_for(self._policy)
        self._consecutive = self._probe_successes = 0
        self._first_probe_at = None
        self._rearm()

    def _rearm(self) -> None:
        """Work out the next deadline, the answer while shut, and whether the door stands open."""
        due = inf if self._mode_until is None else self._mode_until
        if self._state is OPEN:
            due = min(due, self._open_until)
        elif self._state is HALF_OPEN and self._first_probe_at is not None:
            due = min(due, self._first_probe_at + self._policy.half_open_max_seconds)
        elif self._state is CLOSED and self._ramp_from is not None:
            due = min(due, self._step_ends()[-1] if self._policy.ramp_shares else self._ramp_from)
        self._due = due
        forced = self._mode is Mode.FORCE_OPEN
        self._free = self._state is CLOSED and self._ramp_from is None and not forced
        # One object for the whole period: a refusal has to cost next to nothing.
        self._shut: Refusal | None = None
        if forced:
            self._shut = Refusal(Gate.OVERRIDE, Mode.FORCE_OPEN.value, self._mode_until)
        elif self._state is OPEN and self._mode is Mode.AUTO:
            self._shut = Refusal(Gate.BREAKER, OPEN.value, self._open_until)

    def _next_by_itself(self) -> None:
        """Apply the deadline ``_due`` of the present state."""
        at = self._due
        if self._state is OPEN:
            self._enter(HALF_OPEN, Cause.OPEN_PERIOD_OVER, at)
        elif self._state is HALF_OPEN:
            self._trip(Cause.STUCK, at, None)
        else:
            self._ramp_from = None
            self._trips = 0
            self._rearm()

    def _share(self, now: float) -> int:
        if self._state is not CLOSED or self._ramp_from is None:
            return 1000
        for share, end in zip(self._policy.ramp_shares, self._step_ends(), strict=True):
            if now < end:
                return share
        return 1000

    def _step_ends(self) -> list[float]:
        """When each step of the ramp ends: the very floats that a refusal names as ``retry_at``."""
        begin, step = self._ramp_from or 0.0, self._policy.ramp_step_seconds
        return [begin + (n + 1) * step for n in range(len(self._policy.ramp_shares))]

    def _leases(self, now: float) -> list[float]:
        """When each leased probe's place is free again."""
        lease = self._policy.probe_lease_seconds
        return [free_at for began in self._calls.values() if (free_at := began + lease) > now]

    def _counters(self) -> Counters:
        window = self._window
        return Counters(
            window.calls, window.failures, window.slow, self._consecutive, self._probe_successes
        )


def window_for(policy: BreakerPolicy) -> CallWindow | TimeWindow:
    """An empty window of the kind that the policy asks for."""
    if policy.window_calls is not None:
        return CallWindow(policy.window_calls)
    return TimeWindow(policy.window_seconds)
