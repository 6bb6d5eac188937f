"""One circuit's breaker: Closed, Open, HalfOpen, and the override layer above them.

Invariants: a result counts once, and only if its call was admitted since the last transition; never
more than ``half_open_probes`` leased probes are out; a forced mode beats every state; no sequence
of calls wedges the breaker, because every state but Closed has a deadline or waits for a permit.

Units: seconds on the owner's monotonic clock, given as ``now``. Why mutable: replacing a frozen
dataclass for each call costs more than the whole permit and its result do this way.
"""

from __future__ import annotations

from threading import Lock
from typing import TypeAlias

from controlplane.domain.breaker_automaton import CLOSED, HALF_OPEN, OPEN, Automaton, window_for
from controlplane.domain.breaker_policy import (
    BreakerPolicy,
    Cause,
    Mode,
    Outcome,
    Snapshot,
    State,
    Transition,
    outcome_of,
)
from controlplane.domain.gate import Refusal
from controlplane.domain.verdict import Verdict

__all__ = [
    "Breaker",
    "BreakerPolicy",
    "Cause",
    "Mode",
    "Outcome",
    "Permit",
    "Snapshot",
    "State",
    "Transition",
    "would_have_refused",
]

Permit: TypeAlias = tuple[int, int, float, bool]
"""(generation, token, admitted at, would have been refused). Token 0 never counts."""

FORGOTTEN_AFTER = 3600.0
"""Seconds after which a call admitted in Closed that never reported is dropped from the count."""

_FAILURE, _NEUTRAL = Outcome.FAILURE, Outcome.NEUTRAL


def would_have_refused(permit: Permit) -> bool:
    """True when only ForceClosed or ObserveOnly let this call through."""
    return permit[3]


