"""Simulated history: the same however often it is made, through the real door, marked as such."""

from __future__ import annotations

import itertools
import re
from datetime import timedelta
from io import StringIO
from zoneinfo import ZoneInfo

import msgspec
import pytest
from django.core.management import CommandError, call_command

from controlplane.domain.calendar import Week, last_finished
from controlplane.models import Gateway, GatewayToken, Instance
from controlplane.reports.weekly import Question, weekly
from controlplane.wire.events import Attempt, Outcome, Refusal, Transition, id_matches
from gateway.history_traffic import Stream
from tests.controlplane.reports.test_weekly import LONDON, now
from tests.dashboard.server import WebProcess

STREAM = Stream("simulated-a", 0, Week(2026, 43), ZoneInfo("Europe/London"), 1500)


def test_a_stream_is_the_same_whenever_it_is_made() -> None:
    first = [msgspec.json.encode(batch) for batch in STREAM.batches()]
    assert first == [msgspec.json.encode(batch) for batch in STREAM.batches()]
    other = Stream("simulated-a", 1, STREAM.week, STREAM.zone, STREAM.tasks)
    assert other.boot != STREAM.boot


def test_a_stream_holds_its_week_and_what_a_gateway_would_say() -> None:
    batches = list(STREAM.batches())
    assert [batch.seq for batch in batches] == list(range(1, len(batches) + 1))
    events = [event for batch in batches for event in batch.events]
    assert all(id_matches(event.id, event.occurred_at) for event in events)
    assert len({event.id for event in events}) == len(events)
    start, end = STREAM.week.bounds(STREAM.zone)
    assert end - start == timedelta(hours=169)
    assert all(start <= event.occurred_at < end + timedelta(hours=1) for event in events)
    tasks = {e.task or e.request for e in events if isinstance(e, Outcome)}
    assert len(tasks) == STREAM.tasks
    ended = {e.request for e in events if isinstance(e, Outcome) and not e.explicit}
    assert {e.request for e in events if isinstance(e, Attempt | Refusal)} <= ended
    roles = {e.role for e in events if isinstance(e, Attempt)}
    assert {"first", "retry", "fallback"} <= roles
    assert any(isinstance(e, Attempt) and e.rerouted for e in events)
    assert any(isinstance(e, Refusal) and e.gate == "breaker" for e in events)


def test_a_breaker_takes_real_steps_and_ends_closed() -> None:
    events = [event for batch in STREAM.batches() for event in batch.events]
    steps = [event for event in events if isinstance(event, Transition)]
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    assert steps[0].from_state == "Closed"
    assert steps[-1].to_state == "Closed"
    allowed = {"Closed": {"Open"}, "Open": {"HalfOpen"}, "HalfOpen": {"Open", "Closed"}}
    for one, two in itertools.pairwise(steps):
        assert one.to_state == two.from_state
    assert all(step.to_state in allowed[step.from_state] for step in steps)


def seed(url: str, *arguments: str) -> str:
    said = StringIO()
    call_command(
        "seed_history", "--weeks", "1", "--tasks-per-week", "300", "--url", url, *arguments,
        stdout=said,
    )  # fmt: skip
    return said.getvalue()


def events_of(said: str) -> int:
    return int(re.search(r"([0-9,]+) events in", said)[1].replace(",", ""))


def stored_of(said: str) -> int:
    return int(re.search(r"([0-9,]+) of them new", said)[1].replace(",", ""))


@pytest.mark.e2e
def test_history_is_marked_and_a_second_run_changes_nothing(
    transactional_db: None, shared_web: WebProcess
) -> None:
    first = seed(shared_web.url)
    assert "300 simulated tasks" in first
    assert stored_of(first) == events_of(first) > 600
    asked = Question(last_finished(now(), LONDON), LONDON)
    counted = weekly(asked, now())
    closed = counted.total.tasks_succeeded + counted.total.tasks_failed
    # A task that goes on over the end of the week closes in the next one.
    assert 290 <= closed <= 300
    assert counted.simulated == ["simulated-a", "simulated-b"]
    assert counted.total.cost.gbp
    assert {line.name for line in counted.lines} >= {"openai/gpt-4.1-mini@us-east"}
    again = seed(shared_web.url)
    assert (events_of(again), stored_of(again)) == (events_of(first), 0)
    assert weekly(asked, now()) == counted
    assert not GatewayToken.objects.filter(revoked_at=None).exists()
    assert all(gateway.labels == {"simulated": "true"} for gateway in Gateway.objects.all())
    # Nothing of it looks alive: an instance was last seen when its last event happened.
    for instance in Instance.objects.all():
        assert instance.last_seen_at < counted.end + timedelta(minutes=30)


@pytest.mark.django_db
def test_more_weeks_than_raw_events_are_kept_are_refused() -> None:
    with pytest.raises(CommandError, match=r"raw events are kept 35 days.*write 1 to "):
        call_command("seed_history", "--weeks", "6")
    with pytest.raises(CommandError, match="write 1 to "):
        call_command("seed_history", "--weeks", "0")
    assert not Gateway.objects.exists()


@pytest.mark.django_db
def test_a_real_gateway_of_that_name_is_never_written_to() -> None:
    Gateway.objects.create(
        name="simulated-b", resource_version=1, created_at=now(), created_by="somebody"
    )
    with pytest.raises(CommandError, match="is not labelled simulated=true: nothing was sent"):
        call_command("seed_history", stdout=StringIO())
    assert not GatewayToken.objects.exists()
