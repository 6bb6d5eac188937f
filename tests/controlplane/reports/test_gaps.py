"""A hole in the numbers of batches is late at first, lost after its grace, and never smoothed."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection

from controlplane.reports import telemetry, wall
from tests.controlplane.ingest.batches import attempt, batch, now
from tests.controlplane.ingest.conftest import Sender


async def test_missing_batches_and_unreadable_events_are_counted(
    make_sender: Callable[[], Any],
) -> None:
    whole, holed = await make_sender(), await make_sender()
    await whole.send(batch(attempt()))
    for seq in (1, 2, 5, 7):
        await holed.send(batch(attempt(), {"kind": "nonsense"}, seq=seq))
    names = dict(await whole.query("SELECT name, id FROM gateway"))
    assert await _lost(names, holed) == [(0, 3, 4, 0)]
    assert await _lost(names, whole) == []
    await _pass_grace()
    assert await _lost(names, holed) == [(3, 0, 4, 0)]
    # One comes after all: what is left of its gap is as old as the gap.
    await holed.send(batch(attempt(), seq=4))
    await holed.send(batch(attempt(), seq=10))
    assert await _lost(names, holed) == [(2, 2, 4, 0)]


async def _pass_grace() -> None:
    def age() -> None:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE batch_gap SET since = since - interval '2 minutes'")

    await sync_to_async(age)()


async def _lost(names: dict[str, int], of: Sender) -> list[tuple[int, int, int, int]]:
    found = await sync_to_async(telemetry.lost_telemetry)(now() - timedelta(hours=1))
    return [
        (x.batches, x.awaited, x.unread, x.dropped)
        for x in found
        if names[x.gateway] == of.gateway_id
    ]


async def test_a_batch_that_another_overtakes_is_late_and_never_lost(sender: Sender) -> None:
    names = dict(await sender.query("SELECT name, id FROM gateway"))
    for seq in (1, 4, 2):
        await sender.send(batch(attempt(), seq=seq))
    assert await _lost(names, sender) == [(0, 1, 0, 0)]
    present = await sync_to_async(wall.read_present)()
    assert [row.lost_batches for row in present.instances] == [0]
    await _pass_grace()
    present = await sync_to_async(wall.read_present)()
    assert [row.lost_batches for row in present.instances] == [1]
    await sender.send(batch(attempt(), seq=3))
    assert await _lost(names, sender) == []


async def test_what_a_spool_that_came_days_late_lacks_is_told(sender: Sender) -> None:
    names = dict(await sender.query("SELECT name, id FROM gateway"))
    old = now() - timedelta(days=3)
    for seq in (1, 4):
        await sender.send(batch(attempt(old), seq=seq, sent_at=old.isoformat()))
    # And one whose every event is too old to be stored.
    older, boot = now() - timedelta(days=40), uuid.uuid4()
    late = batch(attempt(older), sent_at=older.isoformat(), boot=boot, slot="host-b/0")
    await sender.send(late)
    await sender.query("UPDATE receipt SET late = 0")  # the hole and the letter speak by themselves
    assert sorted(await _lost(names, sender)) == [(0, 0, 1, 0), (0, 2, 0, 0)]
    await _pass_grace()
    assert sorted(await _lost(names, sender)) == [(0, 0, 1, 0), (2, 0, 0, 0)]


async def test_a_hole_is_counted_by_itself_when_receipts_are_gone(sender: Sender) -> None:
    names = dict(await sender.query("SELECT name, id FROM gateway"))
    for seq in (2, 3, 4, 5):
        await sender.send(batch(attempt(), seq=seq))
    await sender.query("DELETE FROM receipt")
    await _pass_grace()
    assert await _lost(names, sender) == [(1, 0, 0, 0)]
