"""A minute or an hour that cannot be derived holds up no other."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.db import connection
from psycopg.errors import QueryCanceled

from controlplane.domain.rollup import minute_of
from controlplane.ingest import derive, dirty, rebuild
from controlplane.models.pool import conninfo
from tests.controlplane.ingest.batches import attempt, batch
from tests.controlplane.ingest.conftest import Sender
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


async def waits(what: str) -> None:
    """Until a session waits for a lock with a statement like that."""
    blocked = """
        SELECT count(*) FROM pg_stat_activity
        WHERE query LIKE %s AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()"""
    async with await psycopg.AsyncConnection.connect(conninfo(), autocommit=True) as conn:
        for _ in range(20_000):
            if await (await conn.execute(blocked, [what])).fetchone() != (0,):
                return
    raise TimeoutError(what)


async def test_a_late_event_and_the_job_never_wait_in_a_circle(sender: Sender) -> None:
    """The job takes a minute's mark and then its sums; whoever adds must do the same."""
    late = minute_of(NOW - timedelta(days=3))
    await sender.send(batch(attempt(late), seq=1))
    async with await psycopg.AsyncConnection.connect(conninfo()) as held:
        await held.execute("SELECT FROM rollup_minute WHERE minute = %s FOR UPDATE", [late])
        adding = asyncio.create_task(sender.send(batch(attempt(late), seq=2)))
        await waits("%INSERT INTO rollup_minute AS%")

        def derive_now() -> derive.Derived:
            with psycopg.connect(conninfo(), autocommit=True) as conn:
                conn.execute("SET lock_timeout = '100ms'")
                return derive.derive(conn, NOW)

        # The mark is the batch's now, which holds it until it is committed: nothing to wait for.
        assert (await asyncio.to_thread(derive_now)).minutes == 0
        await held.rollback()
        assert (await adding)["stored"] == 1
    assert await sync_to_async(marked)("minute") == {late}
    assert (await asyncio.to_thread(derive_now)).minutes == 1


async def test_a_rebuild_and_a_late_event_mark_in_one_order(sender: Sender) -> None:
    hour = NOW.replace(minute=0) - timedelta(days=3)
    late = [hour + n * timedelta(minutes=1) for n in range(60)]
    await sender.send(batch(*(attempt(at) for at in late), seq=1))
    await asyncio.to_thread(derive_all)
    async with (
        await psycopg.AsyncConnection.connect(conninfo()) as one,
        await psycopg.AsyncConnection.connect(conninfo(), autocommit=True) as other,
    ):
        await dirty._mark(one, "minute", {late[0]})
        given = {"begin": hour, "end": hour + HOUR}
        marking = asyncio.create_task(other.execute(rebuild._MARK_DERIVED, given))
        await waits("%INSERT INTO rollup_dirty%")
        await one.execute("SET lock_timeout = '100ms'")
        await dirty._mark(one, "minute", set(late))
        await dirty._mark(one, "hour", {hour})
        await one.commit()
        await marking


def derive_all() -> None:
    with psycopg.connect(conninfo(), autocommit=True) as conn:
        derive.derive(conn, NOW)


def test_a_minute_from_raw_events_is_derived_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its late events wait for the transaction that has its mark."""
    recent = [NOW - n * timedelta(minutes=1) for n in (60, 61, 62)]
    old = [NOW - timedelta(days=3) - n * timedelta(minutes=1) for n in (0, 1, 2)]
    taken: list[list[datetime]] = []
    real = derive._derive_minutes

    def noted(conn: Any, minutes: list[datetime], now: datetime) -> None:
        taken.append(sorted(minutes, reverse=True))
        real(conn, minutes, now)

    mark("minute", recent + old)
    monkeypatch.setattr(derive, "_derive_minutes", noted)
    assert derive.derive(postgres(), NOW).minutes == 6
    assert taken == [recent, *([one] for one in old)]
