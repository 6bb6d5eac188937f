"""The strip above the wall and the line of gateways: the whole fleet in one row.

Invariant: the strip counts a circuit as Open when any instance in contact is Open; sums are of what
is known, and what is missing from them is said beside them. Pure.
"""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from urllib.parse import urlencode

from django.urls import reverse

from controlplane.domain.sync import NOT_ON_DISK, Sync
from controlplane.reports import background_conditions, wall_rows
from controlplane.reports.wall import Rates
from dashboard import present, rejections
from dashboard.cards import Fields, iso
from dashboard.circuits import CircuitFacts
from dashboard.fleet import Fleet, Member, worst

SYSTEM = "system/"


def strip(wall: wall_rows.Wall, fleet: Fleet, circuits: list[CircuitFacts]) -> Fields:
    """Every figure of the strip."""
    return (
        _states(fleet, circuits)
        | _budgets(wall, circuits)
        | _money(wall, circuits)
        | _hands(wall)
        | _claim(wall)
        | _age(fleet)
        | _redelivering(wall)
        | rejections.fields(fleet)
        | _work(wall)
    )


def _states(fleet: Fleet, circuits: list[CircuitFacts]) -> Fields:
    named = Counter(facts.worst_state for facts in circuits)
    attempts = sum(facts.rates.attempts for facts in circuits) / 60
    refused = sum(f.rates.refused_breaker + f.rates.refused_override for f in circuits) / 60
    reachable, known = len(fleet.reachable), len(fleet.members)
    fields: Fields = {
        key: f"{named[state]:,}" if named[state] else None
        for key, state in (
            ("open", "Open"),
            ("half", "HalfOpen"),
            ("ramping", "Ramping"),
            ("unknown", "unknown"),
        )
    }
    return fields | {
        # Of no circuit at all a green 0 would read as good news.
        "closed": f"{named['Closed']:,}" if circuits else None,
        "none_known": None if circuits else present.NOT_KNOWN,
        "of_instances": f"{reachable} of {present.count(known, 'instance')}",
        "calls": f"{present.count(len(circuits), 'circuit')} · "
        f"{present.number(attempts)} calls/s · {present.number(refused)}/s refused by breakers",
    }


def _budgets(wall: wall_rows.Wall, circuits: list[CircuitFacts]) -> Fields:
    balances = wall.now.balances
    system = next((row for row in balances if row.scope == SYSTEM), None)
    firsts = sum(facts.rates.firsts for facts in circuits)
    retries = sum(facts.rates.retries for facts in circuits)
    limit = next((b.ratio_per_mille for b in wall.now.budgets if b.level == "system"), None)
    at_zero = sum(row.balance <= 0 for row in balances)
    refused = sum(facts.rates.refused_budget for facts in circuits) / 60
    total = max(system.balance, 0) + system.spent if system else 0
    return {
        "balance": f"{max(system.balance, 0):,}" if system else present.NOT_KNOWN,
        "balance_of": f"of {total:,}" if system else "no instance reports it",
        "balance_share": f"{max(system.balance, 0) / total:.3f}" if system and total else "0",
        "retry_ratio": f"{present.retry_percent(retries / firsts if firsts else None)}"
        f"{f' of {present.limit(limit)}' if limit else ''} retry",
        "budgets_note": (
            f"{at_zero} of {present.count(len(balances), 'budget')} at 0 · " if balances else ""
        )
        + f"refused {present.number(refused)}/s",
        "budgets_tone": "open" if at_zero else None,
    }


def _money(wall: wall_rows.Wall, circuits: list[CircuitFacts]) -> Fields:
    known = any(facts.minutes for facts in circuits)
    total: list[Rates] = [facts.rates for facts in circuits]
    cost = sum((rates.cost_gbp for rates in total), Decimal(0))
    wasted = sum((rates.wasted_gbp for rates in total), Decimal(0))
    unpriced = round(sum(rates.unpriced for rates in total))
    share = f" · {present.failure(float(wasted / cost))}" if cost else ""
    peak = wall.trail.peak
    if peak and wasted > peak.wasted_gbp:
        # The minute that ends now may be worse than every whole one.
        past, at = "the most of the last hour", None
    elif peak:
        past, at = f"peak {present.money(peak.wasted_gbp)}/min at", iso(peak.minute)
    else:
        past, at = "none in the last hour", None
    return {
        "spend": present.money(cost) if known else present.NOT_KNOWN,
        "spend_note": (
            f"+ {present.count(unpriced, 'attempt')} unpriced"
            if unpriced
            else "every attempt priced"
            if known
            else "no attempt in 15 minutes"
        ),
        "wasted": present.money(wasted) if known else present.NOT_KNOWN,
        "wasted_unit": f"/min{share}",
        "wasted_tone": "open" if wasted >= Decimal("0.1") else None,
        "peak": past,
        "peak_at": at,
    }


def _hands(wall: wall_rows.Wall) -> Fields:
    overrides = wall.now.overrides
    modes = Counter(row.mode for row in overrides)
    words = [
        f"{modes[mode]} {mode}"
        for mode in ("ForceOpen", "ForceClosed", "ObserveOnly")
        if modes[mode]
    ]
    if wall.now.local:
        words.append(f"{len(wall.now.local)} local")
    hands: list[wall_rows.OverrideRow | wall_rows.LocalRow] = [*overrides, *wall.now.local]
    soonest = min(hands, key=lambda row: row.expires_at, default=None)
    return {
        "overrides": f"{len(overrides)}",
        "overrides_words": " · ".join(words),
        "next_end": (
            f"next to end: {present.match_words(soonest.provider, soonest.model, soonest.region)}"
            if soonest
            else "every breaker decides for itself"
        ),
        "next_end_at": iso(soonest.expires_at) if soonest else None,
        # One name a line: the page offers to release to whoever is among them.
        "forced_by": "\n".join(sorted({row.created_by for row in overrides})) or None,
    }


