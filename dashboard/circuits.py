"""One circuit as the wall sees it: counts over its instances, what is desired, how it does.

Invariant: only instances in contact are counted; an instance that is silent is listed apart with
its last word, and never counts as Open, Closed or enforced. Pure.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import IntEnum
from functools import cached_property

from controlplane.domain.overrides import OverrideMode, observed
from controlplane.domain.precedence import Selection, precedence
from controlplane.domain.slowness import Slowness
from controlplane.domain.sync import Sync
from controlplane.reports import wall_rows
from controlplane.reports.wall import Rates, minutes_by_circuit, sliding_minute
from dashboard.fleet import Fleet, Member
from dashboard.slow import slow_of

# Asked some 16,000 times a frame for 200 circuits of 20 instances; a plain text is found quickest.
LOCAL = "Local"  # an enforcement beside those of ``Sync``
FAILING_RATIO = 0.05
FAILING_SAMPLE = 20
NEAR_BUDGET = 0.7  # of the limit
NEAR_SAMPLE = 3  # retries, or refused ones, in the minute


class Rank(IntEnum):
    """Worst first; a handled circuit sinks."""

    NOT_IN_FORCE = 0
    OPEN = 1
    RECOVERING = 2
    UNKNOWN = 3
    FORCED = 4
    TROUBLED = 5
    OBSERVED = 6
    HEALTHY = 7


@dataclass(frozen=True, slots=True)
class Breaker:
    """One instance's breaker of the circuit, with what is desired of it there."""

    member: Member
    state: wall_rows.StateRow
    override: wall_rows.OverrideRow | None
    delivery: wall_rows.DeliveryRow | None
    local: wall_rows.LocalRow | None = None

    @property
    def observed(self) -> str:
        """Closed, Open, HalfOpen or Ramping, as its next call meets it."""
        return observed(self.state.state, self.state.mode, self.state.ramp_percent)

    @property
    def since(self) -> datetime:
        """Since when it is as observed: under a hand, since the hand, not since its process began.

        The automatic breaker below keeps its own ``state.since``.
        """
        if self.local is not None:
            return self.local.created_at
        hand = self.override
        if hand is None or self.state.mode != hand.mode:
            return self.state.since
        took = self.delivery.acknowledged_at if self.delivery else None
        return max(hand.created_at, took) if took else hand.created_at

    @property
    def enforcement(self) -> str:
        """Enforced, Rejected, Unsupported, Stale, Applying or Unreachable; else the sync word.

        Local: a hand on its own host rules it, whatever we want of it.
        """
        if not self.member.reachable:
            return Sync.UNREACHABLE
        if self.local is not None:
            return LOCAL
        if self.override is None:
            return self.member.settings_sync
        verdict = self.delivery.verdict if self.delivery else ""
        if verdict in ("Rejected", "Unsupported"):
            return verdict
        if self.state.mode == self.override.mode and self.state.override_uid in (
            "",
            self.override.uid,
        ):
            return "Enforced"
        if verdict == "Applied":
            return "Enforced"
        behind = self.member.settings_sync
        return Sync.APPLYING if behind is Sync.IN_SYNC else behind