class Breaker(Automaton):
    """The machine behind its lock. Every method may be called from any thread."""

    __slots__ = ("_lock",)

    def __init__(self, policy: BreakerPolicy, now: float) -> None:
        self._lock = Lock()
        super().__init__(policy, now)

    def admit(self, now: float) -> Permit | Refusal:
        """May one call start? A permit must be handed back through ``record``, whatever happens."""
        with self._lock:
            if now >= self._due:
                self._advance(now)
            if self._free:
                self._token = token = self._token + 1
                self._calls[token] = now
                return (self._generation, token, now, False)
            return self._shut or self._admit_guarded(now)

    def probing(self, now: float) -> bool:
        """True when the next permit would be a probe: HalfOpen, and no override decides."""
        if self._free and now < self._due:
            return False
        with self._lock:
            self._advance(now)
            return self._state is HALF_OPEN and self._mode is Mode.AUTO

    def record(
        self,
        permit: Permit,
        result: Verdict | Outcome,
        now: float,
        duration_s: float | None = None,
    ) -> None:
        """Count one result. A second report, or one from before the last transition, is nothing.

        ``duration_s`` is what the slow-call rule judges; by default the time since the permit.
        """
        retry_after = None
        if isinstance(result, Verdict):
            outcome, retry_after = outcome_of(result), result.retry_after_s
        else:
            outcome = result
        generation, token, began, _ = permit
        with self._lock:
            if now >= self._due:
                self._advance(now)
            if generation != self._generation or self._calls.pop(token, None) is None:
                return
            if outcome is _NEUTRAL:
                return
            slow = (now - began if duration_s is None else duration_s) >= self._slow_from
            if self._state is CLOSED:
                self._count(outcome is _FAILURE, slow, now, retry_after)
            else:
                self._judge_probe(outcome is _FAILURE, slow, now, retry_after)

    def tick(self, now: float) -> None:
        """Let deadlines take effect without traffic; call it about once a second."""
        with self._lock:
            self._advance(now)
            if self._state is CLOSED:
                # Insertion order is age: stop at the first call that is young enough.
                while self._calls:
                    token = next(iter(self._calls))
                    if now - self._calls[token] < FORGOTTEN_AFTER:
                        break
                    del self._calls[token]

    def set_mode(self, mode: Mode, now: float, until: float | None = None) -> None:
        """Put an override in force until a monotonic deadline (None: until told otherwise).

        However ForceOpen ends, the circuit goes to HalfOpen; the other modes leave the automatic
        state as it was measured meanwhile.
        """
        with self._lock:
            self._advance(now)
            if until is not None and until <= now:
                mode = Mode.AUTO
            self._switch_mode(mode, None if mode is Mode.AUTO else until, now)

    def set_policy(self, policy: BreakerPolicy, now: float) -> None:
        """Swap the settings live. Counts, the current state and the open period are kept.

        A shorter patience in HalfOpen, or a shorter ramp, counts from where it began, but what it
        ends does so now and is not dated back.
        """
        with self._lock:
            self._advance(now)
            window = window_for(policy)
            window.load(self._window.rows(), now)
            self._policy, self._window = policy, window
            self._slow_from = policy.slow_call_seconds
            self._rearm()
            self._due = max(self._due, now)

    def probe_now(self, now: float) -> bool:
        """End the open period by hand; False when the breaker was not Open."""
        with self._lock:
            self._advance(now)
            if self._state is not OPEN:
                return False
            self._enter(HALF_OPEN, Cause.PROBE_NOW, now)
            return True

    def reset(self, now: float) -> None:
        """Back to Closed by hand, at full concurrency and with every count cleared."""
        with self._lock:
            self._advance(now)
            self._trips = 0
            self._ramp_from = None
            self._enter(CLOSED, Cause.RESET, now)

    def follow(self, sibling: Transition, now: float) -> None:
        """Do what another worker's breaker on this host did, with its deadline.

        A transition caused by ``Sibling`` is never followed, so two workers cannot echo each other,
        and a deadline that is not later than our own is ignored.
        """
        if sibling.cause is Cause.SIBLING:
            return
        with self._lock:
            self._advance(now)
            if sibling.to_state is OPEN:
                until = sibling.next_probe_at
                if until is None or until <= max(now, self._open_until):
                    return
                self._open_until = until
                self._ramp_from = None
                self._trips += 1
                self._enter(OPEN, Cause.SIBLING, now)
            elif sibling.to_state is CLOSED and self._state is not CLOSED:
                self._close(Cause.SIBLING, now)

    def take_transitions(self) -> tuple[Transition, ...]:
        """The transitions since the last call, oldest first."""
        if not self._transitions:
            return ()
        with self._lock:
            taken = tuple(self._transitions)
            self._transitions.clear()
            return taken

    def ramp_share(self, now: float) -> int:
        """Thousandths of the full concurrency allowed now; 1000 outside the ramp."""
        with self._lock:
            self._advance(now)
            return self._share(now)

    def snapshot(self, now: float) -> Snapshot:
        """Everything a status report says about this breaker."""
        with self._lock:
            self._advance(now)
            self._window.expire(now)
            return Snapshot(
                state=self._state,
                mode=self._mode,
                mode_until=self._mode_until,
                since=self._since,
                number=self._number,
                cause=self._cause,
                next_probe_at=self._open_until if self._state is OPEN else None,
                ramp_share=self._share(now),
                in_flight=len(self._calls),
                probes_out=len(self._leases(now)) if self._state is HALF_OPEN else 0,
                trips=self._trips,
                counters=self._counters(),
            )

    def _admit_guarded(self, now: float) -> Permit | Refusal:
        refusal = self._automatic_refusal(now)
        if refusal is not None:
            if self._mode is Mode.AUTO:
                return refusal
            return (self._generation, 0, now, True)
        self._token += 1
        self._calls[self._token] = now
        if self._state is HALF_OPEN and self._first_probe_at is None:
            self._first_probe_at = now
            self._rearm()
        return (self._generation, self._token, now, False)

    def _advance(self, now: float) -> None:
        # In order of time: an override that ends at 50 s finds what the breaker had become by then.
        while now >= self._due:
            if self._mode_until is not None and self._mode_until <= self._due:
                self._switch_mode(Mode.AUTO, None, self._due, Cause.OVERRIDE_EXPIRED)
            else:
                self._next_by_itself()

    def _switch_mode(
        self, mode: Mode, until: float | None, at: float, cause: Cause = Cause.OVERRIDE_RELEASED
    ) -> None:
        was, self._mode, self._mode_until = self._mode, mode, until
        if was is Mode.FORCE_OPEN and mode is not Mode.FORCE_OPEN:
            self._enter(HALF_OPEN, cause, at)
        else:
            self._rearm()
