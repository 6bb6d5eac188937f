"""Why a circuit is as it is, in one line: the strong part, the rest, and a tone.

Invariant: every cause of ``domain.breaker_policy.Cause`` has words here; one that is not known yet
is shown as it was sent. Pure.
"""

from __future__ import annotations

from collections import Counter

from controlplane.domain.overrides import OverrideMode
from controlplane.domain.slowness import Slowness
from controlplane.reports import wall_rows
from dashboard import present
from dashboard.circuits import CircuitFacts, Rank

CAUSES = {
    "ConsecutiveFailures": "consecutive failures",
    "FailureRatio": "too many failures",
    "SlowCalls": "too many slow calls",
    "ProbeFailed": "its probe failed",
    "Stuck": "half open without an answer",
    "Sibling": "a worker of the same host went first",
    "OverrideExpired": "an override ended",
    "OverrideReleased": "an override was released",
    "OpenPeriodOver": "the open period is over",
    "ProbeNow": "a probe was asked for",
    "ProbeSucceeded": "its probe succeeded",
    "Reset": "somebody reset it",
    "Boot": "since its instance started",
}

_FOLLOWED = {"Open": "opened", "Closed": "closed", "Ramping": "closed"}
SLOW = "Slow:"


def cause_words(cause: str, state: str) -> str:
    """Why a breaker went into this state. A sibling is followed into Open and into Closed."""
    if cause == "Sibling" and state in _FOLLOWED:
        return f"a worker of the same host {_FOLLOWED[state]}"
    return CAUSES.get(cause, cause)


def line(facts: CircuitFacts) -> dict[str, str | None]:
    """One line: the strong part, then the rest, and a tone."""
    strong, rest, tone = "", "", None
    rank, override = facts.rank, facts.override
    if rank is Rank.NOT_IN_FORCE:
        strong, rest = _why_not_in_force(facts)
        tone = "open"
    elif rank is Rank.OPEN:
        strong, rest = _why_open(facts)
    elif rank is Rank.RECOVERING:
        strong, rest = _why_recovering(facts)
    elif rank is Rank.UNKNOWN:
        strong, rest = (
            "No contact",
            f"with any of its {present.count(len(facts.silent), 'instance')}",
        )
    elif rank is Rank.TROUBLED and not (override and facts.would_refuse):
        strong, rest = _why_troubled(facts)
    elif override is not None:
        strong, rest = _under_hand(facts, override)
    elif facts.local is not None:
        strong, rest = "local:", local_words(facts.local)
    shape = "#g-clock" if strong == SLOW else None
    return {"why_strong": strong, "why": rest, "why_tone": tone, "why_glyph": shape}


def local_words(local: wall_rows.LocalRow) -> str:
    """Who forced it on which host, and why."""
    return f"{local.mode} by {local.made_by} on {local.host}: {local.reason}"


def observed_words(facts: CircuitFacts) -> str:
    """What a breaker under a hand would do; under ObserveOnly also how many calls it let by."""
    would_be = "would be Open" if any(b.state.would_be == "Open" for b in facts.breakers) else ""
    if facts.override is None or facts.override.mode != OverrideMode.OBSERVE_ONLY:
        return would_be
    calls = present.count(facts.would_refuse, "call")
    refused = f"would have refused {calls} in the last 15 min"
    return f"{refused}, {would_be}" if would_be else refused


def _under_hand(facts: CircuitFacts, override: wall_rows.OverrideRow) -> tuple[str, str]:
    """The number first: a card has room for little more."""
    said, by = observed_words(facts), f"{override.created_by}: {override.reason}"
    strong, in_the, rest = said.partition(" in the last")
    return strong, f"{in_the.strip()}{rest} · {by}" if in_the else by


def _why_not_in_force(facts: CircuitFacts) -> tuple[str, str]:
    first = facts.not_in_force[0]
    if first.local is not None:
        return "overruled on the host:", local_words(first.local)
    told = first.delivery
    reason = (told.reason if told else "") or first.member.verdict.reason
    if told and told.field_path:
        reason = f"{reason} at {told.field_path}"
    more = len(facts.not_in_force) - 1
    others = f" and {more} more" if more else ""
    return first.enforcement, f"by {first.member.name}{others}: {reason}"


def _reasons(facts: CircuitFacts) -> str:
    return f": {', '.join(facts.reasons[:2])}" if facts.reasons else ""


def _why_open(facts: CircuitFacts) -> tuple[str, str]:
    opened = [b for b in facts.breakers if b.observed == "Open"]
    causes = Counter(b.state.cause for b in opened if b.state.cause != "Sibling")
    cause = causes.most_common(1)[0][0] if causes else "Sibling"
    calls = sum(b.state.calls for b in opened)
    failures = sum(b.state.failures for b in opened)
    if cause == "ConsecutiveFailures":
        most = max(b.state.consecutive for b in opened)
        return (f"{most} consecutive" if most else "Consecutive"), f"failures{_reasons(facts)}"
    if cause == "FailureRatio" and calls:
        return (
            f"{present.failure(failures / calls)} failed",
            f"of {calls:,} when it opened{_reasons(facts)}",
        )
    words, reasons = cause_words(cause, "Open"), _reasons(facts).removeprefix(": ")
    return words[:1].upper() + words[1:] + (":" if reasons else ""), reasons


def _why_recovering(facts: CircuitFacts) -> tuple[str, str]:
    if any(b.state.stuck for b in facts.breakers):
        return "Stuck:", "half open, and no probe has answered"
    if facts.states["HalfOpen"]:
        return (
            "Probing",
            f"on {present.count(facts.states['HalfOpen'], 'instance')}{_reasons(facts)}",
        )
    return "Closed again:", "calls are let back in steps"


def _why_troubled(facts: CircuitFacts) -> tuple[str, str]:
    keys = facts.resting_keys
    if keys is not None:
        note = f": {keys.keys_note}" if keys.keys_note else ""
        return f"Keys {keys.keys_ready}/{keys.keys_total}", f"ready{note}"
    if facts.failing:
        return (
            f"{present.failure(facts.rates.failure_ratio)} failed",
            f"of {facts.rates.attempts:,.0f} in the last minute{_reasons(facts)}",
        )
    if facts.slow is not None:
        return _slow(facts.slow)
    refused = round(facts.rates.refused_budget)
    if refused:
        return f"{present.count(refused, 'retry', 'retries')} refused", "by a budget, last minute"
    return "Retries", "are close to their budget"


def _slow(slow: Slowness) -> tuple[str, str]:
    share = present.failure(slow.share)
    said = f"of {present.count(slow.calls, 'call')} ≥ {_seconds(slow.call_ms)}"
    if slow.p95_ms is None:
        return SLOW, f"{share} {said}"
    return SLOW, f"p95 {_seconds(slow.p95_ms)}, {share} {said}"


def _seconds(ms: int) -> str:
    """Shorter than ``present.took``, as a card has little room: ``850 ms``, ``12 s``."""
    return f"{ms / 1000:.0f} s" if 9_950 <= ms < 59_500 else present.took(ms)
