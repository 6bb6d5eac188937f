"""The whole wall as one value: what is shown, in which order, how densely.

Invariant: a board is never changed after it was composed, and a card that says the same as on the
board before is the same object; so whoever holds an older board finds what changed by identity.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from urllib.parse import urlencode

from controlplane.reports import wall_rows
from dashboard import cards, lanes, present, rail, strip
from dashboard.cards import Fields
from dashboard.circuits import CircuitFacts, Rank, facts_of
from dashboard.fleet import Fleet

PROVIDERS = 6  # links above the cards
ROOMY_CARDS, ROOMY_CIRCUITS, COMPACT_CIRCUITS = 5, 48, 60


@dataclass(frozen=True, slots=True)
class Group:
    """The healthy circuits of one provider."""

    provider: str
    note: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Board:
    """One composed wall. ``cards`` holds every circuit by id; the order is beside it."""

    at: datetime
    version: int
    epoch: str
    density: str
    strip: Fields
    titles: Fields
    gateways: dict[str, Fields]
    cards: dict[str, Fields]
    attention: tuple[str, ...]
    healthy: tuple[Group, ...]

    @property
    def order(self) -> dict[str, object]:
        """The order as sent."""
        groups = [{"provider": g.provider, "note": g.note, "ids": g.ids} for g in self.healthy]
        return {"attention": self.attention, "healthy": groups}


def density(attention: int, circuits: int) -> str:
    """Chosen by the number of circuits, never by the reader."""
    if attention <= ROOMY_CARDS and circuits <= ROOMY_CIRCUITS:
        return "roomy"
    return "compact" if circuits <= COMPACT_CIRCUITS else "dense"


def compose(wall: wall_rows.Wall, before: Board | None = None, *, past: bool = False) -> Board:
    """The board of one read. ``before`` lends the objects that did not change.

    ``past``: which generation each instance had then is not known, so sync is not claimed.
    """
    fleet = Fleet(wall.now)
    circuits = facts_of(wall, fleet)
    since, at = lanes.beginning(wall.now.at), wall.now.at
    sick = sorted((f for f in circuits if f.rank is not Rank.HEALTHY), key=_worst_first)
    well = [f for f in circuits if f.rank is Rank.HEALTHY]
    found = {f"c{f.row.id}": cards.card(f, since, at) for f in sick}
    found |= {f"c{f.row.id}": cards.tile(f, since) for f in well}
    lines = {str(line["id"]): line for line in ([] if past else strip.gateway_lines(fleet))}
    above = strip.strip(wall, fleet, circuits)
    if past:
        above = above | {
            "balance_of": "not kept",
            "budgets_note": "balances are of the present only",
        }
        for fields in found.values():
            fields["instances"] = (fields.get("instances") or "").replace("InSync", "in contact")
    return Board(
        at=wall.now.at,
        version=wall.now.version,
        epoch=wall.now.epoch,
        density=density(len(sick), len(circuits)),
        strip=_kept(above, before.strip if before else None),
        titles=_titles(fleet, circuits, sick) | ({} if past else rail.fields(wall.now, fleet)),
        gateways=_kept_each(lines, before.gateways if before else {}),
        cards=_kept_each(found, before.cards if before else {}),
        attention=tuple(f"c{f.row.id}" for f in sick),
        healthy=_groups(well),
    )


def _kept(new: Fields, old: Fields | None) -> Fields:
    return old if old is not None and old == new else new


def _kept_each(new: dict[str, Fields], old: dict[str, Fields]) -> dict[str, Fields]:
    return {key: _kept(value, old.get(key)) for key, value in new.items()}


def _worst_first(facts: CircuitFacts) -> tuple[object, ...]:
    return (
        facts.rank,
        -facts.rates.wasted_gbp,
        facts.row.provider,
        facts.row.model,
        facts.row.region,
    )


def _titles(fleet: Fleet, circuits: list[CircuitFacts], sick: list[CircuitFacts]) -> Fields:
    serious = any(f.rank <= Rank.OPEN for f in sick)
    providers = Counter(f.row.provider for f in sick).most_common(PROVIDERS)
    reachable, known = len(fleet.reachable), len(fleet.members)
    silent = f", {known - reachable} unreachable" if known > reachable else ""
    opened = sum(f.worst_state == "Open" for f in circuits)
    return {
        "page": f"{opened} open" if opened else "Nothing open",
        "attention": _heading(circuits, sick, serious=serious),
        "attention_note": f"{len(sick)} of {len(circuits)}" if circuits else None,
        "circuits": "some" if circuits else "none",
        "gateways": "some" if fleet.members else "none",
        **_providers(providers),
        "healthy": "Healthy",
        "healthy_note": f"{len(circuits) - len(sick)} Closed · "
        f"{reachable} of {present.count(known, 'instance')} in contact{silent}",
    }


def _heading(circuits: list[CircuitFacts], sick: list[CircuitFacts], *, serious: bool) -> str:
    if not circuits:
        return "No circuit yet"
    return "Needs attention" if serious or not sick else "Needs a look"


def _providers(counted: list[tuple[str, int]]) -> Fields:
    """The sick by provider, each a link that shows this provider alone."""
    fields: Fields = {}
    for place in range(PROVIDERS):
        name, number = counted[place] if place < len(counted) else ("", 0)
        fields[f"provider{place}"] = f"{name} {number}" if name else None
        fields[f"provider{place}_href"] = _only(name) if name else None
    return fields


def _only(provider: str) -> str:
    # A name with blanks in it cannot be one word of the filter; its words find it too.
    one_word = provider.split() == [provider]
    return f"/?{urlencode({'q': f'provider:{provider}' if one_word else provider})}"


def _groups(well: list[CircuitFacts]) -> tuple[Group, ...]:
    by_provider: dict[str, list[CircuitFacts]] = {}
    for facts in well:
        by_provider.setdefault(facts.row.provider, []).append(facts)
    return tuple(
        Group(provider, _group_note(members), tuple(f"c{f.row.id}" for f in _busiest(members)))
        for provider, members in sorted(
            by_provider.items(), key=lambda pair: (-len(pair[1]), pair[0])
        )
    )


def _group_note(members: list[CircuitFacts]) -> str:
    if not any(f.minutes for f in members):
        return f"{len(members)} Closed"
    spend = sum((f.rates.cost_gbp for f in members), Decimal(0))
    return f"{len(members)} Closed · {present.money(spend)}/min"


def _busiest(members: list[CircuitFacts]) -> list[CircuitFacts]:
    """Most calls first, by powers of two, so that two alike do not change places all the time."""
    calls = {f.row.id: sum(m.attempts for m in f.minutes).bit_length() for f in members}
    return sorted(members, key=lambda f: (-calls[f.row.id], f.row.model, f.row.region))
