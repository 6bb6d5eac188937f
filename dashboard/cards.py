"""A circuit's facts as the fields of its card or tile: every word, tone and path, flat.

Invariant: a field is text or None; templates and ``wall.js`` only place them, so that the first
page and every later frame say the same. Instants are ISO text and are worded where they are shown
(``*_at``), because each person has a zone and time passes without a new frame.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from decimal import Decimal
from urllib.parse import quote, urlencode

from controlplane.domain.circuit import Circuit, format_circuit
from controlplane.domain.overrides import OverrideMode
from dashboard import drawing, lanes, present, why
from dashboard.circuits import LOCAL, Breaker, CircuitFacts, Rank

Fields = dict[str, str | None]

_LOUD = Decimal("0.01")  # £/min of waste from which its figure is red

STATE_TONES = {
    "Open": ("open", "open"),
    "HalfOpen": ("half", "half"),
    "Ramping": ("half", "ramp"),
    "Closed": ("closed", "closed"),
    "unknown": ("unk", "unknown"),
}
MODE_GLYPHS = {"ForceOpen": "forceopen", "ForceClosed": "forceclosed", "ObserveOnly": "observe"}


def iso(at: datetime | None) -> str | None:
    """An instant as a field."""
    return None if at is None else at.isoformat(timespec="milliseconds")


def circuit_url(circuit: Circuit) -> str:
    """The page of a circuit; its name is one percent-encoded part of the path."""
    return f"/circuits/{quote(format_circuit(circuit), safe='')}"


def force_url(provider: str, model: str, region: str) -> str:
    """The force dialog with its scope filled in; a circuit without a region is named by ``-``."""
    scope = {"provider": provider, "model": model, "region": region or "-"}
    return f"/overrides/new?{urlencode(scope)}"


def card(facts: CircuitFacts, since: datetime, at: datetime) -> Fields:
    """All fields of a circuit that needs attention."""
    fields = tile(facts, since) | _pill(facts) | why.line(facts) | _next(facts)
    fields |= lanes.areas(facts, since)
    lane = lanes.lane(facts, since, at)
    fields |= {f"lane_{kind}": path for kind, path in lane.items()}
    fields |= {f"cell_{kind}": path for kind, path in drawing.cells(_cells(facts)).items()}
    override = facts.override
    return fields | {
        "kind": "card",
        "edge": _edge(facts),
        "instances": instances_words(facts),
        "wasted": present.money(facts.rates.wasted_gbp) if facts.minutes else present.NOT_KNOWN,
        "wasted_tone": "open" if facts.rates.wasted_gbp >= _LOUD else None,
        "gateway": facts.gateway,
        "override": override.name if override else None,
    }


def tile(facts: CircuitFacts, since: datetime) -> Fields:
    """All fields of a healthy circuit."""
    row, rates = facts.row, facts.rates
    known = bool(facts.minutes)
    tone, glyph = STATE_TONES[facts.worst_state]
    head, tail = present.ended(row.model)
    region_head, region_tail = present.ended(row.region, 5)
    return {
        "kind": "tile",
        "id": f"c{row.id}",
        "provider": row.provider,
        "model": row.model,
        "head": head,
        "tail": tail,
        "region": row.region,
        "region_head": region_head,
        "region_tail": region_tail,
        "place": present.place(row.provider, row.region),
        "dot": "\u00a0·\u00a0" if row.region else None,
        "href": circuit_url(row.circuit),
        "force_href": force_url(row.provider, row.model, row.region),
        "find": f"{row.provider} {row.model} {row.region}".lower(),
        "state": facts.worst_state,
        "state_tone": tone,
        "state_glyph": f"#g-{glyph}",
        "rate": present.number(rates.attempts / 60) if known else present.NOT_KNOWN,
        "fail": present.failure(rates.failure_ratio),
        "fail_tone": "open" if facts.failing else None,
        "retry": present.retry(rates.retry_ratio),
        "retry_limit": f"/{present.limit(facts.retry_limit)}"
        if facts.retry_limit
        else ("" if rates.retry_ratio is None else "%"),
        "retry_pct": present.retry_percent(rates.retry_ratio),
        "retry_tone": "open" if facts.near_budget else None,
        "spend": spend(facts),
        "line": lanes.line(facts, since),
        "label": f"{row.model} {present.place(row.provider, row.region)}: {facts.worst_state}",
    }


def spend(facts: CircuitFacts) -> str:
    """£/min, with what is missing from it."""
    if not facts.minutes:
        return present.NOT_KNOWN
    amount = f"{present.money(facts.rates.cost_gbp)}/min"
    unpriced = round(facts.rates.unpriced)
    if unpriced and not facts.rates.cost_gbp:
        return f"{present.NOT_KNOWN} {unpriced:,} unpriced"
    if unpriced:
        return f"{amount} + {unpriced:,} unpriced"
    return f"{amount} known" if facts.silent and not facts.rates.cost_gbp else amount


def _pill(facts: CircuitFacts) -> Fields:
    state, total = facts.worst_state, facts.total
    override = facts.override
    named = facts.states[state]
    heard: datetime | None = None
    count = f"{named}/{total}" if state != "Closed" and total else ""
    if state == "Ramping":
        ramps = [b.state.ramp_percent for b in facts.breakers if b.observed == "Ramping"]
        count = f"{min(ramps)}%"
    if state == "unknown":
        last = Counter(b.observed for b in facts.silent).most_common(1)
        heard = max((b.member.row.last_seen_at for b in facts.silent), default=None)
        count = f"(was {last[0][0]} at" if last else ""
    ruled = sum(b.override is not None for b in facts.breakers)
    partly = f" {ruled}/{total}" if override and ruled < total else ""
    return {
        "desired": f"{override.mode}{partly}" if override else "Auto",
        "desired_tone": "hand" if override else None,
        "desired_glyph": f"#g-{MODE_GLYPHS[override.mode]}" if override else None,
        "seam": "differs" if _differs(facts) or (override and not total) else None,
        "count": count or _adjective(facts),
        "heard_at": iso(heard),
        "heard_end": ")" if heard else "",
        "was": f"{state} {count}".strip(),
        "desired_line": None if override else "desired Auto",
        "desired_until_at": iso(override.expires_at) if override else None,
    }


def _adjective(facts: CircuitFacts) -> str:
    if facts.override:
        return ""  # the line below says who, and what the automatic breaker would do
    if facts.failing:
        return "failing"
    if facts.slow:
        return "slow"
    return "near budget" if facts.near_budget else ""


def _differs(facts: CircuitFacts) -> bool:
    return any((b.override or b.local) and b.enforcement != "Enforced" for b in facts.breakers)


def _edge(facts: CircuitFacts) -> str:
    hand = facts.override or facts.local
    if hand is not None and hand.mode != OverrideMode.OBSERVE_ONLY:
        return "hand-open" if facts.states["Open"] else "hand"
    return {
        Rank.NOT_IN_FORCE: "open",
        Rank.OPEN: "open",
        Rank.RECOVERING: "half",
        Rank.UNKNOWN: "unk",
        Rank.FORCED: "hand",
        Rank.TROUBLED: "half",
        Rank.OBSERVED: "hand",
        Rank.HEALTHY: "closed",
    }[facts.rank]


def _next(facts: CircuitFacts) -> Fields:
    """What comes next, and when: the end of an override, a probe, more of the ramp."""
    override, local = facts.override, facts.local
    trips = f" · {present.count(facts.trips, 'trip')}" if facts.trips > 1 else ""
    found: Fields = {
        "since_at": iso(facts.since),
        "trips": trips,
        "probe_at": None,
        "ends_at": None,
    }
    if override is not None:
        return found | {"ends_at": iso(override.expires_at)}
    if local is not None:
        return found | {"ends_at": iso(local.expires_at)}
    if facts.states["Open"]:
        probes = [b.state.next_probe_at for b in facts.breakers if b.observed == "Open"]
        return found | {"probe_at": iso(min((p for p in probes if p), default=None))}
    return found


def instances_words(facts: CircuitFacts) -> str:
    """``17 enforced · 1 rejected · 2 unreachable``."""
    order = ["Enforced", LOCAL, "InSync", "Applying", "Stale", "Rejected", "Unsupported", "Unknown"]
    lower = {"Enforced", LOCAL, "Rejected", "Unsupported", "Applying", "Stale"}
    parts = [
        f"{facts.enforcement[word]} {word.lower() if word in lower else word}"
        for word in order
        if facts.enforcement[word]
    ]
    if facts.silent:
        parts.append(f"{len(facts.silent)} unreachable")
    return " · ".join(parts) or "no instance has reported it"


def _cells(facts: CircuitFacts) -> list[str]:
    ranks = ["open", "half", "closed", "unknown", "reject", "silent"]
    kinds = [_cell(breaker) for breaker in [*facts.breakers, *facts.silent]]
    return sorted(kinds, key=lambda kind: ranks.index(kind.removeprefix("hand-")))


def _cell(breaker: Breaker) -> str:
    if not breaker.member.reachable:
        return "silent"
    if breaker.enforcement in ("Rejected", "Unsupported"):
        return "reject"
    kind = {"Open": "open", "HalfOpen": "half", "Ramping": "half"}.get(breaker.observed, "closed")
    held = breaker.local or (breaker.override and breaker.enforcement == "Enforced")
    return f"hand-{kind}" if held else kind