@dataclass(frozen=True)
class CircuitFacts:
    """Everything that a card is worded from."""

    row: wall_rows.CircuitRow
    breakers: list[Breaker]
    silent: list[Breaker]
    rates: Rates
    minutes: list[wall_rows.MinuteRow]
    transitions: list[wall_rows.TransitionRow]
    reasons: list[str]
    retry_limit: int | None
    slow: Slowness | None = None
    states: Counter[str] = field(default_factory=Counter)
    enforcement: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """Instances in contact that know the circuit."""
        return len(self.breakers)

    @cached_property
    def override(self) -> wall_rows.OverrideRow | None:
        """The override that rules most instances that one rules."""
        ruled = Counter(b.override.uid for b in self.breakers or self.silent if b.override)
        if not ruled:
            return None
        uid = ruled.most_common(1)[0][0]
        return next(
            b.override for b in self.breakers or self.silent if b.override and b.override.uid == uid
        )

    @cached_property
    def local(self) -> wall_rows.LocalRow | None:
        """The hand of a gateway's own host that rules most instances that one rules."""
        ruled = Counter(b.local.uid for b in self.breakers if b.local)
        if not ruled:
            return None
        uid = ruled.most_common(1)[0][0]
        return next(b.local for b in self.breakers if b.local and b.local.uid == uid)

    @property
    def would_refuse(self) -> int:
        """Calls of the last quarter of an hour that ObserveOnly alone let through."""
        return sum(minute.would_refuse for minute in self.minutes)

    @cached_property
    def worst_state(self) -> str:
        """The state that the card names: Open, HalfOpen, Ramping, Closed or unknown."""
        for state in ("Open", "HalfOpen", "Ramping", "Closed"):
            if self.states[state]:
                return state
        return "unknown"

    @property
    def not_in_force(self) -> list[Breaker]:
        """Instances in contact that an override is over and that do not obey it."""
        return [
            b
            for b in self.breakers
            if b.override
            and (b.enforcement in ("Rejected", "Unsupported", "Stale") or _is_overruled(b))
        ]

    @property
    def failing(self) -> bool:
        """Fails more than a little, on a sample worth the name."""
        ratio = self.rates.failure_ratio
        return (
            ratio is not None and self.rates.attempts >= FAILING_SAMPLE and ratio >= FAILING_RATIO
        )

    @property
    def near_budget(self) -> bool:
        """Retries close to, at or over what its budget allows, or already refused by it."""
        ratio = self.rates.retry_ratio
        if self.rates.refused_budget >= NEAR_SAMPLE:
            return True
        return (
            ratio is not None
            and self.retry_limit is not None
            and self.rates.retries >= NEAR_SAMPLE
            and ratio * 1000 >= self.retry_limit * NEAR_BUDGET
        )

    @property
    def resting_keys(self) -> wall_rows.StateRow | None:
        """A breaker's row whose keys are not all ready."""
        for breaker in self.breakers:
            ready, total = breaker.state.keys_ready, breaker.state.keys_total
            if ready is not None and total is not None and ready < total:
                return breaker.state
        return None

    @cached_property
    def rank(self) -> Rank:
        """Where it stands among the sick, or that it is healthy."""
        if self.not_in_force:
            return Rank.NOT_IN_FORCE
        hand = self.override or self.local
        forced = hand is not None and hand.mode != OverrideMode.OBSERVE_ONLY
        own_open = any(b.observed == "Open" and not _forced_open(b) for b in self.breakers)
        if own_open:
            return Rank.OPEN
        if self.states["HalfOpen"] or self.states["Ramping"]:
            return Rank.RECOVERING
        if not self.breakers and self.silent:
            return Rank.UNKNOWN
        if forced or self.states["Open"]:
            return Rank.FORCED
        if self.failing or self.slow or self.near_budget or self.resting_keys:
            return Rank.TROUBLED
        return Rank.OBSERVED if hand else Rank.HEALTHY

    @property
    def since(self) -> datetime | None:
        """Since when the named state stands: the earliest of the instances that are in it."""
        return min((b.since for b in self.named), default=None)

    @property
    def named(self) -> list[Breaker]:
        """The breakers in contact that are in the state that the card names."""
        return [b for b in self.breakers if b.observed == self.worst_state]

    @property
    def gateway(self) -> str:
        """The gateway with most of the trouble: where most breakers are as the card says."""
        counts = Counter(b.member.gateway.name for b in self.named or self.silent)
        return min(counts, key=lambda name: (-counts[name], name), default="")

    @property
    def trips(self) -> int:
        """How often the instance that opened most did so in the last quarter of an hour."""
        opened = Counter(
            t.instance_id
            for t in self.transitions
            if t.to_state == "Open" and t.mode != OverrideMode.OBSERVE_ONLY
        )
        return max(opened.values(), default=0)


