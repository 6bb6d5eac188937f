"""A week read from its derived hours and, where there are none, its raw events, is the raw week."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from asgiref.sync import sync_to_async
from django.db import connection

from controlplane.domain.calendar import Week
from controlplane.domain.rollup import hour_of
from controlplane.ingest.derive import derive
from controlplane.models import Gateway
from controlplane.models.pool import named_sql
from controlplane.reports import weekly as reading
from controlplane.reports.weekly import SPLITS, Question, Weekly, weekly
from tests.controlplane.ingest import batches
from tests.controlplane.ingest.conftest import Sender
from tests.controlplane.reports.test_telemetry import nodes_of
from tests.controlplane.reports.test_weekly import Writer, prices

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
# The last two have midnights that are not whole UTC hours.
ZONES = [ZoneInfo(name) for name in ("UTC", "Europe/London", "Asia/Kolkata", "Pacific/Chatham")]
MOVED = {
    "attempt": ("occurred_at",),
    "refusal": ("occurred_at",),
    "outcome": ("occurred_at", "started_at", "ended_at"),
    "task": ("first_started_at", "last_ended_at", "explicit_at", "implicit_at"),
}


class Hours(Writer):
    """Random tasks of the last three days before a moment, many of them about whole hours."""

    def __init__(self, seed: int, until: datetime) -> None:
        super().__init__(seed)
        whole = hour_of(until)
        self.times = [whole - self.draw.randint(0, 72) * HOUR for _ in range(12)]
        self.times += [until - 50 * MINUTE, until - 45 * MINUTE, whole]

    def batch(self, tasks: int, seq: int) -> dict[str, Any]:
        """So many tasks' events, all of whose times are over."""
        return batches.batch(*(e for _ in range(tasks) for e in self.task()), seq=seq)


@pytest.fixture
def watermarks() -> Iterator[None]:
    """Put them back: they are no table of events."""
    yield
    _run("UPDATE rollup_watermark SET upto = date_trunc('hour', now())")


