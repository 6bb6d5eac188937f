"""Lanes of an incident: what each breaker was, never extended over a silence."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from controlplane.reports.incident import (
    Change,
    CircuitName,
    Delivered,
    Episode,
    Hand,
    Incident,
    Presence,
    Standing,
    Watcher,
    merged,
)
from dashboard import postmortem, timeline
from dashboard.timeline import Lane, Span

SINCE = datetime(2026, 11, 30, 3, 0, tzinfo=UTC)


def at(minute: float) -> datetime:
    return SINCE + timedelta(minutes=minute)


def presence(number: int, began: float = -600, last: float = 60, over: float | None = None) -> Any:
    return Presence(
        number, "chat", f"chat/{number}", at(began), at(last), None if over is None else at(over)
    )


def change(instance: int, minute: float, state: str, before: str, mode: str = "Auto") -> Change:
    return Change(instance, 1, at(minute), before, state, "FailureRatio", mode)


def incident(**rows: Any) -> Incident:
    names = ("minutes", "errors", "changes", "before", "watchers", "instances", "overrides",
             "deliveries", "marks")  # fmt: skip
    values: dict[str, Any] = {name: [] for name in names}
    values["circuits"] = [CircuitName(1, "openai", "gpt-4o", "eu")]
    values |= {"limit_per_mille": 100, "since": SINCE, "until": at(60), "at": at(60)}
    return Incident(**(values | rows))


def spans(lane: Lane) -> list[tuple[float, float, str]]:
    def minute(moment: datetime) -> float:
        return round((moment - SINCE).total_seconds() / 60, 2)

    return [
        (minute(s.begin), minute(s.end), f"hand-{s.kind}" if s.hand else s.kind) for s in lane.spans
    ]


def test_a_lane_is_the_state_of_most_instances() -> None:
    changes = [change(1, 10, "Open", "Closed"), change(2, 12, "Open", "Closed"),
               change(1, 20, "HalfOpen", "Open"), change(2, 20, "HalfOpen", "Open"),
               change(1, 21, "Closed", "HalfOpen"),
               change(2, 21, "Closed", "HalfOpen")]  # fmt: skip
    watchers = [Watcher(i, 1, "Closed", "Auto", at(-60)) for i in (1, 2, 3)]
    read = incident(changes=changes, watchers=watchers, instances=[presence(i) for i in (1, 2, 3)])
    [lane] = timeline.lanes(read)
    assert spans(lane) == [
        (0, 10, "closed"), (10, 12, "part"), (12, 20, "open"), (20, 21, "half"), (21, 60, "closed"),
    ]  # fmt: skip
    assert lane.opened_at == at(10)
    assert lane.open_seconds == 600


def test_a_silent_instance_is_a_gap_from_its_last_word() -> None:
    read = incident(changes=[change(1, 10, "Open", "Closed")], instances=[presence(1, last=30)])
    [lane] = timeline.lanes(read)
    assert spans(lane) == [(0, 10, "closed"), (10, 30, "open"), (30, 60, "gap")]
    assert [spans(each) for each in timeline.silences(read)] == [[(30, 60, "gap")]]


def test_what_was_forgotten_before_the_stretch_is_not_silent_in_it() -> None:
    read = incident(instances=[presence(1, last=-61), presence(2, last=-59)])
    assert [(lane.name, spans(lane)) for lane in timeline.silences(read)] == [
        ("chat/chat/2", [(0, 60, "gap")])
    ]


def test_an_instance_that_said_goodbye_is_gone_and_not_silent() -> None:
    read = incident(
        changes=[change(1, 10, "Open", "Closed")], instances=[presence(1, last=30, over=30)]
    )
    assert timeline.silences(read) == []
    assert spans(timeline.lanes(read)[0])[-1] == (30, 60, "gap")


def test_what_was_open_before_the_stretch_is_open_in_it() -> None:
    read = incident(before=[Standing(1, 1, "Open", "Auto")], instances=[presence(1)])
    assert spans(timeline.lanes(read)[0]) == [(0, 60, "open")]


def test_nothing_is_drawn_of_what_has_not_happened_yet() -> None:
    read = incident(changes=[change(1, 10, "Open", "Closed")], instances=[presence(1)], at=at(40))
    assert spans(timeline.lanes(read)[0])[-1] == (10, 40, "open")


def test_a_hand_counts_from_the_instances_own_word() -> None:
    uid = uuid.uuid4()
    hand = Hand(
        uid=uid, name="ovr", mode="ForceOpen", gateway="", selector="", provider="openai", model="",
        region="", reason="stop", created_at=at(20), created_by="oncall", over_at=at(40),
        end_cause="Expired",
    )  # fmt: skip
    said = [Delivered(uid, 1, "Applied", "", at(21), None),
            Delivered(uid, 2, "Rejected", "LocalFloorViolated", at(21), None)]  # fmt: skip
    watchers = [Watcher(i, 1, "Closed", "Auto", at(-60)) for i in (1, 2)]
    read = incident(
        overrides=[hand], deliveries=said, watchers=watchers, instances=[presence(1), presence(2)]
    )
    one, two = timeline.instances(read, 1)
    assert spans(one) == [(0, 21, "closed"), (21, 40, "hand-open"), (40, 60, "closed")]
    assert spans(two) == [(0, 60, "closed")]


def test_under_observe_only_calls_pass() -> None:
    changes = [change(1, 10, "Open", "Closed", mode="ObserveOnly")]
    read = incident(changes=changes, instances=[presence(1)])
    assert spans(timeline.lanes(read)[0]) == [(0, 60, "closed")]


@given(
    st.lists(
        st.tuples(
            st.integers(1, 4), st.floats(-5, 65), st.sampled_from(["Open", "HalfOpen", "Closed"])
        ),
        max_size=30,
    ),
    st.floats(1, 60),
)
def test_a_lane_covers_its_stretch_once_without_holes(
    changes: list[tuple[int, float, str]], last: float
) -> None:
    rows = [change(i, m, s, "Closed") for i, m, s in sorted(changes, key=lambda c: c[1])]
    people = [presence(1, last=last), presence(2, began=10), presence(3), presence(4)]
    read = incident(changes=rows, instances=people)
    for lane in [*timeline.lanes(read), *timeline.instances(read, 1)]:
        if not lane.spans:
            continue
        assert lane.spans[0].begin == SINCE
        assert lane.spans[-1].end == at(60)
        for before, after in zip(lane.spans, lane.spans[1:], strict=False):
            assert before.end == after.begin
            assert before.begin < before.end


def row(instance: int, minute: float, to: str) -> tuple[int, int, datetime, str, str, str]:
    return instance, 1, at(minute), "Closed" if to == "Open" else "Open", to, "openai"


def test_openings_close_together_are_one_incident() -> None:
    rows = [row(1, 0, "Open"), row(2, 1, "Open"), row(1, 2, "HalfOpen"), row(2, 3, "HalfOpen"),
            row(1, 10, "Open"), row(1, 11, "HalfOpen"), row(1, 40, "Open")]  # fmt: skip
    assert merged(rows) == [
        Episode(at(0), at(11), ("openai",), 1),
        Episode(at(40), None, ("openai",), 1),
    ]


def test_an_instance_that_went_away_ends_its_part() -> None:
    assert merged([row(1, 0, "Open"), row(1, 5, "Gone")]) == [Episode(at(0), at(5), ("openai",), 1)]


def test_nothing_open_is_no_incident() -> None:
    assert merged([]) == []


def test_joined_spans_do_not_repeat() -> None:
    parts = [Span(at(0), at(1), "open"), Span(at(1), at(2), "open"), Span(at(2), at(2), "half")]
    assert timeline._joined(parts) == [Span(at(0), at(2), "open")]


def test_what_is_still_open_has_a_beginning_and_no_end_in_the_postmortem() -> None:
    read = incident(
        changes=[change(1, 10, "Open", "Closed")],
        instances=[presence(1)],
    )
    lanes = timeline.lanes(read)
    found = postmortem.figures(read, lanes)
    assert found.closed_at is None
    happened = postmortem.events(read, lanes, [])
    words = postmortem.markdown(read, found, happened, ZoneInfo("Europe/London"), "link")
    assert "- **since 03:10:00** GMT, still open: 1 circuit\n" in words
