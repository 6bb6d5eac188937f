"""The counts beside the navigation: how many, and of what is wrong how many.

Invariant: they are the wall's own judgement of the same read: a circuit is open when any instance
in contact has it Open; a gateway is synced when every instance in contact is, and one is. Pure.
"""

from __future__ import annotations

from collections import defaultdict

from controlplane.domain.overrides import observed
from controlplane.domain.sync import Sync
from controlplane.reports import wall_rows
from dashboard.cards import Fields
from dashboard.fleet import Fleet

# The pages that are counted.
COUNTED = ("circuits", "gateways", "overrides", "budgets")


def fields(now: wall_rows.Now, fleet: Fleet) -> Fields:
    """For each counted page ``nav_<page>`` and its ``_word`` and ``_tone``."""
    opened = {
        state.circuit_id
        for state in now.states
        if observed(state.state, state.mode, state.ramp_percent) == "Open"
        and fleet.members[state.instance_id].reachable
    }
    gateways = _synced(fleet)
    behind = sum(not synced for synced in gateways)
    hands = len(now.overrides) + len(now.local)
    return (
        _count("circuits", len(opened) or len(now.circuits), "open" if opened else "", "open")
        | _count("gateways", behind or len(gateways), "unsynced" if behind else "", "half")
        | _count("overrides", hands, "active" if hands else "", "hand")
        | _count("budgets", len(now.budgets), "", "")
    )


def _synced(fleet: Fleet) -> list[bool]:
    """For each gateway that has instances, whether those in contact run what it is told."""
    by_gateway: dict[int, list[Sync]] = defaultdict(list)
    for member in fleet.members.values():
        by_gateway[member.gateway.id].append(member.verdict.sync)
    return [
        {Sync.IN_SYNC} == set(verdicts) - {Sync.UNREACHABLE} for verdicts in by_gateway.values()
    ]


def _count(page: str, number: int, word: str, tone: str) -> Fields:
    return {
        f"nav_{page}": f"{number:,}",
        f"nav_{page}_word": word or None,
        f"nav_{page}_tone": tone if word else None,
    }
