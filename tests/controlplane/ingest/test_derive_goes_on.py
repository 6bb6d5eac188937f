"""A minute or an hour that cannot be derived holds up no other."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from psycopg.errors import QueryCanceled

from controlplane.ingest import derive
from workers.recorded import postgres

pytestmark = pytest.mark.django_db(transaction=True)
HOUR = timedelta(hours=1)
NOW = datetime.now(UTC).replace(minute=30, second=0, microsecond=0)


def marked(grain: str) -> set[datetime]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT at FROM rollup_dirty WHERE grain = %s", [grain])
        return {row[0] for row in cursor.fetchall()}


def mark(grain: str, times: list[datetime]) -> None:
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO rollup_dirty VALUES (%s, %s)", [[grain, t] for t in times])


@pytest.fixture(autouse=True)
def nothing_marked() -> Any:
    derive.derive(postgres(), NOW)
    assert not marked("hour") | marked("minute")
    yield
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM rollup_dirty")


def test_the_newest_hour_fails_and_the_others_are_derived(monkeypatch: pytest.MonkeyPatch) -> None:
    hours = [NOW.replace(minute=0) - n * HOUR for n in range(2, 6)]
    real = derive._derive_one_hour

    def one(conn: Any, hour: datetime) -> None:
        if hour in hours[:2]:
            raise QueryCanceled("canceling statement due to statement timeout")
        real(conn, hour)

    mark("hour", hours)
    monkeypatch.setattr(derive, "_derive_one_hour", one)
    with pytest.raises(QueryCanceled) as caught:
        derive.derive(postgres(), NOW)
    assert marked("hour") == set(hours[:2])
    assert caught.value.__notes__ == [
        f"deriving the hour of {hours[0]:%Y-%m-%d %H:%M} UTC",
        "and 1 more that failed",
    ]
    monkeypatch.undo()
    assert derive.derive(postgres(), NOW).hours == 2


def test_a_minute_among_many_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    minutes = [NOW - n * timedelta(minutes=1) for n in range(60, 90)]
    real = derive._derive_circuit_minutes

    def some(conn: Any, given: list[datetime]) -> None:
        if minutes[7] in given:
            raise OverflowError
        real(conn, given)

    mark("minute", minutes)
    monkeypatch.setattr(derive, "_derive_circuit_minutes", some)
    with pytest.raises(OverflowError):
        derive.derive(postgres(), NOW)
    assert marked("minute") == {minutes[7]}


def test_a_fault_of_everything_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    hours = [NOW.replace(minute=0) - n * HOUR for n in range(2, 40)]
    tried: list[datetime] = []

    def one(conn: Any, hour: datetime) -> None:
        tried.append(hour)
        raise RuntimeError

    mark("hour", hours)
    monkeypatch.setattr(derive, "_derive_one_hour", one)
    with pytest.raises(RuntimeError):
        derive.derive(postgres(), NOW)
    assert len(tried) == derive._MOST_FAILING
    assert marked("hour") == set(hours)