def at_gateway(facts: CircuitFacts, name: str) -> CircuitFacts:
    """The same circuit as the instances of one gateway have it; its figures stay the fleet's."""
    breakers = [b for b in facts.breakers if b.member.gateway.name == name]
    silent = [b for b in facts.silent if b.member.gateway.name == name]
    own = {b.state.instance_id for b in (*breakers, *silent)}
    return replace(
        facts,
        breakers=breakers,
        silent=silent,
        transitions=[t for t in facts.transitions if t.instance_id in own],
        states=Counter(b.observed for b in breakers),
        enforcement=Counter(str(b.enforcement) for b in (*breakers, *silent)),
    )


def _is_overruled(breaker: Breaker) -> bool:
    """True when a hand on the host does something else than the override that is over it."""
    over, local = breaker.override, breaker.local
    return over is not None and local is not None and over.mode != local.mode


def _forced_open(breaker: Breaker) -> bool:
    return breaker.state.mode == OverrideMode.FORCE_OPEN


def facts_of(wall: wall_rows.Wall, fleet: Fleet) -> list[CircuitFacts]:
    """Every circuit of a read, unordered."""
    minutes = minutes_by_circuit(wall.trail)
    states = _grouped(wall.now.states)
    transitions = _grouped(wall.trail.transitions)
    reasons: dict[int, list[str]] = {}
    for reason in wall.trail.reasons:
        reasons.setdefault(reason.circuit_id, []).append(reason.reason)
    tails = {tail.circuit_id: tail for tail in wall.trail.tails}
    budgets = [b for b in wall.now.budgets if b.level == "circuit" and not b.tenant]
    found = []
    for row in wall.now.circuits:
        breakers = [_breaker(fleet, row, state) for state in states.get(row.id, [])]
        reachable = [b for b in breakers if b.member.reachable]
        found.append(
            CircuitFacts(
                row=row,
                breakers=reachable,
                silent=[b for b in breakers if not b.member.reachable],
                rates=sliding_minute(minutes.get(row.id, []), wall.now.at),
                minutes=minutes.get(row.id, []),
                transitions=transitions.get(row.id, []),
                reasons=reasons.get(row.id, []),
                retry_limit=_retry_limit(budgets, row),
                slow=slow_of(tails.get(row.id), wall.now.policies, row),
                states=Counter(b.observed for b in reachable),
                enforcement=Counter(str(b.enforcement) for b in breakers),
            )
        )
    return found


def _grouped(rows: list) -> dict[int, list]:  # type: ignore[type-arg]
    grouped: dict[int, list] = {}  # type: ignore[type-arg]
    for row in rows:
        grouped.setdefault(row.circuit_id, []).append(row)
    return grouped


def _breaker(fleet: Fleet, row: wall_rows.CircuitRow, state: wall_rows.StateRow) -> Breaker:
    member = fleet.members[state.instance_id]
    override = fleet.override_over(member.gateway.id, row)
    delivery = fleet.deliveries.get((state.instance_id, override.uid)) if override else None
    local = fleet.local.get((member.gateway.id, state.override_uid))
    return Breaker(member, state, override, delivery, local)


def _retry_limit(budgets: list[wall_rows.BudgetRow], row: wall_rows.CircuitRow) -> int | None:
    """Thousandths that the narrowest circuit budget over every gateway allows; None without one."""
    matching = [
        (precedence(selection, budget.name), budget.ratio_per_mille)
        for budget in budgets
        if not budget.gateway and not budget.selector
        for selection in [Selection("", "", budget.provider, budget.model, budget.region)]
        if selection.covers_circuit(row.circuit)
    ]
    return min(matching)[1] if matching else None
