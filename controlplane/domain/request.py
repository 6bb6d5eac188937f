"""One request as a pure step machine: what has happened and ``now`` in, the next action out.

Proxy, pool, brownout replay and what-if all drive this one loop::

    loop = RequestLoop(spec, budgets.of(tenant))
    while not isinstance(action := loop.next(now, u), Stop):
        Ask  -> ask the gates (rate, concurrency, key, cost, breaker, override), then
                loop.admitted() or loop.refused(refusal, now)
        Send -> call the provider, then loop.observe(verdict, now, ...)
        Wait -> sleep

Invariants: one deadline covers every attempt, wait and fallback; a target that was left or refused
is never asked again; what a provider may already have begun is sent again only if it is repeatable;
delivered output is never replayed; at most ``max_attempts`` sends.

How budgets are asked: they are pure memory, so the loop holds them as a port (``RetryGrants``) and
earns, gives back, asks and refunds by itself; no driver can get the rule wrong. A retry is granted
before its wait, so that nobody waits for a refusal, and refunded when it is not sent after all. The
other gates belong to the driver, since some of them queue; a driver that holds a permit and is
then told anything but ``Send`` must release it.

Units: seconds on the driver's monotonic clock. ``u`` is a uniform draw from [0, 1), for the jitter.
"""

from __future__ import annotations

from enum import Enum, auto

from controlplane.domain.budget import Level
from controlplane.domain.circuit import Circuit
from controlplane.domain.gate import Gate, Refusal
from controlplane.domain.request_plan import (
    Action,
    Ask,
    AttemptAllowance,
    Ending,
    RefusedCall,
    RequestSpec,
    RetryGrants,
    Role,
    Send,
    Stop,
    Target,
    Wait,
    another_may_serve,
)
from controlplane.domain.verdict import Kind, Scope, Verdict

_FINAL = {
    Kind.SUCCESS: Ending.SERVED,
    Kind.PARTIAL: Ending.FAILED,
    Kind.CLIENT_CANCELLED: Ending.CANCELLED,
    Kind.CLIENT_DEADLINE: Ending.DEADLINE,
}


class _Phase(Enum):
    CHOOSE = auto()
    ASKED = auto()
    ADMITTED = auto()
    SENT = auto()
    FAILED = auto()
    RETRY = auto()
    OVER = auto()


# Reading a member off its Enum class costs 1,000 instructions in CPython 3.11, a global 10, and a
# request asks for one 20 times.
_CHOOSE, _ASKED, _ADMITTED, _SENT, _FAILED, _RETRY, _OVER = _Phase
_FIRST = Role.FIRST

_EXPIRED = Refusal(Gate.POLICY, "expired")
_NOT_APPROVED = Refusal(Gate.POLICY, "not_approved")