def _redelivering(wall: wall_rows.Wall) -> Fields:
    """Whose SDK retries beside the gateway: the tenant with the most, and how many others."""
    found = wall.trail.redelivering
    if not found:
        return {"redelivering": None, "redelivering_more": None, "redelivering_href": None}
    most, more = found[0], len(found) - 1
    return {
        "redelivering": f"SDK retries: tenant {most.tenant}, {present.number(most.a_minute)}/min",
        "redelivering_more": f"and {present.count(more, 'tenant')} more" if more else None,
        "redelivering_href": f"{reverse('find')}?{urlencode({'q': most.tenant})}",
    }


def _claim(wall: wall_rows.Wall) -> Fields:
    claim = wall.now.claim
    if claim is None:
        return {"claim": None, "claim_note": None, "claim_at": None}
    note = f": {claim.note}" if claim.note else ""
    return {"claim": claim.holder, "claim_note": note, "claim_at": iso(claim.expires_at)}


_WORK = {
    "WorkersAlive": "Nothing is done in the background.",
    "FiguresDerived": "Figures are not derived.",
    "RetentionKept": "Raw events are kept past their time.",
    "DaysAhead": "Tomorrow is not made ready.",
    "JobsSucceed": "A background job fails.",
    "EpochStable": "A gateway makes every other send again.",
}


def _work(wall: wall_rows.Wall) -> Fields:
    """What is wrong behind the figures, the first of it in whole."""
    work = wall.trail.work
    found = background_conditions.faults(work) if work else []
    if not found:
        return {"work": None, "work_note": None}
    first, more = found[0], len(found) - 1
    message = first.message[:1].upper() + first.message[1:]
    tail = f" · and {present.count(more, 'more condition')}" if more else ""
    return {"work": _WORK.get(first.type, first.type), "work_note": message + tail}


def _age(fleet: Fleet) -> Fields:
    silent = [m for m in fleet.members.values() if not m.reachable]
    members = fleet.members.values()
    lost = sum(m.row.lost_batches > 0 or m.row.spool_dropped > 0 for m in members)
    longest = min(silent, key=lambda m: m.row.last_seen_at, default=None)
    if longest is not None:
        return {"gap": f"gap: {longest.name}", "gap_at": iso(longest.row.last_seen_at)}
    if lost:
        return {"gap": f"{present.count(lost, 'instance')} with lost telemetry", "gap_at": None}
    return {"gap": "no gaps", "gap_at": None}


def gateway_lines(fleet: Fleet) -> list[Fields]:
    """One entry for each gateway that has instances, in the order of names."""
    lines = []
    for gateway in sorted(fleet.gateways.values(), key=lambda g: g.name):
        members = [m for m in fleet.members.values() if m.gateway.id == gateway.id]
        if members:
            lines.append(gateway_line(gateway, members))
    return lines


def gateway_line(gateway: wall_rows.GatewayRow, members: list[Member]) -> Fields:
    """One gateway in words: the worst of what its instances in contact say."""
    reachable = [m for m in members if m.reachable]
    fields: Fields = {
        "id": f"g{gateway.id}",
        "name": gateway.name,
        "href": reverse("gateway", args=[gateway.name]),
        "silent_at": None,
    }
    if not reachable:
        last = max(m.row.last_seen_at for m in members)
        return fields | {
            "glyph": "#g-unreachable",
            "tone": "unk",
            "words": f"{len(members)} unreachable, no contact since",
            "silent_at": iso(last),
        }
    synced = sum(m.verdict.sync is Sync.IN_SYNC for m in reachable)
    silent = len(members) - len(reachable)
    tail = f", {silent} unreachable" if silent else ""
    unsaved = sum(m.verdict.reason == NOT_ON_DISK for m in reachable)
    if synced == len(reachable) and unsaved:
        words = f"{synced}/{len(reachable)} InSync, {unsaved} {NOT_ON_DISK}{tail}"
        return fields | {"glyph": "#g-clock", "tone": "half", "words": words}
    if synced == len(reachable):
        tone = "closed" if not silent else "unk"
        return fields | {
            "glyph": "#g-closed" if not silent else "#g-unreachable",
            "tone": tone,
            "words": f"{synced}/{len(reachable)} InSync{tail}",
        }
    bad = worst(reachable)
    assert bad is not None
    glyph, tone = {
        Sync.REJECTED: ("rejected", "open"),
        Sync.UNSUPPORTED: ("unreachable", "unk"),
        Sync.STALE: ("clock", "half"),
        Sync.UNKNOWN: ("unknown", "unk"),
        Sync.APPLYING: ("arrow", "info"),
    }[bad.verdict.sync]
    number = sum(m.verdict.sync is bad.verdict.sync for m in reachable)
    return fields | {
        "glyph": f"#g-{glyph}",
        "tone": tone,
        "words": f"{synced}/{len(reachable)} InSync, {number} {bad.verdict.sync}"
        f" ({bad.verdict.reason}){tail}",
    }
