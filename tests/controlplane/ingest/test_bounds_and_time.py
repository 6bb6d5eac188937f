"""Whoever makes up names, and whatever the clocks say, has a defined and visible result."""

import asyncio
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from controlplane.ingest.read import read_batch
from controlplane.models import registry
from controlplane.wire.events import AnyEvent
from tests.controlplane.ingest.batches import (
    attempt,
    batch,
    budget,
    encoded,
    now,
    outcome,
    refusal,
    transition,
)
from tests.controlplane.ingest.conftest import Sender


async def test_names_beyond_the_bound_are_counted_as_one_circuit(
    make_sender: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "MOST_CIRCUITS", 5)
    sender, other = await make_sender(), await make_sender()
    events = [attempt(model=f"made-up-{n}") for n in range(8)]
    events.append(transition(1, "Open", model="made-up-7"))
    assert (await sender.send(batch(*events)))["stored"] == 9
    counted = await sender.query(
        "SELECT c.provider, r.attempts FROM rollup_minute r JOIN circuit c ON c.id = r.circuit_id"
        " WHERE r.gateway_id = %s ORDER BY 1, c.model",
        [sender.gateway_id],
    )
    assert sorted(counted) == [("(other)", 3)] + [("openai", 1)] * 5
    assert await sender.count("transition") == 1
    assert await sender.count("circuit_state") == 0
    # Known ones stay known, and another gateway has its own five.
    registry.forget_circuits()
    await sender.send(batch(attempt(model="made-up-1"), attempt(model="made-up-6"), seq=2))
    assert await sender.count("gateway_circuit") == 5
    await other.send(batch(attempt(model="made-up-7")))
    assert await other.count("gateway_circuit") == 1


