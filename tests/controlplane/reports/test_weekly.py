"""The weekly report against a naive count of the same events, sent through the real door."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from asgiref.sync import sync_to_async
from django.db import connection

from controlplane.domain.calendar import Week, last_finished
from controlplane.ingest.costs import forget_prices
from controlplane.ingest.derive import derive
from controlplane.models import FxRate, Gateway, Price
from controlplane.reports.figures import Figures
from controlplane.reports.weekly import SPLITS, Question, Weekly, question, report, weekly
from tests.controlplane.ingest import batches
from tests.controlplane.ingest.conftest import Sender
from tests.controlplane.reports.counting import Counted, counted

LONDON = ZoneInfo("Europe/London")
CIRCUITS = [("openai", "gpt-4o", ""), ("openai", "gpt-4o", "eu"), ("groq", "llama", "")]


def now() -> datetime:
    return datetime.now(UTC)


def last_week() -> Week:
    return last_finished(now(), LONDON)


def prices() -> None:
    """A book with one priced model, in dollars; the others are unpriced."""
    forget_prices()
    stamps = {"created_at": now(), "created_by": "tests"}
    old = datetime(2020, 1, 1, tzinfo=UTC)
    for kind, amount in (("input", "2.5"), ("cached_read", "1.25"), ("output", "10.000007")):
        Price.objects.create(
            provider="openai", model="gpt-4o", token_kind=kind, currency="USD",
            per_million=Decimal(amount), valid_from=old, source="tests", **stamps,
        )  # fmt: skip
    FxRate.objects.create(
        currency="USD", day=date(2020, 1, 1), gbp=Decimal("0.7571786161"), source="t", **stamps
    )


class Writer:
    """Events of a few random tasks around the edges of a week."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        start, end = last_week().bounds(LONDON)
        # Half of the tasks lie about an edge of the week, where the rules differ from each other.
        self.times = [start, start + (end - start) / 2, end - timedelta(minutes=20)]
        self.numbers = iter(range(10_000))

    def task(self) -> list[dict[str, Any]]:
        """One task: with or without the header, 1 to 3 requests, perhaps its caller's word."""
        draw = self.draw
        begin = draw.choice(self.times) + timedelta(seconds=draw.uniform(-2400, 2400))
        named = draw.random() < 0.5
        whose = {
            "tenant": draw.choice(["acme", "globex"]),
            "task": f"t{next(self.numbers)}" if named else None,
        }
        events: list[dict[str, Any]] = []
        for _ in range(draw.randint(1, 3) if named else 1):
            events += self.request(begin, whose)
            begin += timedelta(seconds=draw.uniform(1, 900))
        if named and draw.random() < 0.5:
            word = {"success": draw.random() < 0.5, "explicit": True, "request": None, "route": ""}
            events.append(batches.outcome(begin, **whose, **word))
        return events

    def request(self, begin: datetime, whose: dict[str, Any]) -> list[dict[str, Any]]:
        """Attempts, refusals and the outcome of one request; sometimes none was ever made."""
        draw, events = self.draw, []
        about = whose | {"request": str(uuid.UUID(int=draw.getrandbits(128)))}
        about["route"] = draw.choice(["chat", "search", ""])
        at = begin
        for ordinal in range(1, draw.randint(0, 3) + 1):
            provider, model, region = draw.choice(CIRCUITS)
            target = {"provider": provider, "model": model, "region": region}
            if draw.random() < 0.3:
                gate = {
                    "gate": draw.choice(["breaker", "budget"]),
                    "would_have": draw.random() < 0.3,
                }
                events.append(batches.refusal(at, **about, **target, **gate))
                continue
            good = draw.random() < 0.6
            events.append(
                batches.attempt(
                    at,
                    **about,
                    **target,
                    ordinal=ordinal,
                    role="first" if ordinal == 1 else draw.choice(["retry", "fallback"]),
                    verdict="success" if good else "retryable",
                    counts_against_breaker=not good,
                    served=good and draw.random() < 0.9,
                    tokens={"input": draw.randint(1, 5000), "output": draw.randint(0, 900)},
                )
            )
            at += timedelta(seconds=draw.uniform(0.1, 20))
        events.append(
            batches.outcome(
                at, **about, success=draw.random() < 0.6,
                started_at=begin.isoformat(), ended_at=at.isoformat(),
            )
        )  # fmt: skip
        return events


