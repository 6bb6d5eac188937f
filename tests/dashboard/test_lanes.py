"""A lane shows what most instances were, and only while something was heard."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import groupby
from uuid import UUID

import pytest

from controlplane.domain.sync import Sync, SyncVerdict
from controlplane.reports.wall import Rates
from controlplane.reports.wall_rows import (
    CircuitRow,
    GatewayRow,
    InstanceRow,
    StateRow,
    TransitionRow,
)
from dashboard import drawing, lanes
from dashboard.circuits import Breaker, CircuitFacts
from dashboard.fleet import Member

AT = datetime(2026, 11, 24, 14, 15, tzinfo=UTC)
SINCE = lanes.beginning(AT)
GATEWAY = GatewayRow(1, "chat", {}, 1, "h", None)


def before(seconds: float) -> datetime:
    return AT - timedelta(seconds=seconds)


def breaker(
    instance: int, state: str, heard: float = 0, started: datetime | None = None
) -> Breaker:
    row = InstanceRow(
        id=instance, gateway_id=1, boot_id=UUID(int=instance), slot=f"chat/{instance}", version="",
        started_at=started, last_seen_at=before(heard), received_generation=1, applied_generation=1,
        applied_hash="h", applied_at=None, pending_since=None, reports=1, epoch="e",
        config_source="Stream", spool_events=0, spool_dropped=0, lost_batches=0, items=[],
    )  # fmt: skip
    sync = Sync.UNREACHABLE if heard > 30 else Sync.IN_SYNC
    seen = StateRow(
        instance, 1, state, before(9999), "FailureRatio", "Auto", "", "", 100, False,
        None, None, None, "", 0, 0, 0,
    )  # fmt: skip
    return Breaker(Member(row, GATEWAY, SyncVerdict(sync, "")), seen, None, None)


def slots(breakers: list[Breaker], transitions: list[TransitionRow] | None = None) -> list[str]:
    facts = CircuitFacts(
        row=CircuitRow(1, "openai", "gpt-4o", ""),
        breakers=[b for b in breakers if b.member.reachable],
        silent=[b for b in breakers if not b.member.reachable],
        rates=Rates(),
        minutes=[],
        transitions=transitions or [],
        reasons=[],
        retry_limit=None,
    )
    return lanes.slots(facts, SINCE, AT)


def runs(kinds: list[str]) -> list[str]:
    return [kind for kind, _ in groupby(kinds)]


@pytest.mark.parametrize(
    ("states", "kind"),
    [
        (["Closed", "Closed", "Closed"], "closed"),
        (["Open", "Closed", "Closed"], "part"),
        (["Open", "Open", "Closed"], "open"),
        (["HalfOpen", "HalfOpen", "Closed"], "half"),
        ([], "gap"),
    ],
)
def test_a_slot_is_what_most_instances_were(states: list[str], kind: str) -> None:
    assert runs(slots([breaker(i, state) for i, state in enumerate(states)])) == [kind]


def test_what_was_before_the_first_transition_is_where_it_came_from() -> None:
    changes = [
        TransitionRow(1, 1, before(600), "Closed", "Open", "Auto"),
        TransitionRow(1, 1, before(300), "Open", "HalfOpen", "Auto"),
        TransitionRow(1, 1, before(240), "HalfOpen", "Closed", "Auto"),
    ]
    assert runs(slots([breaker(1, "Closed")], changes)) == ["closed", "open", "half", "closed"]


def test_a_lane_ends_with_an_instances_last_word() -> None:
    kinds = slots([breaker(1, "Open", heard=300)])
    assert runs(kinds) == ["open", "gap"]
    assert kinds.count("gap") == pytest.approx(300 / lanes.SLOT_SECONDS, abs=1)


def test_a_lane_begins_with_its_instance() -> None:
    changes = [TransitionRow(1, 1, before(100), "Closed", "Open", "Auto")]
    kinds = slots([breaker(1, "Open", started=before(200))], changes)
    assert runs(kinds) == ["gap", "closed", "open"]


def test_a_transition_under_observe_only_let_calls_pass() -> None:
    changes = [TransitionRow(1, 1, before(300), "Closed", "Open", "ObserveOnly")]
    assert runs(slots([breaker(1, "Open")], changes)) == ["closed"]


def test_more_instances_than_fit_become_segments() -> None:
    few, many = drawing.cells(["open"] * 20), drawing.cells(["open"] * 40)
    assert few["open"].count("M") == 20
    assert many["open"].count("M") == 1


def test_an_area_breaks_where_nothing_is_known() -> None:
    assert drawing.area([1, 2, None, 3, 4], 4).count("M") == 2
    assert drawing.area([], 4) == ""
    assert drawing.area([0, 0], 0) == ""
