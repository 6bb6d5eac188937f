"""A gateway that claims what it was never told, with a valid token (design 5.1)."""

import itertools
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import sync_to_async

from controlplane.models import AuditEntry, Revision
from controlplane.reports import background
from controlplane.reports.background_conditions import faults
from tests.asgi import Answer, call
from tests.controlplane.ingest.batches import attempt, batch
from tests.controlplane.ingest.conftest import Sender, make_sender, sender
from tests.controlplane.test_status import report
from tests.controlplane.test_watch import token

__all__ = ["make_sender", "sender", "token"]
AT = "2026-11-30T03:10:00Z"


@sync_to_async
def epoch() -> str:
    return str(Revision.objects.get(id=1).epoch)


@sync_to_async
def minted() -> int:
    return AuditEntry.objects.filter(action="new_epoch").count()


async def later(one: Sender, by: timedelta) -> None:
    """As if its mints and refusals were so much older."""
    await one.query(
        "UPDATE epoch_claim SET mints = ARRAY(SELECT at - %s FROM unnest(mints) AS at),"
        " refused_at = refused_at - %s",
        [by, by],
    )


async def test_a_lie_mints_once_and_is_then_refused_and_costs_nobody_else(
    make_sender: Callable[[], Any],
) -> None:
    liar, honest = await make_sender(), await make_sender()
    seq = itertools.count(1)

    async def lie() -> Answer:
        content = batch(attempt(), seq=next(seq), epoch=await epoch(), acknowledged=10_000)
        return await liar.post(content)

    assert (await lie()).status == 200
    assert await minted() == 1
    for _ in range(3):
        answer = await lie()
        assert (answer.status, answer.json()["code"]) == (429, "epoch_claimed")
        assert 0 < int(answer.headers["retry-after"]) <= 600
    assert await minted() == 1
    assert (await honest.send(batch(attempt(), epoch=await epoch())))["stored"] == 1
    # Its other instance claims nothing, and is stored.
    other = batch(attempt(), boot=UUID(int=9), slot="host-b/0", epoch=await epoch())
    assert (await liar.send(other))["stored"] == 1
    (found,) = [f for f in await sync_to_async(lambda: faults(background.read()))()
                if f.type == "EpochStable"]  # fmt: skip
    assert "1 epochs minted within 24 h and 3 claims refused" in found.message
    # Ten minutes later its word counts again, and then has to wait for twice as long.
    await later(liar, timedelta(minutes=10))
    assert (await lie()).status == 200
    answer = await lie()
    assert answer.status == 429
    assert 600 < int(answer.headers["retry-after"]) <= 1200
    assert await minted() == 2


async def test_a_true_restore_is_found_by_another_gateway_meanwhile(
    make_sender: Callable[[], Any],
) -> None:
    liar, honest = await make_sender(), await make_sender()
    await liar.post(batch(attempt(), epoch=await epoch(), acknowledged=10_000))
    now = await epoch()
    await honest.send(batch(attempt(), epoch=now))
    await honest.send(batch(attempt(), seq=2, epoch=now, acknowledged=1))
    # What a restore leaves: the second batch and its receipt are gone.
    await honest.query("DELETE FROM receipt WHERE seq = 2")
    await honest.query("UPDATE instance SET highest_seq = 1, contiguous_seq = 1")
    receipt = await honest.send(batch(attempt(), seq=3, epoch=now, acknowledged=2))
    assert receipt["epoch"] != now
    assert await minted() == 2


@pytest.mark.parametrize("field", ["acknowledged", "generation"])
async def test_what_nobody_was_ever_told_is_422(sender: Sender, field: str) -> None:
    before = await epoch()
    answer = await sender.post(batch(attempt(), epoch=before, **{field: 2**53}))
    assert answer.status == 422
    assert answer.json()["errors"][0]["field"] == field
    assert (await epoch(), await minted()) == (before, 0)


async def test_a_claim_by_report_or_watch_is_bounded_the_same_way(token: str) -> None:
    async def watch(generation: int) -> Answer:
        return await call(
            "GET",
            "/api/v1/gateways/eu-1/config",
            query=f"watch=1&generation={generation}&epoch={await epoch()}",
            headers={"authorization": f"Bearer {token}"},
        )

    absurd = await report(token, seq=1, spool={"acknowledged": 2**53}, epoch=await epoch())
    assert absurd.status == 422
    assert (await watch(10**17)).status == 422
    assert await minted() == 0
    assert (
        await report(token, seq=2, spool={"acknowledged": 7}, epoch=await epoch())
    ).status == 200
    assert await minted() == 1
    # The report itself is taken: what an instance enforces must not be lost for its claim.
    assert (
        await report(token, seq=3, spool={"acknowledged": 7}, epoch=await epoch())
    ).status == 200
    answer = await watch(5000)
    assert (answer.status, answer.json()["code"]) == (429, "epoch_claimed")
    assert await minted() == 1
    assert json.dumps(answer.json())