def as_counted(figures: Figures) -> Counted:
    counts = {
        "attempts": figures.attempts,
        "first": figures.firsts,
        "retry": figures.retries,
        "fallback": figures.fallbacks,
        "redelivery": figures.redeliveries,
        "failed": figures.failed,
        "succeeded": figures.succeeded,
        "unpriced": figures.cost.missing,
        "tasks ok": figures.tasks_succeeded,
        "tasks failed": figures.tasks_failed,
        "would": figures.would_refuse,
    } | {f"gate {gate}": count for gate, count in figures.refused.items()}
    found = Counted(cost=figures.cost.sum_gbp, wasted=figures.wasted.sum_gbp)
    found.wasted_finally = figures.wasted_finally.sum_gbp
    found.counts.update({name: count for name, count in counts.items() if count})
    return found


def same(got: Counted, expected: Counted) -> None:
    # Unary plus: a Counter without its zeros.
    assert +got.counts == +expected.counts
    assert (got.cost, got.wasted, got.wasted_finally) == (
        expected.cost,
        expected.wasted,
        expected.wasted_finally,
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_every_split_is_the_naive_count_and_adds_up(
    make_sender: Callable[[], Any], seed: int
) -> None:
    await sync_to_async(prices)()
    senders: list[Sender] = [await make_sender(), await make_sender()]
    names = dict(await sync_to_async(lambda: list(Gateway.objects.values_list("id", "name")))())
    writer = Writer(seed)
    sent: list[tuple[str, dict[str, Any]]] = []
    for sender in senders:
        events = [event for _ in range(60) for event in writer.task()]
        await sender.send(batches.batch(*events))
        sent += [(names[sender.gateway_id], event) for event in events]
    rows = [row for s in senders for row in await s.rows("attempt", "id::text, cost_gbp")]
    costs: dict[str, Decimal | None] = dict(rows)
    assert None in costs.values()
    assert any(costs.values())
    await sync_to_async(every_split)(sent, costs)
    # The same out of the hours: there is nothing else left that it could come from.
    await sync_to_async(derive_and_empty)()
    await sync_to_async(every_split)(sent, costs)


def every_split(sent: list[tuple[str, dict[str, Any]]], costs: dict[str, Decimal | None]) -> None:
    start, end = last_week().bounds(LONDON)
    for by in SPLITS:
        got = weekly(Question(last_week(), LONDON, by), now())
        expected = counted(sent, costs, by, start, end)
        same(as_counted(got.total), expected.pop("*"))
        assert {line.name for line in got.lines} == set(expected)
        for line in got.lines:
            same(as_counted(line.figures), expected[line.name])
        adds_up(got)
        assert [rate.currency for rate in got.rates] == ["USD"]


def derive_now() -> None:
    connection.ensure_connection()
    derive(connection.connection, now(), most=10**6)


def derive_and_empty() -> None:
    derive_now()
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE attempt, refusal, outcome, task")


def adds_up(got: Weekly) -> None:
    """Lines and days: every column's sum is the total, exactly."""
    for parts in (got.lines, got.days):
        total = Counted()
        for part in parts:
            one = as_counted(part.figures)
            total.counts += one.counts
            total.cost += one.cost
            total.wasted += one.wasted
            total.wasted_finally += one.wasted_finally
        whole = as_counted(got.total)
        if parts is got.days:  # refusals are not known by day
            for name in [n for n in whole.counts if n == "would" or n.startswith("gate ")]:
                del whole.counts[name]
        same(total, whole)


async def test_a_task_counts_once_for_the_circuit_of_its_last_attempt(sender: Sender) -> None:
    start = last_week().bounds(LONDON)[0] + timedelta(days=1)
    request = str(uuid.uuid4())
    events = [
        batches.attempt(start, request=request, verdict="retryable", served=False),
        batches.attempt(
            start + timedelta(seconds=3), request=request, provider="groq", model="llama",
            ordinal=2, role="fallback",
        ),
        batches.outcome(start + timedelta(seconds=5), request=request),
        batches.outcome(start + timedelta(seconds=9), route="", success=False),
    ]  # fmt: skip
    await sender.send(batches.batch(*events))
    got = await sync_to_async(weekly)(Question(last_week(), LONDON), now())
    tasks = {ln.name: (ln.figures.tasks_succeeded, ln.figures.tasks_failed) for ln in got.lines}
    assert tasks == {"openai/gpt-4o": (0, 0), "groq/llama": (1, 0), "": (0, 1)}
    # A task without an attempt is the last line.
    assert got.lines[-1].name == ""


async def test_a_task_that_may_go_on_has_not_closed(sender: Sender) -> None:
    ended = last_week().bounds(LONDON)[1] - timedelta(minutes=10)
    await sender.send(batches.batch(batches.outcome(ended, task="open")))
    this = await sync_to_async(weekly)(Question(last_week(), LONDON), now())
    following = Question(last_week().shifted(1), LONDON)
    assert this.total.tasks_succeeded == 0
    closes = ended + timedelta(minutes=15)
    early = await sync_to_async(weekly)(following, closes - timedelta(microseconds=1))
    assert early.total.tasks_succeeded == 0
    late = await sync_to_async(weekly)(following, closes)
    assert late.total.tasks_succeeded == 1


async def test_a_late_event_is_in_the_report_at_once(sender: Sender) -> None:
    at = last_week().bounds(LONDON)[0] + timedelta(hours=30)
    asked = Question(last_week(), LONDON, "tenant")
    for attempts in (1, 2):
        await sender.send(batches.batch(batches.attempt(at), seq=attempts))
        # The hour is marked in the event's own transaction, and read from the events until it is
        # derived anew.
        assert (await sync_to_async(weekly)(asked, now())).total.attempts == attempts
        await sync_to_async(derive_now)()
        assert (await sync_to_async(weekly)(asked, now())).total.attempts == attempts


async def test_simulated_gateways_are_named(sender: Sender) -> None:
    at = last_week().bounds(LONDON)[0] + timedelta(hours=5)
    await sender.send(batches.batch(batches.attempt(at)))
    asked = Question(last_week(), LONDON)
    assert (await sync_to_async(weekly)(asked, now())).simulated == []
    gateways = Gateway.objects.filter(pk=sender.gateway_id)
    await sync_to_async(gateways.update)(labels={"simulated": "true"})
    name = await sync_to_async(lambda: gateways.get().name)()
    found = await sync_to_async(report)(asked, now())
    assert (found.this.simulated, found.before.simulated) == ([name], [])


@pytest.mark.django_db
def test_nothing_sent_is_unknown_and_not_zero() -> None:
    asked = question("", "", "", now())
    assert (asked.week, asked.zone, asked.by) == (last_week(), LONDON, "circuit")
    found = report(asked, now())
    total = found.this.total
    assert (found.this.lines, len(found.this.days)) == ([], 7)
    assert (total.retry_ratio, total.cost_per_successful_task, total.failed_ratio) == (None,) * 3
    assert total.cost.gbp == 0
    assert not found.this.incomplete
    assert not found.this.running


@pytest.mark.django_db
def test_a_week_whose_raw_events_are_gone_says_so() -> None:
    old = weekly(Question(last_week().shifted(-9), LONDON), now())
    assert old.incomplete
    current = weekly(Question(last_week().shifted(1), LONDON), now())
    assert current.running


async def test_a_task_of_weeks_is_judged_anew_from_its_first_hour(sender: Sender) -> None:
    begun = (now() - timedelta(days=20)).replace(minute=5, second=0, microsecond=0)
    first, last = str(uuid.uuid4()), str(uuid.uuid4())
    task = {"task": "long"}
    await sender.send(
        batches.batch(
            batches.attempt(begun, request=first, **task),
            batches.outcome(begun + timedelta(seconds=2), request=first, **task),
        )
    )
    await sync_to_async(derive_now)()
    wasted = "SELECT wasted_final_tokens FROM rollup_hour WHERE hour = %s AND attempts > 0"
    hour = begun.replace(minute=0)
    assert await sync_to_async(_rows)(wasted, [hour]) == [(0,)]
    await sender.send(
        batches.batch(
            batches.attempt(request=last, **task),
            batches.outcome(request=last, success=False, **task),
            seq=2,
        )
    )
    await sync_to_async(derive_now)()
    assert await sync_to_async(_rows)(wasted, [hour]) == [(160,)]


def _rows(query: str, values: list[Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        return list(cursor.fetchall())
