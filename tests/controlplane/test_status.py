"""Status reports: ordered by seq, judged item by item, timed by the control plane's own clock."""

import asyncio
import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from psycopg_pool import PoolTimeout

from controlplane.actions import overrides
from controlplane.actions.actor import SYSTEM
from controlplane.api.hot import auth
from controlplane.models import (
    AuditEntry,
    BudgetState,
    CircuitState,
    Delivery,
    GatewayConfig,
    Instance,
    LocalOverride,
    registry,
)
from controlplane.notify import Hub
from controlplane.reports.fleet import verdict
from controlplane.watch import status
from tests import builders
from tests.asgi import Answer, call
from tests.controlplane.test_watch import force, make_fleet

AT = "2026-11-30T03:10:00Z"
BOOT = "0193f1d2-0000-7000-8000-000000000001"
GPT = {"provider": "openai", "model": "gpt-4o", "state": "Closed", "number": 1, "since": AT}


@pytest.fixture
async def token(hot_pool: None) -> str:
    return await sync_to_async(make_fleet)()


async def report(token: str, boot: str = BOOT, gateway: str = "eu-1", **fields: Any) -> Answer:
    body = {"slot": "host-a/0", "seq": 1, "sent_at": AT, "started_at": AT, "version": "0.1.0"}
    return await call(
        "PATCH",
        f"/api/v1/gateways/{gateway}/instances/{boot}/status",
        body=json.dumps(body | fields).encode(),
        headers={"authorization": f"Bearer {token}"},
    )


async def snapshot(token: str) -> Any:
    headers = {"authorization": f"Bearer {token}"}
    return (await call("GET", "/api/v1/gateways/eu-1/config", headers=headers)).json()


def applied(config: Any, **fields: Any) -> dict[str, Any]:
    return {
        "epoch": config["epoch"],
        "received_generation": config["generation"],
        "applied_generation": config["generation"],
        "applied_hash": config["hash"],
        "applied_at": AT,
        "config_source": "Stream",
    } | fields


def item(row: Any, verdict: str = "Applied", **fields: Any) -> dict[str, Any]:
    named = {"kind": "Override", "name": row.name, "uid": str(row.uid)}
    return named | {"generation": row.generation, "verdict": verdict} | fields


def deliveries() -> list[Delivery]:
    return list(Delivery.objects.order_by("id"))


def one_instance() -> Instance:
    return Instance.objects.get()


async def test_the_first_report_registers_the_instance(token: str) -> None:
    answer = await report(token, circuits=[GPT], budgets=[{"scope": "system/", "balance": 40}])
    assert answer.status == 200
    config = await snapshot(token)
    receipt = answer.json()
    assert (receipt["generation"], receipt["hash"]) == (config["generation"], config["hash"])
    row = await sync_to_async(one_instance)()
    assert (str(row.boot_id), row.slot, row.status_seq) == (BOOT, "host-a/0", 1)
    state = await CircuitState.objects.select_related("circuit").aget()
    assert (state.circuit.model, state.state) == ("gpt-4o", "Closed")
    assert (await BudgetState.objects.aget()).balance == 40


async def test_a_breaker_that_is_not_reported_any_more_leaves(token: str) -> None:
    other = GPT | {"model": "o5"}
    await report(token, seq=1, circuits=[GPT, other])
    await report(token, seq=2, circuits=[])
    assert await CircuitState.objects.acount() == 2
    sent = {"sent_at": "2026-11-30T03:11:00Z"}
    young = GPT | {"model": "young", "since": "2026-11-30T03:12:00Z"}
    await report(token, seq=3, circuits=[GPT, other, young], **sent)
    await report(token, seq=4, circuits=[GPT], **sent)
    left = [s.circuit.model async for s in CircuitState.objects.select_related("circuit")]
    assert sorted(left) == ["gpt-4o", "young"]


LOCAL = {
    "uid": "local-1",
    "mode": "ForceOpen",
    "provider": "openai",
    "reason": "control plane is down",
    "made_by": "root (sudo ann)",
    "created_at": AT,
    "expires_at": "2026-11-30T04:10:00Z",
}


