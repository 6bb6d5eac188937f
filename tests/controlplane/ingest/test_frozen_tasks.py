"""A task is frozen seven days after its last request, whatever the order in which it is told."""

import random
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from controlplane.ingest.rebuild import _tasks
from controlplane.models.pool import close_pool
from tests.controlplane.ingest.batches import batch, outcome
from tests.controlplane.ingest.conftest import Sender, new_sender
from tests.controlplane.ingest.test_rebuilt_is_folded import quiet, rebatched

__all__ = ["quiet"]

DAY = timedelta(days=1)
BEGIN = (datetime.now(UTC) - 20 * DAY).replace(minute=0, second=0, microsecond=0)
TASK = {"tenant": "acme", "task": "t-1"}
COLUMNS = "explicit_success, explicit_at, implicit_success, last_ended_at, frozen"


def request(day: float, success: bool = True) -> dict[str, Any]:
    at = BEGIN + day * DAY
    return outcome(at, success=success, started_at=None, **TASK)


def word(day: float, success: bool) -> dict[str, Any]:
    at = BEGIN + day * DAY
    return outcome(
        at, success=success, explicit=True, started_at=None, ended_at=None, request=None, **TASK
    )


async def result(sender: Sender) -> tuple[Any, ...]:
    return (await sender.rows("task", "explicit_success, implicit_success, frozen"))[0]


async def test_a_word_after_the_freeze_is_kept_and_does_not_count(sender: Sender) -> None:
    await sender.send(batch(request(0), word(1, False)))
    await sender.send(batch(word(8, True), seq=2))
    assert await result(sender) == (False, True, True)
    assert await sender.count("outcome") == 3


async def test_a_request_that_comes_later_brings_it_into_force(sender: Sender) -> None:
    await sender.send(batch(word(8, True), word(1, False), request(0)))
    await sender.send(batch(request(2, success=False), seq=2))
    assert await result(sender) == (True, False, False)


async def test_a_word_alone_counts_until_the_request_is_known(sender: Sender) -> None:
    await sender.send(batch(word(8, True)))
    assert await result(sender) == (True, None, False)
    await sender.send(batch(request(0, success=False), seq=2))
    assert await result(sender) == (None, False, True)


# A few days, because each becomes a partition.
days = st.sampled_from([0.0, 0.1, 6.95, 7.0, 7.05, 7.15, 14.0, 14.1])
said = st.builds(request, days, st.booleans()) | st.builds(word, days, st.booleans())


def expected(events: list[dict[str, Any]]) -> tuple[Any, ...]:
    """The rule of design 4.7, straight from all that was said."""

    def ordered(explicit: bool) -> list[tuple[datetime, int, bool]]:
        return sorted(
            (datetime.fromisoformat(e["occurred_at"]), uuid.UUID(e["id"]).int, e["success"])
            for e in events
            if bool(e.get("explicit")) is explicit
        )

    ends, words = ordered(False), ordered(True)
    last = ends[-1] if ends else None
    counting = [w for w in words if last is None or w[0] <= last[0] + 7 * DAY]
    best = counting[-1] if counting else None
    return (
        best and best[2],
        best and best[0],
        last and last[2],
        last and last[0],
        len(counting) < len(words),
    )


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("quiet")
def test_any_order_of_arrival_freezes_a_task_alike() -> None:
    @hypothesis_settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(said, min_size=1, max_size=8), st.randoms(use_true_random=False))
    def check(events: list[dict[str, Any]], chance: random.Random) -> None:
        sender = new_sender()

        async def run() -> list[tuple[Any, ...]]:
            try:
                for one in rebatched(events, chance):
                    await sender.send(one)
                return await sender.rows("task", COLUMNS)
            finally:
                await close_pool()

        folded = async_to_sync(run)()
        assert folded == [expected(events)]
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE task SET explicit_at = NULL, explicit_success = NULL, explicit_id = NULL,"
                " frozen = false WHERE gateway_id = %s",
                [sender.gateway_id],
            )
        hour = datetime.fromisoformat(events[0]["occurred_at"])
        start = hour.replace(minute=0, second=0, microsecond=0)
        _tasks(connection.connection, start, BEGIN - DAY)
        assert async_to_sync(sender.rows)("task", COLUMNS) == folded

    check()
