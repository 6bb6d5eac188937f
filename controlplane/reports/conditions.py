"""What can be said of an object in a word, a reason and a sentence, as Kubernetes' conditions.

Invariant: a condition is of what was observed; where nothing was, it is Unknown and says so, never
True. ``well`` is what its status is when nobody has to look. Pure but for its arguments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from controlplane.domain.sync import Sync
from controlplane.models import CircuitState, Override, Route
from controlplane.reports.circuits import CircuitReport
from controlplane.reports.fleet import GatewayReport
from controlplane.reports.progress import Progress, Stage
from controlplane.reports.wall import Rates

FAILING_RATIO, FAILING_SAMPLE = 0.05, 20
_NAMED = 3  # instances that a sentence names


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition. ``since``: when it became so; None where nobody keeps that."""

    type: str
    status: str
    reason: str
    message: str
    since: datetime | None = None
    generation: int | None = None
    well: str = "True"


def enforced(
    progress: Progress, generation: int, *, active: bool = True, ended: str = ""
) -> Condition:
    """Whether every instance that is meant has said that it enforces this generation."""
    count, targeted = progress.count(Stage.ENFORCED), len(progress.steps)
    if not active:
        status, reason = "False", ended or "Expired"
    elif not targeted:
        status, reason = "Unknown", "NoInstances"
    elif count == targeted:
        status, reason = "True", "EnforcedByAll"
    else:
        status, reason = "False", progress.phase
    others = [
        f"{number} {stage.value.lower()}"
        for stage in Stage
        if stage is not Stage.ENFORCED and (number := progress.count(stage))
    ]
    tail = f"; {', '.join(others)}" if others and active else ""
    return Condition(
        "Enforced", status, reason, f"{count} of {targeted} instances enforce it{tail}",
        progress.recorded_at if active else progress.ended_at, generation,
        "True" if active else "False",
    )  # fmt: skip


def of_override(row: Override, progress: Progress, now: datetime) -> list[Condition]:
    """Of a hand: enforced or not; of one that has ended, how it ended."""
    active = row.ended_at is None and now < row.expires_at
    ended = row.end_cause or ("" if active else "Expired")
    return [enforced(progress, row.generation, active=active, ended=ended)]


def of_route(row: Route, now: datetime) -> Condition:
    """Whether a route has an approved target to fall back to."""
    targets = row.spec.get("targets", [])
    approved = [t for t in targets if _is_approved(t, now)]
    words = f"{len(approved)} of {len(targets)} targets approved"
    if len(approved) > 1:
        return Condition("FallbackApproved", "True", "Approved", words, None, row.generation)
    reason = "NoTargetApproved" if not approved else "NoFallbackApproved"
    return Condition("FallbackApproved", "False", reason, words, None, row.generation)


def _is_approved(target: Mapping[str, object], now: datetime) -> bool:
    until = target.get("approved_until")
    if not target.get("approved", True):
        return False
    return until is None or datetime.fromisoformat(str(until)) > now


def of_circuit(report: CircuitReport, rates: Rates) -> list[Condition]:
    """In force, healthy, within budget, complete, stuck, keys. ``rates``: the sliding minute."""
    live = [row for row, is_live in report.states if is_live]
    silent = [row for row, is_live in report.states if not is_live]
    found = [
        _in_force(report, live),
        _healthy(rates),
        _within_budget(rates),
        _complete(live, silent),
        _stuck(live),
        _keys(live),
    ]
    return [condition for condition in found if condition is not None]


def _in_force(report: CircuitReport, live: Sequence[CircuitState]) -> Condition | None:
    told = {ruling.gateway: ruling.standing.in_force for ruling in report.by_gateway}
    meant = [row for row in live if told.get(row.instance.gateway.name)]
    if not meant:
        return None  # nobody wants anything of it
    rulings = {row.name: row for row in told.values() if row}
    obey = [r for r in meant if r.mode == told[r.instance.gateway.name].mode]  # type: ignore[union-attr]
    words = f"{len(obey)} of {len(meant)} instances in contact enforce {', '.join(sorted(rulings))}"
    generation = max(row.generation for row in rulings.values())
    if len(obey) == len(meant):
        return Condition("Enforced", "True", "EnforcedByAll", words, None, generation)
    reason = "PartiallyEnforced" if obey else "NotEnforced"
    missing = _names([row for row in meant if row not in obey])
    return Condition("Enforced", "False", reason, f"{words}; not {missing}", None, generation)


def _healthy(rates: Rates) -> Condition:
    ratio = rates.failure_ratio
    if ratio is None:
        words = "no attempt in the last minute"
        return Condition("ProviderHealthy", "Unknown", "NoAttempts", words)
    words = f"{ratio:.1%} of {rates.attempts:,.0f} attempts failed in the last minute"
    if rates.attempts < FAILING_SAMPLE:
        return Condition("ProviderHealthy", "Unknown", "TooFewAttempts", words)
    if ratio >= FAILING_RATIO:
        return Condition("ProviderHealthy", "False", "FailureRatio", words)
    return Condition("ProviderHealthy", "True", "FewFailures", words)