def local_audit() -> list[tuple[str, str, str]]:
    rows = AuditEntry.objects.filter(object_kind="LocalOverride").order_by("id")
    return [(row.action, row.actor, row.reason) for row in rows]


async def test_what_was_done_on_the_host_is_shown_and_audited_once(token: str) -> None:
    await report(token, seq=1, local_overrides=[LOCAL])
    await report(token, seq=2, local_overrides=[LOCAL])
    # The sibling on the same host says the same.
    await report(token, boot=BOOT[:-1] + "2", slot="host-a/1", local_overrides=[LOCAL])
    row = await LocalOverride.objects.aget()
    assert (row.host, row.mode, row.provider, row.ended_at) == (
        "host-a",
        "ForceOpen",
        "openai",
        None,
    )
    forced = ("force_local", "root (sudo ann) on host-a", "control plane is down")
    assert await sync_to_async(local_audit)() == [forced]
    ended = LOCAL | {"ended_at": "2026-11-30T03:40:00Z", "end_cause": "Released"}
    for seq in (3, 4):
        await report(token, seq=seq, local_overrides=[ended])
    assert await sync_to_async(local_audit)() == [forced, ("end_local", *forced[1:])]
    assert (await LocalOverride.objects.aget()).end_cause == "Released"


async def test_one_that_ended_unheard_is_audited_whole(token: str) -> None:
    ended = LOCAL | {"ended_at": "2026-11-30T03:40:00Z", "end_cause": "Expired"}
    await report(token, seq=1, local_overrides=[ended])
    assert [action for action, _, _ in await sync_to_async(local_audit)()] == [
        "force_local",
        "end_local",
    ]


async def test_a_refused_snapshot_is_kept_with_its_reason(token: str) -> None:
    await report(token, refused_generation=7, refused_reason="it shrank")
    row = await sync_to_async(one_instance)()
    assert (row.refused_generation, row.refused_reason) == (7, "it shrank")


async def test_what_is_enforced_and_not_on_the_disk_is_said(token: str) -> None:
    config = await snapshot(token)
    reasons = []
    for seq, saved in enumerate((config["generation"] - 1, config["generation"]), start=1):
        await report(token, seq=seq, **applied(config, checkpointed_generation=saved))
        now = datetime.now(UTC)
        row, held = (
            await sync_to_async(one_instance)(),
            await GatewayConfig.objects.aget(gateway__name="eu-1"),
        )
        reasons.append(verdict(row, held, config["epoch"], now)[:2])
    assert reasons == [("InSync", "NotOnDisk"), ("InSync", "Enforced")]


async def test_a_lower_seq_changes_nothing(token: str) -> None:
    await report(token, seq=5, circuits=[GPT | {"state": "Open", "number": 2}])
    for seq in (5, 4):
        answer = await report(token, seq=seq, version="older", circuits=[GPT | {"number": 9}])
        assert answer.status == 200
    row = await sync_to_async(one_instance)()
    assert (row.version, row.status_seq) == ("0.1.0", 5)
    assert (await CircuitState.objects.aget()).state == "Open"


async def test_concurrent_reports_of_a_boot_end_with_the_newest(token: str) -> None:
    answers = await asyncio.gather(
        *(report(token, seq=n, version=f"v{n}", circuits=[GPT]) for n in range(1, 9))
    )
    assert {answer.status for answer in answers} == {200}
    assert (await sync_to_async(one_instance)()).version == "v8"