async def test_a_name_that_found_no_place_is_asked_for_again(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention gives places back; a process that remembers the fold must not fold for ever."""
    monkeypatch.setattr(registry, "MOST_CIRCUITS", 1)
    await sender.send(batch(attempt(model="first"), attempt(model="later")))
    await sender.query("DELETE FROM gateway_circuit WHERE gateway_id = %s", [sender.gateway_id])
    await sender.send(batch(attempt(model="later"), seq=2))
    monkeypatch.setattr(registry, "_FOLDED_FOR", timedelta(microseconds=1))
    await sender.send(batch(attempt(model="later"), seq=3))
    counted = await sender.query(
        "SELECT c.model, count(*) FROM attempt a JOIN circuit c ON c.id = a.circuit_id"
        " WHERE a.gateway_id = %s GROUP BY 1 ORDER BY 1",
        [sender.gateway_id],
    )
    assert counted == [("(other)", 2), ("first", 1), ("later", 1)]


async def test_batches_at_once_do_not_pass_the_bound_together(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "MOST_CIRCUITS", 5)
    batches = [
        batch(*(attempt(model=f"m-{seq}-{n}") for n in range(3)), seq=seq) for seq in range(1, 9)
    ]
    answers = await asyncio.gather(*(sender.post(b) for b in batches))
    assert {answer.status for answer in answers} == {200}
    assert await sender.count("gateway_circuit") == 5
    assert await sender.count("attempt") == 24


async def test_a_batch_of_days_ago_is_stored_as_sent_counted_as_late_and_marks_its_hours(
    sender: Sender,
) -> None:
    then = now() - timedelta(days=3)
    sent = batch(attempt(then), outcome(then + timedelta(seconds=9)), transition(1, "Open", then))
    assert (await sender.send(sent))["stored"] == 3
    assert await sender.rows("receipt", "late, skewed") == [(3, 0)]
    assert await sender.rows("attempt", "occurred_at") == [(then,)]
    marks = await sender.query(
        "SELECT grain FROM rollup_dirty WHERE at <= %s AND at > %s",
        [then, then - timedelta(hours=1)],
    )
    assert {grain for (grain,) in marks} == {"minute", "hour"}


async def test_a_sender_whose_clock_runs_ahead_is_not_alive_in_the_future(sender: Sender) -> None:
    ahead = now() + timedelta(hours=3)
    await sender.send(batch(attempt(ahead), transition(1, "Open", ahead)))
    assert await sender.rows("receipt", "late, skewed") == [(0, 2)]
    ((seen,),) = await sender.rows("instance", "last_seen_at")
    assert seen <= now()
    assert await sender.rows("circuit_state", "state, since") == [("Open", ahead)]


async def test_two_living_boots_in_one_slot_keep_their_own_numbers(sender: Sender) -> None:
    one, two = uuid.UUID(int=21), uuid.UUID(int=22)
    for seq in (1, 2):
        for boot in (one, two):
            receipt = await sender.send(batch(attempt(), seq=seq, boot=boot))
            assert receipt["contiguous"] == seq
    rows = await sender.rows("instance", "boot_id, contiguous_seq, replaced_at IS NULL", "boot_id")
    assert [(row[0], row[1]) for row in rows] == [(one, 2), (two, 2)]
    assert sum(row[2] for row in rows) == 1


async def test_a_gateway_of_an_older_or_newer_version_is_understood(sender: Sender) -> None:
    plain = attempt()
    for optional in ("tokens", "ended_ms", "status", "route", "tenant", "served"):
        del plain[optional]
    newer = attempt(mood="good", tokens={"input": 1, "output": 1, "audio": 7})
    assert (await sender.send(batch(plain, newer, colour="blue")))["stored"] == 2
    rows = await sender.rows("attempt", "tenant, input_tokens, ended_ms", "input_tokens")
    assert rows == [("acme", 1, 800), ("default", None, None)]


async def test_one_gateways_unstorable_batch_costs_no_other_its_place(
    make_sender: Callable[[], Any],
) -> None:
    senders = [await make_sender() for _ in range(4)]
    known = attempt()
    await senders[0].send(batch(known))
    sent = [s.post(batch(attempt(), seq=9)) for s in senders[1:]]
    bad = senders[0].post(batch(known, attempt(), seq=2))
    broken = senders[0].post(b"{")
    answers = await asyncio.gather(bad, broken, *sent)
    assert [answer.status for answer in answers] == [200, 400, 200, 200, 200]
    assert (answers[0].json()["stored"], answers[0].json()["duplicates"]) == (1, 1)
    assert all(answer.json()["stored"] == 1 for answer in answers[2:])


FAR = (timezone(timedelta(hours=23, minutes=59)), timezone(-timedelta(hours=16)))


def told_in(zone: timezone) -> list[dict[str, Any]]:
    """One event of each kind, with every time that its kind has, told in that zone."""
    at = (now() - timedelta(seconds=30)).astimezone(zone)
    times = {"started_at": at.isoformat(), "ended_at": at.isoformat()}
    opened = transition(1, "Open", at, next_probe_at=at.isoformat())
    filled = budget(at, scope="system/", balance=3, window_s=60)
    return [attempt(at), refusal(at), outcome(at, **times), opened, filled]


@pytest.mark.parametrize("zone", FAR, ids=str)
async def test_a_time_of_a_far_zone_is_stored(sender: Sender, zone: timezone) -> None:
    """RFC 3339 has offsets of up to 23:59; Postgres reads none of 16 hours or more."""
    events = told_in(zone)
    said = await sender.send(batch(*events, sent_at=now().astimezone(zone).isoformat()))
    assert (said["stored"], said.get("unread")) == (5, None)
    ((begun,),) = await sender.rows("attempt", "occurred_at")
    assert begun == datetime.fromisoformat(events[0]["occurred_at"])
    # Alone, when nothing but the batch's own times says anything.
    empty = batch(seq=2, sent_at=now().astimezone(zone).isoformat())
    assert (await sender.send(empty))["contiguous"] == 2


def test_every_time_of_an_event_is_read_as_utc() -> None:
    body = encoded(batch(*told_in(FAR[0]), sent_at=now().astimezone(FAR[0]).isoformat()))
    read = read_batch(body, now=now(), retention=timedelta(days=35))
    times = [read.sent_at, read.newest, read.oldest]
    assert {type(event) for event in read.events.values()} == set(AnyEvent.__args__)
    for event in read.events.values():
        held = msgspec.structs.asdict(event)
        wanted = {f.name for f in msgspec.structs.fields(event) if "datetime" in str(f.type)}
        assert wanted == {name for name, value in held.items() if isinstance(value, datetime)}
        times += [held[name] for name in wanted]
    assert all(at.tzinfo is UTC for at in times)


def test_what_is_not_known_of_usage_is_so_in_every_zone() -> None:
    """The absurd count is taken out whatever the zone of its event."""
    at = now().astimezone(timezone(timedelta(hours=1)))
    body = encoded(batch(attempt(at, tokens={"input": 2**53})))
    (event,) = read_batch(body, now=now(), retention=timedelta(days=35)).events.values()
    assert event.tokens is not None
    assert (event.tokens.input, event.tokens.invalid) == (None, True)