def _run(statement: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return list(cursor.fetchall()) if cursor.description else []


def derive_from(begin: datetime, now: datetime) -> None:
    """What a worker has derived at ``now`` that has been at it since ``begin``."""
    _run("UPDATE rollup_watermark SET upto = %s WHERE grain = 'hour'", [hour_of(begin)])
    _run("UPDATE rollup_watermark SET upto = %s WHERE grain = 'minute'", [hour_of(now)])
    derive(connection.connection, now, most=10**6)


def raw_alone(asked: Question, now: datetime) -> Weekly:
    """The same week without any derived hour."""
    ((upto,),) = _run("SELECT upto FROM rollup_watermark WHERE grain = 'hour'")
    move = "UPDATE rollup_watermark SET upto = %s WHERE grain = 'hour'"
    _run(move, [upto - 1000 * DAY])
    try:
        return weekly(asked, now)
    finally:
        _run(move, [upto])


def hours_in(asked: Question, what: str) -> int:
    """How many hours of a week, that hold anything, are ``clean`` or ``dirty``."""
    marked = "IN" if what == "dirty" else "NOT IN"
    ((found,),) = _run(
        "SELECT count(DISTINCT hour) FROM rollup_hour_split WHERE hour >= %s AND hour < %s"
        " AND hour < (SELECT upto FROM rollup_watermark WHERE grain = 'hour')"
        f" AND hour {marked} (SELECT at FROM rollup_dirty WHERE grain = 'hour')",
        list(asked.week.bounds(asked.zone)),
    )
    return int(found)


def reads_alike(now: datetime, seed: int) -> Counter[str]:
    """Hold both reads of this week and the last against each other; which hours there were."""
    seen: Counter[str] = Counter()
    for place, (zone, back) in enumerate(itertools.product(ZONES, (0, -1))):
        by = SPLITS[(place + seed) % len(SPLITS)]
        asked = Question(Week.of(now, zone).shifted(back), zone, by)
        found = weekly(asked, now)
        assert found == raw_alone(asked, now), (zone, back, by)
        seen["attempts"] += found.total.attempts
        seen["not final"] += found.total.wasted_finally != found.total.wasted
        for what in ("clean", "dirty"):
            seen[what] += hours_in(asked, what)
    return seen


@pytest.mark.parametrize("seed", [1, 2])
async def test_late_events_and_running_hours_are_read_beside_the_derived(
    make_sender: Callable[[], Any], watermarks: None, seed: int
) -> None:
    await sync_to_async(prices)()
    now = datetime.now(UTC)
    writer, senders = Hours(seed, now), [await make_sender(), await make_sender()]
    gateways = Gateway.objects.filter(pk=senders[0].gateway_id)
    await sync_to_async(gateways.update)(labels={"simulated": "true"})
    for sender in senders:
        await sender.send(writer.batch(40, 1))
    await sync_to_async(derive_from)(now - 90 * HOUR, now - 5 * HOUR)
    for sender in senders:
        await sender.send(writer.batch(15, 2))
    seen = await sync_to_async(reads_alike)(now, seed)
    assert min(seen["attempts"], seen["clean"], seen["dirty"], seen["not final"]) > 0, seen
    await sync_to_async(derive_from)(now - 90 * HOUR, now)
    seen = await sync_to_async(reads_alike)(now, seed)
    assert (seen["dirty"], seen["clean"] > 0) == (0, True), seen


async def test_what_a_failed_task_that_may_go_on_got_is_not_wasted_yet(
    sender: Sender, watermarks: None
) -> None:
    await sync_to_async(prices)()
    hour = hour_of(datetime.now(UTC)) - 2 * HOUR
    sent, ended = hour - 2 * MINUTE, hour - MINUTE
    await sender.send(
        batches.batch(
            batches.attempt(sent, task="t"), batches.outcome(ended, task="t", success=False)
        )
    )
    now = hour + 12 * MINUTE
    await sync_to_async(derive_from)(hour - 3 * HOUR, now)
    for zone, by in itertools.product(ZONES, SPLITS):
        asked = Question(Week.of(sent, zone), zone, by)
        open_still = await sync_to_async(weekly)(asked, now)
        assert open_still == await sync_to_async(raw_alone)(asked, now)
        assert open_still.total.wasted_finally.gbp == 0
        closed = await sync_to_async(weekly)(asked, ended + reading.IDLE)
        assert closed.total.wasted_finally.gbp == closed.total.cost.gbp > 0


async def test_a_marked_hour_whose_events_are_dropped_keeps_its_figures(
    sender: Sender, watermarks: None
) -> None:
    at = hour_of(datetime.now(UTC)) - 30 * HOUR
    await sender.send(batches.batch(batches.attempt(at)))
    await sync_to_async(derive_from)(at, datetime.now(UTC))
    await sync_to_async(_run)("TRUNCATE attempt")
    await sync_to_async(_run)("INSERT INTO rollup_dirty VALUES ('hour', %s)", [at])
    asked = Question(Week.of(at, ZONES[0]), ZONES[0])
    assert (await sync_to_async(weekly)(asked, datetime.now(UTC))).total.attempts == 0
    await sync_to_async(_run)("INSERT INTO raw_dropped VALUES (%s)", [at + DAY])
    assert (await sync_to_async(weekly)(asked, datetime.now(UTC))).total.attempts == 1


INDIA = ZoneInfo("Asia/Kolkata")


def last(weekday: int) -> datetime:
    """18:00 UTC of the last such weekday (0: Monday); midnight in India is at 18:30."""
    at = hour_of(datetime.now(UTC)).replace(hour=18) - DAY
    return at - (at.weekday() - weekday) % 7 * DAY


async def around_midnight(sender: Sender, at: datetime) -> None:
    """An attempt and a task on either side of 18:30, derived."""
    events: list[dict[str, Any]] = []
    for minute, attempts in ((5, 1), (29, 2), (30, 4), (50, 8)):
        then = at + minute * MINUTE
        events += [batches.attempt(then) for _ in range(attempts)]
        events.append(batches.outcome(then, success=minute != 50))
    await sender.send(batches.batch(*events))
    await sync_to_async(derive_from)(at, datetime.now(UTC))


async def in_india(at: datetime) -> Weekly:
    """The week there that holds ``at``."""
    return await sync_to_async(weekly)(Question(Week.of(at, INDIA), INDIA), datetime.now(UTC))


async def test_an_hour_that_a_midnight_lies_within_is_parted_when_its_events_are_gone(
    sender: Sender, watermarks: None
) -> None:
    at = last(2)
    await around_midnight(sender, at)
    await sync_to_async(_run)("TRUNCATE attempt, outcome")
    found = await in_india(at)
    of_days = [
        (one.figures.attempts, one.figures.tasks_succeeded, one.figures.tasks_failed)
        for one in found.days
    ]
    assert of_days == [(0, 0, 0)] * 2 + [(3, 2, 0), (12, 1, 1)] + [(0, 0, 0)] * 3
    assert (found.total.attempts, found.total.tasks_succeeded) == (15, 3)


async def test_an_hour_that_a_week_begins_within_outlives_its_events(
    sender: Sender, watermarks: None
) -> None:
    """It can no longer be parted by key: it counts whole, for the week in which it begins."""
    at = last(6)
    await around_midnight(sender, at)
    assert ((await in_india(at)).total.attempts, (await in_india(at + HOUR)).total.attempts) == (
        3,
        12,
    )
    await sync_to_async(_run)("TRUNCATE attempt, outcome")
    await sync_to_async(_run)("INSERT INTO raw_dropped VALUES (%s)", [at + DAY])
    found = await in_india(at)
    assert [one.figures.attempts for one in found.days][6] == found.total.attempts == 15
    assert (await in_india(at + HOUR)).total.attempts == 0


async def test_quarters_go_with_their_hour_and_it_is_read_from_its_events(
    sender: Sender, watermarks: None
) -> None:
    at = last(2)
    await around_midnight(sender, at)
    known = "SELECT count(*) FROM rollup_quarter WHERE at >= %s"
    before = await in_india(at)
    assert await sync_to_async(_run)(known, [at]) == [(4,)]
    # So does a worker of the version before, which derives it without quarters.
    await sync_to_async(_run)("DELETE FROM rollup_hour WHERE hour = %s", [at])
    assert await sync_to_async(_run)(known, [at]) == [(0,)]
    assert await in_india(at) == before


# In London's clocks: to summer time, to winter time.
@pytest.mark.parametrize("sunday", ["2026-03-29", "2026-10-25"])
async def test_weeks_in_which_clocks_change_are_read_alike(
    sender: Sender, watermarks: None, sunday: str
) -> None:
    await sync_to_async(prices)()
    now = datetime.now(UTC)
    writer = Hours(4, now)
    await sender.send(writer.batch(70, 1))
    then = datetime.fromisoformat(f"{sunday}T22:{now.minute:02}Z")
    await sync_to_async(move)(hour_of(then) - hour_of(now), then)
    await sync_to_async(derive_from)(then - 90 * HOUR, then - 3 * HOUR)
    await sync_to_async(_run)(
        "INSERT INTO rollup_dirty SELECT 'hour', hour FROM rollup_hour_split"
        " WHERE extract(hour FROM hour)::int % 3 = 0 GROUP BY hour"
    )
    seen = await sync_to_async(reads_alike)(then, then.month)
    assert min(seen["attempts"], seen["clean"], seen["dirty"]) > 0, seen


def move(by: timedelta, to: datetime) -> None:
    """Move all events by whole hours: the door takes none that are older than is kept."""
    _run("SELECT switchgear_ensure_days(%s, %s)", [to.date() - 5 * DAY, to.date() + DAY])
    for table, columns in MOVED.items():
        changed = ", ".join(f"{name} = {name} + %(by)s" for name in columns)
        with connection.cursor() as cursor:
            cursor.execute(f"UPDATE {table} SET {changed}", {"by": by})


def ran_nodes(values: dict[str, Any]) -> list[dict[str, Any]]:
    """The nodes of a week's plan that ran."""
    statement = named_sql(reading._SQL / "weekly.sql")
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
        try:
            cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", values)
            nodes = nodes_of(cursor.fetchone()[0][0]["Plan"])
        finally:
            cursor.execute("RESET enable_seqscan")
    return [node for node in nodes if node["Actual Loops"]]


async def test_a_week_in_india_looks_into_its_two_ends_alone(
    sender: Sender, watermarks: None
) -> None:
    end = last(6)
    for day in range(8):
        await sender.send(batches.batch(batches.attempt(end - day * DAY), seq=day + 1))
    await sync_to_async(derive_from)(end - 8 * DAY, datetime.now(UTC))
    midnights = Week.of(end, INDIA).midnights(INDIA)
    values = {
        "start": midnights[0], "end": midnights[-1], "midnights": list(midnights[:-1]),
        "by": "route", "now": datetime.now(UTC), "idle": reading.IDLE,
    }  # fmt: skip
    ran = await sync_to_async(ran_nodes)(values)
    touched = {node["Relation Name"] for node in ran if "Relation Name" in node}
    days = {name[-8:] for name in touched if name.startswith("attempt_2")}
    assert days == {f"{at:%Y%m%d}" for at in (midnights[0], midnights[-1])}


def test_a_running_week_looks_into_its_last_hours_alone(
    transactional_db: None, watermarks: None
) -> None:
    start = hour_of(datetime.now(UTC)).replace(hour=0) - 9 * DAY
    end, now = start + 7 * DAY, start + 6 * DAY + 5 * HOUR
    # Of what earlier tests have filled and deleted the planner would know too much.
    _run("TRUNCATE rollup_hour_rate, rollup_dirty")
    _run("SELECT switchgear_ensure_days(%s, %s)", [start.date() - 8 * DAY, end.date() + DAY])
    _run("UPDATE rollup_watermark SET upto = %s WHERE grain = 'hour'", [now - HOUR])
    _run("INSERT INTO rollup_dirty VALUES ('hour', %s)", [start + 30 * HOUR])
    # On an empty table any index is as good as another.
    _run(
        "INSERT INTO rollup_hour_split"
        " SELECT split, %s + h * interval '1 hour', -k, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,"
        " 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0"
        " FROM unnest('{circuit,gateway,route,tenant}'::text[]) split,"
        " generate_series(1, 200) h, generate_series(1, 20) k",
        [start - DAY],
    )
    _run("ANALYZE rollup_hour_split")
    values = {
        "start": start, "end": end, "midnights": [start + n * DAY for n in range(7)],
        "by": "circuit", "now": now, "idle": reading.IDLE,
    }  # fmt: skip
    ran = ran_nodes(values)
    _run("DELETE FROM rollup_dirty")
    touched = {node["Relation Name"] for node in ran if "Relation Name" in node}
    days = {name[-8:] for name in touched if name.startswith("attempt_2")}
    assert days == {f"{start + DAY:%Y%m%d}", f"{now - HOUR:%Y%m%d}"}
    used = {node["Index Name"] for node in ran if "Index Name" in node}
    assert {"rollup_hour_rate_pkey", "rollup_dirty_pkey"} <= used
    # Both know the time; of real weeks the first is taken, of these few rows sometimes the second.
    assert used & {"rollup_hour_split_pkey", "rollup_hour_split_by_time"}
    assert any(name.startswith("attempt_2") and "occurred_at" in name for name in used)