async def test_enforced_is_timed_by_the_first_report_that_says_so(token: str) -> None:
    row = await force()
    config = await snapshot(token)
    received = {"received_generation": config["generation"], "epoch": config["epoch"]}
    await report(token, seq=1, **received)
    delivered = (await sync_to_async(deliveries)())[0]
    assert (delivered.verdict, delivered.acknowledged_at) == ("", None)
    await report(token, seq=2, **applied(config), items=[item(row, applied_at=AT)])
    first = (await sync_to_async(deliveries)())[0]
    assert (first.verdict, first.delivered_at) == ("Applied", delivered.delivered_at)
    assert first.acknowledged_at is not None
    assert row.created_at < first.delivered_at <= first.acknowledged_at
    later = item(row, applied_at=AT, first_effect_at=AT)
    await report(token, seq=3, **applied(config), items=[later])
    (second,) = await sync_to_async(deliveries)()
    assert second.acknowledged_at == first.acknowledged_at
    assert second.first_effect_at is not None
    kept = (await sync_to_async(one_instance)()).items
    assert kept[0]["acknowledged_at"] == first.acknowledged_at.isoformat()


async def test_a_rejected_item_keeps_its_reason_and_its_neighbour_applies(token: str) -> None:
    rows = [await force(), await force(model="gpt-4o")]
    why = {"reason": "LocalFloorViolated", "message": "the last healthy target", "field_path": "/"}
    items = [item(rows[0], "Rejected", **why), item(rows[1])]
    await report(token, **applied(await snapshot(token)), items=items)
    found = {row.name: row for row in await sync_to_async(deliveries)()}
    first = found[rows[0].name]
    assert (first.verdict, first.reason, first.message) == ("Rejected", *list(why.values())[:2])
    assert found[rows[1].name].verdict == "Applied"


async def test_what_a_report_names_twice_is_what_it_says_last(token: str) -> None:
    row = await force()
    twice = [item(row, "Rejected", reason="X"), item(row)]
    ended = LOCAL | {"ended_at": "2026-11-30T03:40:00Z", "end_cause": "Released"}
    lists = {
        "items": twice,
        "circuits": [GPT, GPT],
        "budgets": [{"scope": "system/", "balance": 4}] * 2,
        "local_overrides": [LOCAL, ended],
    }
    answer = await report(token, **applied(await snapshot(token)), **lists)
    assert answer.status == 200, answer.body
    (delivery,) = await sync_to_async(deliveries)()
    assert delivery.verdict == "Applied"
    kept = (await sync_to_async(one_instance)()).items
    assert [one["verdict"] for one in kept] == ["Applied"]
    assert (await LocalOverride.objects.aget()).end_cause == "Released"
    said = [action for action, _, _ in await sync_to_async(local_audit)()]
    assert said == ["force_local", "end_local"]


async def test_a_changed_verdict_has_its_own_time(token: str) -> None:
    row = await force()
    config = await snapshot(token)
    await report(token, seq=1, **applied(config), items=[item(row, "Rejected", reason="X")])
    (before,) = await sync_to_async(deliveries)()
    await report(token, seq=2, **applied(config), items=[item(row)])
    (after,) = await sync_to_async(deliveries)()
    assert (after.verdict, after.reason) == ("Applied", "")
    assert before.acknowledged_at is not None
    assert after.acknowledged_at is not None
    assert after.acknowledged_at > before.acknowledged_at


async def test_an_extension_is_followed_on_its_own(token: str) -> None:
    row = await force()
    await report(token, seq=1, **applied(await snapshot(token)), items=[item(row)])
    extend = sync_to_async(overrides.extend)
    row = await extend(
        actor=SYSTEM, name=row.name, expires_in=timedelta(hours=2), now=builders.now()
    )
    await report(token, seq=2, **applied(await snapshot(token)), items=[item(row)])
    first, second = await sync_to_async(deliveries)()
    assert (first.generation, second.generation) == (1, 2)
    assert first.lifted_at is not None
    assert second.lifted_at is None


async def test_a_released_override_is_lifted_when_the_instance_says_so(token: str) -> None:
    row = await force()
    await report(token, seq=1, **applied(await snapshot(token)), items=[item(row)])
    release = sync_to_async(overrides.release)
    await release(actor=SYSTEM, name=row.name, now=builders.now())
    await report(token, seq=2, **applied(await snapshot(token)))
    (kept,) = await sync_to_async(deliveries)()
    assert (kept.verdict, kept.lifted_at is not None) == ("Applied", True)


