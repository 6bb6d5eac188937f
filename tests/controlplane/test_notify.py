"""A commit wakes readers in any process; what is rolled back wakes nobody; hints coalesce."""

import asyncio

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.db import transaction

from controlplane import notify
from controlplane.models.pool import conninfo
from controlplane.notify import Hub, Wakeups, desired_changed, observed_changed


async def awake(wakeups: Wakeups) -> None:
    """Take the wake-up that every new LISTEN gives, so that the next one is a notification's."""
    assert await wakeups.wait(5)


def commit_change() -> None:
    with transaction.atomic():
        desired_changed()


async def test_a_commit_wakes_the_readers_of_its_topic_only(listening: Hub) -> None:
    async with listening.subscribe("desired") as desired, listening.subscribe("observed") as other:
        await awake(desired)
        await awake(other)
        await sync_to_async(commit_change)()
        assert await desired.wait(5)
        assert not await other.wait(0.05)


async def test_a_wake_up_during_work_is_not_lost(listening: Hub) -> None:
    async with listening.subscribe("desired") as wakeups:
        await awake(wakeups)
        await sync_to_async(commit_change)()
        await sync_to_async(commit_change)()
        assert await wakeups.wait(5)


async def test_readers_are_woken_after_the_connection_was_lost(listening: Hub) -> None:
    async with listening.subscribe("observed") as wakeups:
        await awake(wakeups)
        assert listening.listening
        async with await psycopg.AsyncConnection.connect(conninfo(), autocommit=True) as admin:
            await admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND query LIKE 'LISTEN%'"
            )
        # At the loss, so that it is known at once; and when it listens again, for what was missed.
        assert await wakeups.wait(5)
        assert not listening.listening
        assert await wakeups.wait(5)
        assert listening.listening
        await observed_changed()
        assert await wakeups.wait(5)


async def test_many_hints_leave_the_process_as_few(hot_pool: None) -> None:
    async with await psycopg.AsyncConnection.connect(conninfo(), autocommit=True) as reader:
        await reader.execute(f"LISTEN {notify.CHANNEL}")
        for _ in range(50):
            await observed_changed()
            await asyncio.sleep(0)
        heard = [n.payload async for n in reader.notifies(timeout=0.5)]
    assert 1 <= len(heard) <= 2
    assert set(heard) == {"observed"}


@pytest.mark.django_db(transaction=True)
def test_a_hint_outside_a_transaction_is_refused() -> None:
    with pytest.raises(RuntimeError, match="inside the transaction"):
        desired_changed()


async def test_leaving_takes_the_reader_out() -> None:
    own = Hub()
    async with own.subscribe("desired"):
        assert own.count("desired") == 1
    assert own.count("desired") == 0
