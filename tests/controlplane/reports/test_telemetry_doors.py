"""A circuit's series and a task's trace over HTTP."""

import uuid
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from asgiref.sync import sync_to_async
from django.test import Client

from controlplane.actions import tokens
from controlplane.actions.actor import SYSTEM
from controlplane.models import Role
from tests import builders
from tests.controlplane.ingest.batches import attempt, batch, now, outcome, refusal
from tests.controlplane.ingest.conftest import Sender
from tests.controlplane.reports.test_telemetry import derive_now

MINUTE = timedelta(minutes=1)
CIRCUIT = {"provider": "openai", "model": "m-door", "region": "eu"}


def at(minute: float) -> datetime:
    begin = (now() - timedelta(hours=2)).replace(minute=0, second=0, microsecond=0)
    return begin + minute * MINUTE


def _get(path: str, query: dict[str, Any]) -> Any:
    role = query.pop("role", Role.VIEWER.value)
    name = f"r{uuid.uuid4().hex[:8]}"
    token = tokens.issue(actor=SYSTEM, name=name, role=role, now=builders.now()).token
    found = f"/api/v1{path}" + (f"?{urlencode(query)}" if query else "")
    return Client().get(found, headers={"Authorization": f"Bearer {token}"})


async def get(path: str, **query: Any) -> Any:
    return await sync_to_async(_get)(path, {k.rstrip("_"): v for k, v in query.items()})


async def test_a_circuits_series_by_step(sender: Sender) -> None:
    await sender.send(
        batch(
            attempt(at(0.1), ended_ms=1000, **CIRCUIT),
            attempt(at(0.2), role="retry", ordinal=2, verdict="retryable", **CIRCUIT),
            attempt(at(3), **CIRCUIT),
            refusal(at(3.5), gate="budget", **CIRCUIT),
        )
    )
    # Until the worker has derived them, late minutes are not in it.
    await sync_to_async(derive_now)()
    for name in ("openai/m-door@eu", "openai%2Fm-door%40eu"):
        answer = await get(f"/circuits/{name}/series", from_=at(0), to=at(10), step="2m")
        assert answer.status_code == 200, answer.content
        found = answer.json()
        assert found["metadata"]["name"] == "openai/m-door@eu"
        assert found["spec"]["stepSeconds"] == 120
        first, second = found["items"]
        assert datetime.fromisoformat(first["at"]) == at(0)
        assert (first["attempts"], first["retries"], first["retryRatio"]) == (2, 1, 1.0)
        assert first["verdicts"]["retryable"] == 1
        assert abs(first["latencyMs"]["p99"] - 1000) <= 20
        assert (second["attempts"], second["refused"]["budget"]) == (1, 1)
        assert (second["costGbp"], second["unpriced"]) == ("0", 1)


async def test_a_series_without_a_range_is_the_last_day_in_300_steps(sender: Sender) -> None:
    await sender.send(batch(attempt(**CIRCUIT)))
    spec = (await get("/circuits/openai/m-door@eu/series")).json()["spec"]
    assert spec["stepSeconds"] == 300
    begin, end = (datetime.fromisoformat(spec[side]) for side in ("from", "to"))
    # It begins at a step of the clock, which sums of five minutes fit.
    assert timedelta(hours=24) <= end - begin < timedelta(hours=24, minutes=5)
    assert (begin.minute % 5, begin.second, begin.microsecond) == (0, 0, 0)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"from": "2026-11-30T03:00:00Z", "to": "2026-11-30T03:00:00Z"}, "from"),
        ({"from": "2020-01-01T00:00:00Z"}, "from"),
        ({"from": "yesterday"}, "from"),
        ({"to": "9999-12-31T00:00:00Z"}, "to"),
        ({"step": "90s"}, "step"),
        ({"step": "30s"}, "step"),
        ({"step": "1e9d"}, "step"),
        ({"step": "soon"}, "step"),
    ],
)
async def test_a_series_that_cannot_be_answered_names_the_field(
    sender: Sender, query: dict[str, str], field: str
) -> None:
    await sender.send(batch(attempt(**CIRCUIT)))
    answer = await get("/circuits/openai/m-door@eu/series", **query)
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]


async def test_a_series_has_a_bound_on_its_steps(sender: Sender) -> None:
    await sender.send(batch(attempt(**CIRCUIT)))
    path = "/circuits/openai/m-door@eu/series"
    answer = await get(path, from_=now() - timedelta(days=30), step="1m")
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "step")


async def test_no_series_of_a_circuit_that_is_not_known(sender: Sender) -> None:
    assert (await get("/circuits/openai/no-such-model/series")).status_code == 404
    assert (await get("/circuits/series/series")).status_code == 404