async def test_a_new_boot_replaces_the_old_and_goodbye_takes_off_the_wall(token: str) -> None:
    await report(token)
    new = str(uuid.uuid4())
    await report(token, boot=new)
    old_row = await Instance.objects.aget(boot_id=BOOT)
    assert old_row.replaced_at is not None
    assert (await report(token, boot=new, seq=2)).json()["instances"] == 1
    await report(token, boot=new, seq=3, goodbye=True)
    assert (await Instance.objects.aget(boot_id=new)).goodbye_at is not None


async def test_live_instances_are_counted(token: str) -> None:
    await report(token)
    answer = await report(token, boot=str(uuid.uuid4()), slot="host-a/1")
    # Counted before this report is seen as live would be 1; the next word says 2.
    answer = await report(token, boot=str(uuid.uuid4()), slot="host-a/2")
    assert answer.json()["instances"] == 3


async def test_a_heartbeat_wakes_nobody_and_a_change_does(listening: Hub) -> None:
    token = await sync_to_async(make_fleet)()
    async with listening.subscribe("observed") as wakeups:
        await wakeups.wait(0.3)  # a new LISTEN wakes everybody once
        await report(token, seq=1, circuits=[GPT])
        assert await wakeups.wait(5)
        await report(token, seq=2, circuits=[GPT])
        assert not await wakeups.wait(0.4)
        await report(token, seq=3, circuits=[GPT | {"state": "Open", "number": 2}])
        assert await wakeups.wait(5)


def current_boots() -> dict[str, str]:
    rows = Instance.objects.filter(replaced_at=None, goodbye_at=None)
    return {row.slot: str(row.boot_id) for row in rows}


