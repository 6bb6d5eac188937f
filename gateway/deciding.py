"""Which override decides which circuit now, told to the breakers that it changes.

Invariant: afterwards every breaker's mode is the one of the override that decides its circuit, or
Auto. Times are monotonic seconds; ``wall`` is aware UTC.
"""

from __future__ import annotations

from datetime import datetime

from controlplane.domain.breaker import Mode, Permit, State, would_have_refused
from controlplane.domain.circuit import Circuit
from controlplane.domain.gate import Gate, Refusal
from gateway.circuits import Circuits
from gateway.clock import Clock
from gateway.overrides import Armed, Overrides
from gateway.routing import Routing


def decide(
    overrides: Overrides, circuits: Circuits, routing: Routing, now: float, wall: datetime
) -> bool:
    """Work it out and put it in force; True when a status report would say something new."""

    def healthy(circuit: Circuit) -> bool:
        known = circuits.get(circuit)
        return known is None or known.breaker.snapshot(now).state is State.CLOSED

    before = overrides.statuses()
    known = [entry.circuit for entry in circuits]
    taken = overrides.decide(known, routing.usable(wall), healthy, now, wall)
    changed = before != overrides.statuses()
    for entry in circuits:
        was, entry.override = entry.override, taken.get(entry.circuit)
        if entry.override is not None:
            entry.breaker.set_mode(Mode(entry.override.item.mode), now, entry.override.until)
        elif was is not None:
            entry.breaker.set_mode(Mode.AUTO, now)
        changed |= circuits.drain(entry) or was is not entry.override
    return changed


def note_effect(override: Armed, answer: Permit | Refusal, clock: Clock) -> bool:
    """Note on an override the first call that it decided; True when this was it."""
    by_gate = isinstance(answer, Refusal) and answer.gate is Gate.OVERRIDE
    decided = by_gate or (not isinstance(answer, Refusal) and would_have_refused(answer))
    if decided:
        override.first_effect_at = clock.wall()
    return decided
