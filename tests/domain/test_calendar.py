"""Weeks of a zone: their bounds, the weeks in which clocks change, and what is not a week."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.calendar import (
    CalendarError,
    Week,
    hour_label,
    hour_of,
    last_finished,
    zone_named,
)

LONDON = ZoneInfo("Europe/London")
ZONES = ["UTC", "Europe/London", "America/Sao_Paulo", "Africa/Cairo", "Atlantic/Azores",
         "Pacific/Apia", "Australia/Lord_Howe", "America/Havana", "Asia/Kathmandu"]  # fmt: skip


@pytest.mark.parametrize(
    ("week", "start", "hours"),
    [
        ("2026-W13", "2026-03-23T00:00+00:00", 167),
        ("2026-W14", "2026-03-29T23:00+00:00", 168),
        ("2026-W43", "2026-10-18T23:00+00:00", 169),
        ("2026-W48", "2026-11-23T00:00+00:00", 168),
        ("2015-W53", "2015-12-28T00:00+00:00", 168),
    ],
)
def test_a_week_is_seven_local_days(week: str, start: str, hours: float) -> None:
    found = Week.parse(week)
    assert found.bounds(LONDON)[0] == datetime.fromisoformat(start)
    assert found.hours(LONDON) == hours


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("2026-W54", "2026 has weeks 01 to 53"),
        ("2025-W53", "2025 has weeks 01 to 52"),
        ("2026-W00", "does not exist"),
        ("2026-48", "write it like 2026-W48"),
        ("2026-W48\n", "write it like"),
        ("٢٠٢٦-W48", "write it like"),
        ("", "write it like"),
        ("1999-W01", "out of range"),
        ("9999-W52", "out of range"),
    ],
)
def test_what_is_not_a_week_is_named(text: str, says: str) -> None:
    with pytest.raises(CalendarError, match=says):
        Week.parse(text)


@pytest.mark.parametrize(
    "name",
    ["Europe/Londn", "", "/etc/passwd", "../UTC", "Europe/../UTC", "Mars", "a\x00b", "x" * 99],
)
def test_what_is_not_a_zone_is_named(name: str) -> None:
    with pytest.raises(CalendarError, match="is not a time zone"):
        zone_named(name)


def test_the_last_finished_week_ends_at_local_midnight() -> None:
    # 23:30 UTC on this Sunday is Monday in London: week 13 is over there and not in UTC.
    at = datetime(2026, 3, 29, 23, 30, tzinfo=UTC)
    assert str(last_finished(at, LONDON)) == "2026-W13"
    assert str(last_finished(at, ZoneInfo("UTC"))) == "2026-W12"


def test_two_hours_of_one_name_stay_two() -> None:
    first = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    second = first + timedelta(hours=1)
    assert hour_of(first) != hour_of(second)
    assert [hour_label(hour_of(t), LONDON) for t in (first, second)] == [
        "01:00+01:00",
        "01:00+00:00",
    ]


days = st.dates(date(2001, 1, 1), date(2198, 12, 31))


@given(days, st.sampled_from(ZONES))
def test_weeks_follow_each_other_and_hold_their_instants(day: date, name: str) -> None:
    zone = zone_named(name)
    week = Week.of_day(day)
    start, end = week.bounds(zone)
    assert week.shifted(1).bounds(zone)[0] == end
    assert week.shifted(1).shifted(-1) == week
    assert Week.parse(str(week)) == week
    assert Week.of(start, zone) == week == Week.of(end - timedelta(microseconds=1), zone)
    assert Week.of(end, zone) == week.shifted(1)
    assert list(week.midnights(zone)) == sorted(set(week.midnights(zone)))


seconds = st.integers(978_307_200, 7_195_046_400)  # 2001 to 2197


@given(seconds, st.sampled_from(ZONES))
def test_every_instant_lies_in_exactly_its_week(second: int, name: str) -> None:
    at = datetime.fromtimestamp(second, UTC)
    zone = zone_named(name)
    start, end = Week.of(at, zone).bounds(zone)
    assert start <= at < end