async def test_a_task_is_told_in_order_with_its_cost(sender: Sender) -> None:
    request = str(uuid.uuid4())
    named = {"task": "invoice 4711/a", "request": request, "tenant": "acme"}
    await sender.send(
        batch(
            attempt(at(0), verdict="retryable", served=False, status=503, **named, **CIRCUIT),
            refusal(at(0.1), gate="budget", detail="empty", **named, **CIRCUIT),
            outcome(at(1), success=False, **named),
        )
    )
    for path in ("/tasks/invoice 4711/a", "/tasks/invoice%204711/a", f"/tasks/{request}"):
        answer = await get(path)
        assert answer.status_code == 200, answer.content
        found = answer.json()
        assert found["metadata"]["name"] == "invoice 4711/a"
        assert found["metadata"]["tenant"] == "acme"
        assert found["status"] == {"success": False, "costGbp": "0", "unpriced": 1}
        assert [(row["kind"], row.get("gate")) for row in found["items"]] == [
            ("attempt", None),
            ("refusal", "budget"),
            ("outcome", None),
        ]
        assert found["items"][0]["circuit"] == "openai/m-door@eu"


async def test_an_ambiguous_task_is_refused_with_the_list(make_sender: Any) -> None:
    one, two = await make_sender(), await make_sender()
    await one.send(batch(outcome(task="t-both", tenant="acme"), outcome(task="t-both", tenant="b")))
    await two.send(batch(outcome(task="t-both", tenant="acme")))
    names = dict(await one.query("SELECT id, name FROM gateway"))
    answer = await get("/tasks/t-both")
    assert (answer.status_code, answer.json()["code"]) == (409, "ambiguous")
    listed = [(hit["gateway"], hit["tenant"]) for hit in answer.json()["candidates"]]
    assert listed == sorted(
        [
            (names[one.gateway_id], "acme"),
            (names[one.gateway_id], "b"),
            (names[two.gateway_id], "acme"),
        ]
    )
    still = await get("/tasks/t-both", tenant="acme")
    assert [hit["tenant"] for hit in still.json()["candidates"]] == ["acme", "acme"]
    found = await get("/tasks/t-both", gateway=names[one.gateway_id], tenant="b")
    assert found.json()["metadata"] == {
        "name": "t-both",
        "gateway": names[one.gateway_id],
        "tenant": "b",
    }


async def test_a_request_without_a_task_is_found_by_its_id(sender: Sender) -> None:
    request = str(uuid.uuid4())
    await sender.send(batch(attempt(at(0), request=request), outcome(at(1), request=request)))
    found = (await get(f"/tasks/{request}")).json()
    assert found["metadata"]["name"] == request
    assert [row["kind"] for row in found["items"]] == ["attempt", "outcome"]
    assert (await get(f"/tasks/{uuid.uuid4()}")).status_code == 404


async def test_what_is_late_skewed_missing_or_unreadable_is_told_by_instance(
    sender: Sender,
) -> None:
    whole, faulty = uuid.UUID(int=31), uuid.UUID(int=32)
    await sender.send(batch(attempt(), boot=whole))
    ahead, behind = attempt(now() + timedelta(hours=2)), attempt(now() - timedelta(days=4))
    sent = batch(ahead, behind, {"kind": "prophecy", "x": "\0<b>"}, boot=faulty, slot="host-b/0")
    await sender.send(sent | {"seq": 3})
    (told,) = (await get("/telemetry")).json()["items"]
    assert told.pop("gateway").startswith("gw-")
    assert datetime.fromisoformat(told.pop("lastSeenAt")) <= now()
    assert told == {
        "slot": "host-b/0",
        "bootId": str(faulty),
        "missingBatches": 0,
        "awaitedBatches": 2,
        "deadLetters": 1,
        "dropped": 0,
        "droppedByKind": {},
        "late": 1,
        "skewed": 1,
        "slotShared": False,
    }
    assert (await get("/telemetry/dead-letters")).status_code == 403
    letters = await get("/telemetry/dead-letters", role_=Role.OPERATOR.value)
    (letter,) = letters.json()["items"]
    assert (letter["seq"], letter["index"]) == (3, 2)
    assert letter["reason"] == "kind: invalid value 'prophecy'"
    assert letter["body"] == '{"kind":"prophecy","x":"\\u0000<b>"}'
    none = await get("/telemetry/dead-letters", role_=Role.OPERATOR.value, gateway="nobody")
    assert none.json()["items"] == []


async def test_two_processes_that_live_in_one_slot_are_told(sender: Sender) -> None:
    first, second = uuid.UUID(int=41), uuid.UUID(int=42)
    await sender.send(batch(attempt(), boot=first))
    await sender.send(batch(attempt(), boot=second))
    assert (await get("/telemetry")).json()["items"] == []
    # The first was replaced a while ago, and speaks again.
    await sender.query(
        "UPDATE instance SET replaced_at = now() - interval '1 hour' WHERE boot_id = %s", [first]
    )
    await sender.send(batch(attempt(), boot=first, seq=2))
    (told,) = (await get("/telemetry")).json()["items"]
    assert (told["bootId"], told["slotShared"]) == (str(first), True)
