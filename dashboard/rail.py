"""The counts beside the navigation: how many, and of what is wrong how many.

Invariant: they are the wall's own judgement of the same read: a circuit is open when any instance
in contact has it Open; a gateway is unsynced when an instance in contact is, and silent when none
is in contact, for then nothing is known of its sync. Pure.
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
    gateways = _verdicts(fleet)
    silent = sum(not verdicts for verdicts in gateways)
    behind = sum(bool(verdicts - {Sync.IN_SYNC}) for verdicts in gateways)
    hands = len(now.overrides) + len(now.local)
    return (
        _count("circuits", len(opened) or len(now.circuits), "open" if opened else "", "open")
        | _gateways(len(gateways), behind, silent)
        | _count("overrides", hands, "active" if hands else "", "hand")
        | _count("budgets", len(now.budgets), "", "")
    )


def _verdicts(fleet: Fleet) -> list[set[Sync]]:
    """For each gateway that has instances, what those in contact say of their sync."""
    by_gateway: dict[int, set[Sync]] = defaultdict(set)
    for member in fleet.members.values():
        by_gateway[member.gateway.id] |= {member.verdict.sync} - {Sync.UNREACHABLE}
    return list(by_gateway.values())


def _gateways(known: int, behind: int, silent: int) -> Fields:
    """The worse of the two, for there is room for one: who disobeys before who says nothing."""
    if behind:
        return _count("gateways", behind, "unsynced", "half")
    return _count("gateways", silent or known, "silent" if silent else "", "unk")


def _count(page: str, number: int, word: str, tone: str) -> Fields:
    return {
        f"nav_{page}": f"{number:,}",
        f"nav_{page}_word": word or None,
        f"nav_{page}_tone": tone if word else None,
    }