class RequestLoop:
    """The state of one request. One task at a time; ``ValueError`` for an impossible plan."""

    __slots__ = (
        "_asked",
        "_grants",
        "_held",
        "_left_us",
        "_mark",
        "_next_place",
        "_other_key",
        "_phase",
        "_retries_here",
        "_sent_to",
        "_spec",
        "_stop",
        "_task",
        "_verdict",
        "_verdict_at",
        "_visited",
        "_wait_until",
        "attempts",
        "refusals",
    )

    def __init__(
        self, spec: RequestSpec, grants: RetryGrants, task: AttemptAllowance | None = None
    ) -> None:
        spec.check()
        self._spec = spec
        self._grants = grants
        self._task = task or AttemptAllowance(None)
        self._phase = _CHOOSE
        self._next_place = self._retries_here = 0
        self._visited: set[Circuit] = set()
        self._asked: Ask | None = None
        self._held = False  # a granted retry that has not been sent yet
        self._sent_to = spec.targets[0]  # of the last attempt, once there was one
        self._mark: float | None = None
        self._verdict: Verdict | None = None
        self._verdict_at = self._wait_until = 0.0
        self._left_us = self._other_key = False
        self._stop: Stop | None = None
        self.attempts = 0
        self.refusals: list[RefusedCall] = []
        """Every call that was not made, in order, the driver's own refusals included."""

    def next(self, now: float, u: float) -> Action:
        """The next step. Raises ``RuntimeError`` when the last one has not been answered."""
        if self._stop is not None:
            return self._stop
        if self._phase is _ASKED:
            raise RuntimeError("answer Ask with admitted() or refused() first")
        if self._phase is _SENT:
            raise RuntimeError("answer Send with observe() first")
        if now >= self._spec.deadline:
            return self._out_of_time(now)
        if self._phase is _ADMITTED:
            return self._send(now)
        if self._phase is _RETRY:
            return self._wait_or_ask(now)
        if self._phase is _FAILED:
            return self._after_failure(now, u)
        return self._choose(now)

    def admitted(self) -> None:
        """Every gate of the asked target is open; ``next`` will say ``Send``."""
        self._expect(_ASKED)
        self._phase = _ADMITTED

    def refused(self, refusal: Refusal, now: float) -> None:
        """A gate is shut. Final for this target: the loop goes on to the next one."""
        self._expect(_ASKED)
        assert self._asked is not None
        self._refuse(self._asked.target, refusal)
        self._release(now)
        self._phase = _CHOOSE

    def observe(
        self, verdict: Verdict, now: float, *, left_us: bool = True, other_key: bool = False
    ) -> None:
        """The attempt ended. ``left_us``: a byte of the request may have reached the provider;
        ``other_key``: another key of it is not resting, so a fault of the key needs no wait."""
        self._expect(_SENT)
        self._verdict, self._verdict_at = verdict, now
        self._left_us, self._other_key = left_us, other_key
        if self._mark is not None and verdict.counts_against_breaker:
            self._grants.give_back(self._sent_to.circuit, self._mark, now)
        self._mark = None
        ending = _FINAL.get(verdict.kind)
        if ending is None:
            self._phase = _FAILED
        else:
            self._finish(Stop(ending, verdict.reason, verdict=verdict), now)

    def cancelled(self, now: float, reason: str = "client_cancelled") -> Stop:
        """The caller went away (or, by the ``reason``, we do), whatever the loop was doing."""
        return self._finish(Stop(Ending.CANCELLED, reason, verdict=self._verdict), now)

    def _choose(self, now: float) -> Action:
        spec = self._spec
        if self.attempts >= spec.max_attempts:
            return self._exhausted(now, Gate.BUDGET)
        while self._next_place < len(spec.targets):
            place, target = self._next_place, spec.targets[self._next_place]
            self._next_place += 1
            if target.circuit in self._visited:
                continue
            if target.usable(now):
                self._visited.add(target.circuit)
                self._retries_here = 0
                return self._ask(target, now, rerouted=place > 0 and self.attempts == 0)
            self._refuse(target, _EXPIRED if target.approved else _NOT_APPROVED)
        return self._exhausted(now, self.refusals[-1].refusal.gate if self.refusals else None)

    def _after_failure(self, now: float, u: float) -> Action:
        verdict = self._verdict
        assert verdict is not None
        spec = self._spec
        if self._left_us and not (spec.repeatable and spec.body_small):
            return self._exhausted(now, None)
        left = spec.max_attempts - self.attempts
        if left < 1:
            return self._exhausted(now, Gate.BUDGET)
        other_key = self._other_key and verdict.scope is Scope.KEY
        # The last attempt is worth more on a target that has not just failed.
        keep_for_fallback = left == 1 and self._has_fallback(now)
        if (verdict.retryable or other_key) and not keep_for_fallback:
            wait = 0.0
            if not other_key:
                wait = spec.backoff.wait(self._retries_here + 1, u, verdict.retry_after_s)
            refusal = self._grant_retry(wait, now)
            if refusal is None:
                return self._wait_or_ask(now)
            self._refuse(self._sent_to, refusal)
        if another_may_serve(verdict):
            return self._choose(now)
        return self._exhausted(now, None)

    def _grant_retry(self, wait: float, now: float) -> Refusal | None:
        longest = self._spec.max_wait_s
        if now + wait >= self._spec.deadline or (longest is not None and wait > longest):
            return Refusal(Gate.DEADLINE, "wait_too_long", now + wait)
        if not self._sent_to.usable(now + wait):
            return _EXPIRED
        refusal = self._grants.ask(self._sent_to.circuit, now)
        if refusal is None:
            self._held = True
            self._retries_here += 1
            self._wait_until = now + wait
            self._phase = _RETRY
        return refusal

    def _wait_or_ask(self, now: float) -> Action:
        if now < self._wait_until:
            return Wait(self._wait_until - now, self._sent_to)
        if not self._sent_to.usable(now):  # the driver slept too long
            self._refuse(self._sent_to, _EXPIRED)
            self._release(now)
            self._phase = _CHOOSE
            return self._choose(now)
        return self._ask(self._sent_to, now, rerouted=False)

    def _ask(self, target: Target, now: float, *, rerouted: bool) -> Action:
        if not self._task.take():
            self._refuse(target, Refusal(Gate.BUDGET, Level.TASK.value))
            return self._exhausted(now, Gate.BUDGET)
        self._asked = Ask(target, self.attempts + 1, self._role(target), rerouted)
        self._phase = _ASKED
        return self._asked

    def _send(self, now: float) -> Send:
        assert self._asked is not None
        target, ordinal, role, rerouted = self._asked
        self._asked = None
        self._held = False
        self.attempts = ordinal
        self._sent_to = target
        self._phase = _SENT
        if role is _FIRST:
            self._mark = self._grants.earn(target.circuit, now)
        timeout = min(self._spec.attempt_timeout_s, self._spec.deadline - now)
        return Send(target, ordinal, role, rerouted, timeout)

    def _role(self, target: Target) -> Role:
        if self.attempts == 0:
            return Role.REDELIVERY if self._spec.redelivery else _FIRST
        return Role.RETRY if target.circuit == self._sent_to.circuit else Role.FALLBACK

    def _has_fallback(self, now: float) -> bool:
        later = self._spec.targets[self._next_place :]
        return any(t.usable(now) and t.circuit not in self._visited for t in later)

    def _refuse(self, target: Target, refusal: Refusal) -> None:
        ordinal, role = self.attempts + 1, self._role(target)
        self.refusals.append(RefusedCall(target, ordinal, role, refusal))

    def _out_of_time(self, now: float) -> Stop:
        if self._phase is _FAILED and self._verdict and self._verdict.kind is Kind.PERMANENT:
            # The provider's clear answer came, if only just: it says more than "too late".
            return self._exhausted(now, Gate.DEADLINE)
        if self._asked is not None or self.attempts == 0:
            target = self._asked.target if self._asked else self._spec.targets[0]
            self._refuse(target, Refusal(Gate.DEADLINE, "deadline"))
        stop = Stop(Ending.DEADLINE, "deadline", Gate.DEADLINE, verdict=self._verdict)
        return self._finish(stop, now)

    def _exhausted(self, now: float, gate: Gate | None) -> Stop:
        """Nothing is left to try: with an attempt made it failed, without one it was refused."""
        known = [call.refusal for call in self.refusals if call.refusal.retry_at is not None]
        opens = [refusal.retry_at for refusal in known if refusal.retry_at is not None]
        if self._verdict is None:
            soonest = min(known, key=lambda r: r.retry_at or 0.0, default=self.refusals[0].refusal)
            ending, reason, gate = Ending.REFUSED, soonest.detail, soonest.gate
        else:
            ending, reason = Ending.FAILED, self._verdict.reason
            if self._verdict.retry_after_s is not None:
                opens.append(self._verdict_at + self._verdict.retry_after_s)
        after = max(0.0, min(opens) - now) if opens else None
        return self._finish(Stop(ending, reason, gate, after, self._verdict), now)

    def _release(self, now: float) -> None:
        """Undo what was reserved for the call that is not made."""
        if self._asked is not None:
            self._task.put_back()
            self._asked = None
        if self._held:
            self._grants.refund(self._sent_to.circuit, now)
            self._held = False

    def _finish(self, stop: Stop, now: float) -> Stop:
        if self._stop is None:
            self._release(now)
            self._phase = _OVER
            self._stop = stop
        return self._stop

    def _expect(self, phase: _Phase) -> None:
        if self._phase is not phase:
            raise RuntimeError(f"out of turn: the loop is at {self._phase.name}, not {phase.name}")
