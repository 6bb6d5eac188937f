"""What is wrong behind the figures is told: since when, which grain, of what, what to do."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from controlplane.ingest import derive, partitions
from controlplane.models import Person
from controlplane.models.jobs import words_of
from controlplane.reports import background
from controlplane.reports.background import Job, Work
from controlplane.reports.background_conditions import conditions, faults
from workers import tasks

NOW = datetime(2026, 11, 30, 3, 10, tzinfo=UTC)


def work(**fields: Any) -> Work:
    """All is well, but for these."""
    seconds = timedelta(seconds=20)
    jobs = [Job(name, NOW - seconds, None, None, "") for name in ("telemetry.derive",)]
    well: dict[str, Any] = {
        "at": NOW,
        "beat_at": NOW - timedelta(seconds=5),
        "jobs": jobs,
        "minute": NOW - timedelta(minutes=3),
        "hour": NOW - timedelta(minutes=70),
        "retention_days": 35,
        "first_day": date(2026, 10, 26),
        "last_day": date(2026, 12, 3),
    }
    return Work(**well | fields)


def failing(name: str) -> Job:
    return Job(name, None, NOW - timedelta(hours=2), NOW, "DiskFull: no space left")


def test_all_is_well() -> None:
    assert faults(work()) == []
    assert [one.status for one in conditions(work())] == ["True"] * 4


@pytest.mark.parametrize(
    ("fields", "type_", "reason", "words"),
    [
        ({"beat_at": NOW - timedelta(minutes=9)}, "WorkersAlive", "Silent", "03:01 UTC"),
        ({"jobs": [failing("telemetry.derive")]}, "FiguresDerived", "DeriveFails", "no space left"),
        (
            {"jobs": [Job("telemetry.derive", NOW - timedelta(minutes=11), None, None, "")]},
            "FiguresDerived", "Behind", "has ended since 2026-11-30 02:59 UTC",
        ),
        ({"jobs": [], "minute": NOW - timedelta(hours=3)}, "FiguresDerived", "Behind", "00:10 UTC"),
        ({"first_day": date(2026, 10, 24)}, "RetentionKept", "RawEventsHeld", "2026-10-24"),
        ({"last_day": date(2026, 11, 30)}, "DaysAhead", "NotMade", "2026-11-30"),
        ({"last_day": None}, "DaysAhead", "NotMade", "none"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(fields: dict[str, Any], type_: str, reason: str, words: str) -> None:
    (found,) = faults(work(**fields))
    assert (found.type, found.status, found.reason) == (type_, "False", reason)
    assert words in found.message


def test_a_day_is_given_time_to_be_dropped() -> None:
    """Wholly expired at midnight; an hourly task drops it."""
    at = datetime(2026, 11, 30, 2, 0, tzinfo=UTC)
    assert faults(work(at=at, first_day=date(2026, 10, 25), beat_at=at, jobs=[])) == []


def test_any_other_job_that_fails_is_named() -> None:
    (found,) = faults(work(jobs=[*work().jobs, failing("overrides.end_expired")]))
    assert "overrides.end_expired fails since 2026-11-30 01:10 UTC" in found.message


@pytest.mark.django_db(transaction=True)
def test_a_derivation_that_fails_is_on_every_page_until_it_succeeds(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = Person.objects.create_user("oncall", password="a-long-password", role="viewer")
    client.force_login(person)
    tasks.heartbeat()
    tasks.partitions()
    tasks.derive()
    assert faults(background.read()) == []
    assert 'data-said=""' in client.get("/").content.decode().split('class="banner work"')[1][:200]

    def fails(*_: object) -> None:
        raise ZeroDivisionError("a sum of nothing\nand its second line")

    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=5)
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO rollup_dirty VALUES ('hour', %s)", [hour])
    with monkeypatch.context() as patch:
        patch.setattr(derive, "_derive_one_hour", fails)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                tasks.derive()
    (found,) = faults(background.read())
    assert found.reason == "DeriveFails"
    assert f"deriving the hour of {hour:%Y-%m-%d %H}:00 UTC" in found.message
    assert "a sum of nothing" in found.message
    assert "second line" not in found.message
    wall = client.get("/").content.decode()
    page = client.get("/telemetry").content.decode()
    said = client.get("/api/v1/telemetry").json()["status"]
    assert "Figures are not derived." in wall
    assert page.index('id="work"') < page.index('id="lost"')
    assert "a sum of nothing" in wall
    assert "a sum of nothing" in page
    told = {one["type"]: one for one in said["conditions"]}["FiguresDerived"]
    assert (told["status"], told["message"]) == ("False", found.message)
    assert said["databaseBytes"] > 0
    tasks.derive()
    assert faults(background.read()) == []


@pytest.mark.django_db(transaction=True)
def test_a_day_that_cannot_be_derived_holds_none_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tasks.partitions()
    kept = partitions.first_kept(datetime.now(UTC), timedelta(days=35))
    old, stuck = (kept - timedelta(days=3)).date(), (kept - timedelta(days=1)).date()
    with connection.cursor() as cursor:
        cursor.execute("SELECT switchgear_ensure_days(%s, %s)", [old, stuck])
        cursor.execute("INSERT INTO rollup_dirty VALUES ('hour', %s)", [kept - timedelta(hours=7)])

    def fails(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(derive, "_derive_one_hour", fails)
        with pytest.raises(ZeroDivisionError):
            tasks.partitions()
        assert background.read().first_day == stuck
    tasks.partitions()
    first = background.read().first_day
    assert first is not None
    assert first >= kept.date()


def test_an_error_is_one_bounded_line() -> None:
    error = ValueError("first\x1b[2J\u202e line\nsecond")
    error.add_note("deriving the hour of x")
    assert words_of(error) == "ValueError: first[2J line (deriving the hour of x)"
    assert len(words_of(ValueError("x" * 5000))) == 500
