"""What this instance enforces right now, and the calls with which the request path obeys it.

Invariants: everything here is memory, nothing awaits, nothing can fail because the control plane
is away; ``apply`` puts every valid item in force before it returns, so that *Applied* means the
next call obeys it; a deadline of an override takes effect with the first call past it, or the next
tick. Used from the event loop's thread. Times are monotonic seconds; ``wall`` is aware UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from controlplane.domain.breaker import Outcome, Permit, Transition
from controlplane.domain.budgets import TenantBudgets
from controlplane.domain.circuit import Circuit
from controlplane.domain.gate import Refusal
from controlplane.domain.limits import Concurrency, RateLimit
from controlplane.domain.request_plan import AttemptAllowance
from controlplane.domain.verdict import Verdict
from controlplane.wire.status import BudgetStatus, CircuitStatus, ConfigSource, ItemStatus
from gateway.accept import Accepted, accept
from gateway.admission import places
from gateway.budgeting import Budgeting
from gateway.ceilings import Ceilings
from gateway.circuits import Circuits, Entry, Sink
from gateway.clock import Clock
from gateway.config import Config, Key, Route
from gateway.deciding import decide, note_effect
from gateway.host import Host
from gateway.keys import Keys
from gateway.overrides import Armed, Overrides
from gateway.policies import Policies
from gateway.probing import Probes
from gateway.routing import Routing
from gateway.snapshot import InForce, Received


class Live:
    """One process's breakers, budgets, keys, routes and overrides."""

    def __init__(self, config: Config, boot_id: UUID, slot: str, clock: Clock, sink: Sink) -> None:
        self.config = config
        self.boot_id = boot_id
        self.slot = slot
        self.in_force = InForce()
        self.on_change: Callable[[], None] = lambda: None
        """Called, from the loop's thread, whenever a status report would say something new."""
        self._clock = clock
        self._sink = sink
        self._keys = Keys(config.providers)
        self._routing = Routing(config)
        self._policies = Policies(self._routing.rate)
        self._overrides = Overrides()
        self._probes = Probes()
        self._budgeting = Budgeting(clock)
        self.ceilings = Ceilings()
        self._circuits = Circuits(clock, sink.append)
        self._accepted = Accepted()
        self._instances = 1
        self._places = {p.name: places(p, 1) for p in config.providers}
        self._host: Host | None = None
        self._track(clock.monotonic())

    # --- the request path ---------------------------------------------------------------------

    def route(self, model: str) -> Route | None:
        """The route that callers mean by this model name."""
        return self._routing.get(model)

    def routes(self) -> list[str]:
        """Every model name that callers may use, in order."""
        return self._routing.names()

    def folded(self, circuit: Circuit) -> Circuit:
        """The circuit that a call to this one is counted and reported under."""
        return self._circuits.folded(circuit)

    def rate(self, circuit: Circuit, now: float) -> RateLimit | None:
        """What counts the minute of a circuit, if file or policy limit it."""
        return (self._circuits.get(circuit) or self._entry(circuit, now)).rate

    def places(self, provider: str) -> Concurrency:
        """How many calls this instance may have at a provider at one time."""
        return self._places[provider]

    def probes(self, circuit: Circuit, now: float) -> bool:
        """True when the next call to a circuit would be a half-open breaker's probe."""
        return (self._circuits.get(circuit) or self._entry(circuit, now)).breaker.probing(now)

    def admit(self, circuit: Circuit, now: float) -> Permit | Refusal:
        """May one call start? A permit goes back through ``record`` or ``release``, always."""
        if now >= self._overrides.due:
            self._decide(now)
        entry = self._circuits.get(circuit) or self._entry(circuit, now)
        host = self._host
        answer = entry.breaker.admit(now) if host is None else host.admit(entry, now)
        by = entry.override
        if by is not None and by.first_effect_at is None and note_effect(by, answer, self._clock):
            self.on_change()
        if taken := entry.breaker.take_transitions():
            self._changed(entry, taken, now)
        return answer

    def record(
        self,
        circuit: Circuit,
        permit: Permit,
        verdict: Verdict,
        now: float,
        duration_s: float | None = None,
    ) -> Verdict:
        """Count one result; returns the verdict as it counted under the policy in force."""
        entry = self._circuits.get(circuit) or self._entry(circuit, now)
        if not entry.rate_limits_count and verdict.reason == "rate_limited":
            verdict = replace(verdict, counts_against_breaker=False)
        entry.breaker.record(permit, verdict, now, duration_s)
        self._ended(entry, permit, now)
        return verdict

    def release(self, circuit: Circuit, permit: Permit, now: float) -> None:
        """Hand back a permit whose call was not made."""
        entry = self._entry(circuit, now)
        entry.breaker.record(permit, Outcome.NEUTRAL, now)
        self._ended(entry, permit, now)

    def budgets(self, tenant: str) -> TenantBudgets:
        """The retry budgets that a request of this tenant asks (``domain.request``)."""
        return self._budgeting.of(tenant)

    def max_attempts(self, tenant: str) -> int:
        """Attempts that one request of this tenant may make."""
        return self._budgeting.max_attempts(tenant)

    def task_allowance(self, tenant: str, task: str | None) -> AttemptAllowance:
        """The attempts left to this task, or without one to a single request."""
        return self._budgeting.task_allowance(tenant, task)

    def key_for(
        self, provider: str, now: float, tokens: Callable[[], int] = lambda: 0
    ) -> Key | Refusal | None:
        """The key for the next call of so many tokens; None for a provider without keys."""
        return self._keys.choose(provider, now, tokens)

    def key_rate(self, provider: str, key: Key | None) -> RateLimit | None:
        """What counts the minute of a key, if the file limits it."""
        return None if key is None or not key.rate.limits else self._keys.rate(provider, key.name)

    def rest_key(self, provider: str, key: str, verdict: Verdict, now: float) -> bool:
        """Rest the key when the verdict is about it; True when another one is ready now."""
        before = self._keys.status(provider, now)
        other = self._keys.rest(provider, key, verdict, now)
        if self._keys.status(provider, now) != before:
            self.on_change()
        return other

    def pace_key(self, provider: str, key: str, rest_s: float, now: float) -> None:
        """A good answer's headers said that the key's allowance is used up for ``rest_s``."""
        self._keys.pace(provider, key, rest_s, now)

    # --- this host's other workers -------------------------------------------------------------

    def share_with(self, host: Host) -> None:
        """Tell the siblings on this host what breakers do, and lease probes with them."""
        self._host, self._circuits.told = host, host.tell

    def follow(self, circuit: Circuit, done: Transition) -> None:
        """A sibling's breaker opened or closed. A circuit that we do not know is not begun."""
        now, entry = self._clock.monotonic(), self._circuits.get(circuit)
        if entry is not None:
            entry.breaker.follow(done, now)
            if taken := entry.breaker.take_transitions():
                self._changed(entry, taken, now)

    # --- time and configuration ---------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Let deadlines take effect without traffic; about once a second."""
        if now >= self._overrides.due:
            self._decide(now)
        for entry in self._circuits:
            entry.breaker.tick(now)
            if taken := entry.breaker.take_transitions():
                self._changed(entry, taken, now)
        for event in self._budgeting.tick(now):
            self._sink.append(event)

    def last_good(self) -> bytes:
        """For the disk: what is in force beside the snapshot (``Accepted.last_good``)."""
        return self._accepted.last_good(self._overrides.kept)

    def remember(self, before: Received, now: float, wall: datetime) -> None:
        """After a restart, before ``apply``: what ``last_good`` said."""
        self._accepted = accept(before, Accepted(), self._routing, self._clock.wall())
        self._overrides.arm(before, now, wall, exact=False)

    def apply(
        self, received: Received, source: ConfigSource, now: float, wall: datetime
    ) -> list[ItemStatus]:
        """Put a snapshot in force, item by item; returns the verdict on each.

        ``wall`` is the control plane's time of day as far as it is known. What an item of the same
        uid said before stays in force while its new form is rejected.
        """
        self._accepted = accept(received, self._accepted, self._routing, self._clock.wall())
        exact = source in ("Stream", "Poll")
        self._accepted.refused += self._overrides.arm(received, now, wall, exact)
        self._policies.replace(self._accepted.policies.values())
        self._routing.replace(self._accepted.routes.values())
        self.ceilings.use_prices(received.prices)
        self._share(received.instances, now)
        self._circuits.generation = received.generation
        self.in_force = InForce.of(received, self._clock.wall(), source)
        self._track(now)
        self._decide(now)
        self._probes.obey(received, self._circuits, now, wall)
        self.on_change()
        return self.items()

    def retime(self, server: datetime, now: float, error_s: float) -> None:
        """``server`` is the control plane's time of day now, but for ``error_s``: its overrides end
        by it."""
        if self._overrides.retime(server, now, error_s):
            self._decide(now)

    def hold_local(self, armed: Sequence[Armed], now: float) -> None:
        """Put the overrides made on this host in force, before the control plane's."""
        self._overrides.hold_local(armed)
        self._decide(now)
        self.on_change()

    def confirmed(self, source: ConfigSource, instances: int | None) -> None:
        """The control plane said that what is in force is current, for so many instances."""
        if source != self.in_force.source:
            self.in_force = replace(self.in_force, source=source)
            self.on_change()
        if instances is not None and max(1, instances) != self._instances:
            self._share(instances, self._clock.monotonic())

    # --- reports ------------------------------------------------------------------------------

    def items(self) -> list[ItemStatus]:
        """The verdict on every item of the snapshot in force."""
        verdicts = (self._accepted, self._overrides, self._probes)
        return [status for held in verdicts for status in held.statuses()]

    def circuit_statuses(self, now: float) -> list[CircuitStatus]:
        """Every breaker."""
        return self._circuits.statuses(self._keys, now)

    def budget_statuses(self, now: float) -> list[BudgetStatus]:
        """Every bucket."""
        return self._budgeting.statuses(now)

    # --- inside -------------------------------------------------------------------------------

    def _entry(self, circuit: Circuit, now: float) -> Entry:
        folded = self._circuits.folded(circuit)
        entry = self._circuits.get(folded)
        if entry is None:
            entry = self._policies.add(self._circuits, folded, now)
            self._decide(now)
            self.on_change()
        return entry

    def _share(self, instances: int, now: float) -> None:
        """Take one of so many live instances' part of every limit that is written for all."""
        count = self._instances = self._policies.instances = max(1, instances)
        budgets = self._accepted.budgets_in_force()
        self._budgeting.use(budgets, count)
        self.ceilings.use(budgets, count)
        self._keys.share(count)
        self._places = {p.name: places(p, count) for p in self.config.providers}
        for entry in self._circuits:
            self._policies.put(entry, now)

    def _track(self, now: float) -> None:
        """Give every configured target its breaker: it is on the wall before its first call."""
        for circuit in self._routing.circuits():
            folded = self._circuits.folded(circuit)
            if self._circuits.get(folded) is None:
                self._policies.add(self._circuits, folded, now)

    def _ended(self, entry: Entry, permit: Permit, now: float) -> None:
        if taken := entry.breaker.take_transitions():
            self._changed(entry, taken, now)
        if entry.leases and self._host is not None:
            self._host.done(entry, permit)

    def _changed(self, entry: Entry, taken: tuple[Transition, ...], now: float) -> None:
        self._circuits.report(entry, taken)
        if self._overrides.floor_refuses:
            self._decide(now)
        self.on_change()

    def _decide(self, now: float) -> None:
        if decide(self._overrides, self._circuits, self._routing, now, self._clock.wall()):
            self.on_change()
