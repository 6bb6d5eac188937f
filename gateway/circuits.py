"""The breakers of this instance, one a circuit, and what they report.

Invariants: at most ``LIMIT`` circuits live; later ones share their provider's ``(other)``, and past
that one ``(other)`` of all. Every transition of a breaker becomes exactly one wire event, in the
order of its number. Times are monotonic seconds; wall times are taken when a transition is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from random import getrandbits
from typing import Protocol

from controlplane.domain.breaker import Breaker, BreakerPolicy, Mode, Permit, State, Transition
from controlplane.domain.circuit import Circuit
from controlplane.domain.limits import RateLimit
from controlplane.wire import events, status
from gateway.clock import Clock
from gateway.keys import Keys
from gateway.leases import Lease
from gateway.overrides import Armed

LIMIT = 500
OTHER = "(other)"


class Sink(Protocol):
    """Where events go: the spool."""

    def append(self, event: events.AnyEvent) -> None:
        """Keep one event for sending."""


TransitionSink = Callable[[events.Transition], None]


class Entry:
    """One circuit: its breaker, the override that decides it, and its last change in wall time."""

    __slots__ = (
        "breaker",
        "circuit",
        "leases",
        "next_probe",
        "override",
        "policy",
        "rate",
        "rate_limits_count",
        "since",
    )

    def __init__(
        self, circuit: Circuit, policy: BreakerPolicy, now: float, since: datetime
    ) -> None:
        self.circuit = circuit
        self.policy = policy
        self.breaker = Breaker(policy, now)
        self.leases: dict[Permit, Lease] = {}
        """Of this host's probes, those that are out on a permit of this breaker."""
        self.rate: RateLimit | None = None
        self.rate_limits_count = True
        self.override: Armed | None = None
        self.since = since
        self.next_probe: datetime | None = None


class Circuits:
    """All entries of one process. Used from the loop's thread."""

    def __init__(self, clock: Clock, sink: TransitionSink) -> None:
        self._clock = clock
        self._sink = sink
        self.told: Callable[[Circuit, Transition], None] | None = None
        """Called with every transition, for the siblings on this host."""
        self._entries: dict[Circuit, Entry] = {}
        self.get: Callable[[Circuit], Entry | None] = self._entries.get
        """The entry, or None when this circuit has not been seen."""
        self.generation = 0
        """Of the configuration in force; stands in every transition event."""

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def folded(self, circuit: Circuit) -> Circuit:
        """The circuit that a call to ``circuit`` is counted under: itself while there is room."""
        if circuit in self._entries or len(self._entries) < LIMIT:
            return circuit
        of_provider = Circuit(circuit.provider, OTHER)
        # A little room past the limit, so that the fold does not mix providers too soon.
        if of_provider in self._entries or len(self._entries) < LIMIT + 50:
            return of_provider
        return Circuit(OTHER, OTHER)

    def add(self, circuit: Circuit, policy: BreakerPolicy, now: float) -> Entry:
        """Begin to track a (folded) circuit and report its boot."""
        entry = Entry(circuit, policy, now, self.wall_of(now))
        self._entries[circuit] = entry
        self.drain(entry)
        return entry

    def drain(self, entry: Entry) -> bool:
        """Report what the breaker did since the last call; True when there was something."""
        taken = entry.breaker.take_transitions()
        self.report(entry, taken)
        return bool(taken)

    def report(self, entry: Entry, taken: tuple[Transition, ...]) -> None:
        """Make an event of each transition that was taken off this breaker."""
        for transition in taken:
            self._sink(self._event(entry, transition))
            if self.told is not None:
                self.told(entry.circuit, transition)

    def wall_of(self, at: float) -> datetime:
        """A monotonic moment as wall time, by both clocks as they stand."""
        return self._clock.wall() + timedelta(seconds=at - self._clock.monotonic())

    def statuses(self, keys: Keys, now: float) -> list[status.CircuitStatus]:
        """Every circuit as a status report says it."""
        return [self._status(entry, keys, now) for entry in self]

    def _event(self, entry: Entry, done: Transition) -> events.Transition:
        at = self.wall_of(done.at)
        probe = None if done.next_probe_at is None else self.wall_of(done.next_probe_at)
        entry.since, entry.next_probe = at, probe
        counted = done.counters
        return events.Transition(
            id=events.mint_id(at, getrandbits(74)),
            occurred_at=at,
            provider=entry.circuit.provider,
            model=entry.circuit.model,
            region=entry.circuit.region,
            number=done.number,
            from_state=done.from_state.value,
            to_state=done.to_state.value,
            cause=done.cause.value,
            counters=events.Counters(
                calls=counted.calls,
                failures=counted.failures,
                slow=counted.slow,
                consecutive=counted.consecutive,
            ),
            next_probe_at=probe,
            mode=done.mode.value,
            generation=self.generation,
        )

    def _status(self, entry: Entry, keys: Keys, now: float) -> status.CircuitStatus:
        seen = entry.breaker.snapshot(now)
        self.drain(entry)
        ready = keys.status(entry.circuit.provider, now)
        forced = entry.override if seen.mode is not Mode.AUTO else None
        return status.CircuitStatus(
            provider=entry.circuit.provider,
            model=entry.circuit.model,
            region=entry.circuit.region,
            state=seen.state.value,
            number=seen.number,
            since=entry.since,
            cause=seen.cause.value,
            mode=seen.mode.value,
            override_uid=forced.item.uid if forced else "",
            would_be=seen.would_be.value if seen.would_be else None,
            next_probe_at=entry.next_probe if seen.state is State.OPEN else None,
            ramp_percent=seen.ramp_share // 10,
            stuck=seen.cause.value == "Stuck",
            keys_ready=ready.ready if ready else None,
            keys_total=ready.total if ready else None,
            keys_note=ready.note if ready else "",
        )