def _within_budget(rates: Rates) -> Condition:
    refused = round(rates.refused_budget)
    if refused:
        words = f"{refused:,} retries refused by a budget in the last minute"
        return Condition("BudgetAvailable", "False", "RetriesRefused", words)
    if not rates.firsts:
        words = "no first attempt in the last minute"
        return Condition("BudgetAvailable", "Unknown", "NoFirstAttempts", words)
    words = f"{rates.retries:,.0f} retries of {rates.firsts:,.0f} first attempts, none refused"
    return Condition("BudgetAvailable", "True", "NoneRefused", words)


def _complete(live: Sequence[CircuitState], silent: Sequence[CircuitState]) -> Condition:
    if silent:
        last = min(row.instance.last_seen_at for row in silent)
        words = f"{_names(silent)}: no contact since {last:%H:%M:%S} UTC"
        return Condition("TelemetryComplete", "False", "InstanceSilent", words, last)
    if not live:
        words = "no instance has reported it within the last hour"
        return Condition("TelemetryComplete", "Unknown", "NoInstances", words)
    holes = [r for r in live if r.instance.lost_batches]
    if holes:
        words = f"{_names(holes)}: batches are lost"
        return Condition("TelemetryComplete", "False", "BatchesLost", words)
    words = f"{len(live)} instances in contact, no batch lost"
    return Condition("TelemetryComplete", "True", "AllReport", words)


def _stuck(live: Sequence[CircuitState]) -> Condition:
    stuck = [row for row in live if row.stuck]
    if stuck:
        words = f"{_names(stuck)}: half open, and no probe has answered"
        since = min(row.since for row in stuck)
        return Condition("Stuck", "True", "NoProbeAnswered", words, since, None, "False")
    if not live:
        words = "no instance is in contact"
        return Condition("Stuck", "Unknown", "NoInstances", words, None, None, "False")
    half = sum(row.state == "HalfOpen" for row in live)
    words = f"{half} probing" if half else "not half open"
    reason = "Probing" if half else "NotHalfOpen"
    return Condition("Stuck", "False", reason, words, None, None, "False")


def _keys(live: Sequence[CircuitState]) -> Condition | None:
    known = [row for row in live if row.keys_total]
    if not known:
        return None
    worst = min(known, key=lambda row: (row.keys_ready or 0) / (row.keys_total or 1))
    note = f": {worst.keys_note}" if worst.keys_note else ""
    words = f"{worst.keys_ready} of {worst.keys_total} keys ready at {worst.instance.slot}{note}"
    if (worst.keys_ready or 0) < (worst.keys_total or 0):
        return Condition("KeysReady", "False", "KeysResting", words)
    return Condition("KeysReady", "True", "AllReady", words)


def of_gateway(report: GatewayReport) -> list[Condition]:
    """In contact, in sync, complete, and whether somebody forced something on its host."""
    live = [member for member in report.members if member.live]
    silent = [member for member in report.members if not member.live]
    generation = report.config.generation if report.config else None
    found = [_contact(report, len(live))]
    words = Counter(member.verdict.sync.value for member in report.members)
    said = ", ".join(f"{number} {word}" for word, number in words.most_common())
    behind = [m for m in live if m.verdict.sync is not Sync.IN_SYNC]
    if not live:
        found.append(Condition("InSync", "Unknown", "NoContact", said or "no instance", None, None))
    elif behind:
        why = behind[0].verdict
        reason = why.sync.value
        found.append(
            Condition("InSync", "False", reason, f"{said} ({why.reason})", None, generation)
        )
    else:
        found.append(Condition("InSync", "True", "AllInSync", said, None, generation))
    holes = [m.row.slot for m in live if m.row.lost_batches]
    gone = [m.row.slot for m in silent]
    if gone:
        text = f"{_few(gone)}: no contact"
        found.append(Condition("TelemetryComplete", "False", "InstanceSilent", text))
    elif holes:
        text = f"{_few(holes)}: batches are lost"
        found.append(Condition("TelemetryComplete", "False", "BatchesLost", text))
    elif live:
        found.append(Condition("TelemetryComplete", "True", "AllReport", "no batch is lost"))
    if report.local:
        text = f"{len(report.local)} made on its host: {_few([o.made_by for o in report.local])}"
        since = min(o.created_at for o in report.local)
        found.append(Condition("LocalOverride", "True", "MadeOnHost", text, since, None, "False"))
    return found


def _contact(report: GatewayReport, live: int) -> Condition:
    total = len(report.members)
    if not total:
        words = "no instance has been in contact within the last hour"
        return Condition("InContact", "Unknown", "NoInstances", words)
    words = f"{live} of {total} instances in contact"
    if live:
        return Condition("InContact", "True", "Heard", words)
    last = max(member.row.last_seen_at for member in report.members)
    return Condition("InContact", "False", "Silent", words, last)


def _names(rows: Sequence[CircuitState]) -> str:
    return _few([row.instance.slot for row in rows])


def _few(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