async def test_a_fleets_first_reports_are_registered_together(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered: list[int] = []
    register = registry._register

    async def counted(conn: Any, boots: Any, now: Any) -> None:
        registered.append(len(boots))
        await register(conn, boots, now)

    monkeypatch.setattr(registry, "_register", counted)
    boots = {f"host-a/{n}": str(uuid.UUID(int=n + 1)) for n in range(60)}
    answers = await asyncio.gather(
        *(report(token, boot=boot, slot=slot) for slot, boot in boots.items())
    )
    assert {answer.status for answer in answers} == {200}
    assert await sync_to_async(current_boots)() == boots
    assert sum(registered) == 60
    # The first goes alone, the others while it is committed: not one transaction each.
    assert len(registered) < 20
    # A new boot in a slot takes it, in a group with another's first word.
    again = [("host-a/0", str(uuid.UUID(int=100))), ("host-b/0", str(uuid.UUID(int=101)))]
    await asyncio.gather(*(report(token, boot=boot, slot=slot) for slot, boot in again))
    assert await sync_to_async(current_boots)() == boots | dict(again)


async def test_callers_with_one_token_share_its_look_up(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []
    look_up = auth._look_up

    async def counted(digest: bytes) -> Any:
        asked.append(digest)
        return await look_up(digest)

    monkeypatch.setattr(auth, "_look_up", counted)
    auth.forget_tokens()
    answers = await asyncio.gather(*(report(token, boot=str(uuid.uuid4())) for _ in range(30)))
    assert {answer.status for answer in answers} == {200}
    assert len(asked) == 1


BAD: list[tuple[dict[str, Any], str]] = [
    ({"seq": 0}, "seq"),
    ({"seq": "1"}, "seq"),
    ({"slot": ""}, "slot"),
    ({"slot": "a\x00b"}, "slot"),
    ({"slot": "x" * 201}, "slot"),
    ({"config_source": "Guess"}, "config_source"),
    ({"started_at": "0001-01-01T00:00:00Z"}, "started_at"),
    ({"sent_at": "2026-11-30T03:10:00"}, "sent_at"),
    ({"circuits": [GPT | {"state": "Ajar"}]}, "circuits[0].state"),
    ({"circuits": [GPT | {"since": "9999-12-31T23:59:59-14:00"}]}, "circuits[0].since"),
    ({"budgets": [{"scope": "system/", "balance": 10**30}]}, "budgets[0].balance"),
    ({"items": "none"}, "items"),
    ({"applied_at": "1999-12-31T23:59:59Z"}, "applied_at"),
    ({"spool": {"oldest_at": "2200-01-01T00:00:01Z"}}, "spool.oldest_at"),
    (
        {"circuits": [GPT, GPT | {"next_probe_at": "0001-01-01T00:00:00Z"}]},
        "circuits[1].next_probe_at",
    ),
]


async def test_a_field_that_cannot_be_read_is_named(token: str) -> None:
    for fields, field in BAD:
        answer = await report(token, **fields)
        assert (answer.status, answer.json()["code"]) == (422, "invalid_status"), fields
        assert answer.json()["errors"][0]["field"] == field


async def test_a_body_that_cannot_be_read_is_a_422(token: str) -> None:
    path = f"/api/v1/gateways/eu-1/instances/{BOOT}/status"
    headers = {"authorization": f"Bearer {token}"}
    deep = b"[" * 100_000
    for body in (b"", b"{", b"[]", b'{"slot": "\xff"}', b'{"slot": "\\ud800"}', deep):
        assert (await call("PATCH", path, body=body, headers=headers)).status == 422


async def test_unknown_fields_are_ignored(token: str) -> None:
    assert (await report(token, colour="blue")).status == 200


async def test_who_may_not_report(token: str) -> None:
    assert (await report(token, gateway="us-1")).status == 403
    assert (await report("sgg_wrong")).status == 401
    assert (await report(token, boot="not-a-uuid")).status == 422
    assert not await Instance.objects.aexists()


async def test_without_postgres_the_answer_is_busy(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away() -> None:
        raise PoolTimeout("no connection")

    assert (await report(token)).status == 200
    monkeypatch.setattr("controlplane.watch.status.pool", away)
    answer = await report(token, seq=2)
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")


async def test_a_group_without_postgres_is_answered_together(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    async def away() -> None:
        nonlocal tries
        tries += 1
        await asyncio.sleep(0.05)
        raise PoolTimeout("no connection")

    assert (await report(token)).status == 200
    monkeypatch.setattr("controlplane.watch.status.pool", away)
    boots = [str(uuid.uuid4()) for _ in range(20)]
    answers = await asyncio.gather(*(report(token, boot=boot) for boot in boots))
    assert {answer.status for answer in answers} == {503}
    # The first alone, its neighbours after it: each on its own would wait for the pool 20 times.
    assert tries <= 4


async def test_a_bad_report_costs_its_neighbours_nothing(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = status.store

    async def store(conn: Any, group: Any, now: Any) -> Any:
        if any(one.report.slot == "bad" for one in group):
            await conn.execute("SELECT 1 / 0")
        return await real(conn, group, now)

    monkeypatch.setattr(status, "store", store)
    slots = [f"host/{n}" for n in range(10)] + ["bad"] + [f"host/{n}" for n in range(10, 20)]
    answers = await asyncio.gather(
        *(report(token, boot=str(uuid.uuid4()), slot=slot) for slot in slots)
    )
    assert {slot: a.status for slot, a in zip(slots, answers, strict=True)} == {
        slot: 422 if slot == "bad" else 200 for slot in slots
    }


async def test_a_report_that_waited_too_long_is_asked_to_come_again(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, hold = asyncio.Event(), asyncio.Event()
    real = status.store

    async def slow(conn: Any, group: Any, now: Any) -> Any:
        entered.set()
        await hold.wait()
        return await real(conn, group, now)

    monkeypatch.setattr(status, "store", slow)
    monkeypatch.setattr(status, "MOST_SECONDS", 0.05)
    first = asyncio.create_task(report(token))
    await entered.wait()
    others = [asyncio.create_task(report(token, boot=str(uuid.uuid4()))) for _ in range(3)]
    while len(status._writers[asyncio.get_running_loop()]._queue) < 3:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.1)
    hold.set()
    assert (await first).status == 200
    for answer in await asyncio.gather(*others):
        assert answer.status == 503
        assert 1 <= int(answer.headers["retry-after"]) <= 4
