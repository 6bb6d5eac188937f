"""What other control planes got wrong, by its number in our list of 25: the control plane's side.

A number that is not here is about the breakers, the gateway, the wall or money, and is tested with
its part. The gateway's side of 4 is in tests/gateway/test_probes_and_shrinking.
"""

import ast
import json
import secrets
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.test import Client

from controlplane.actions import overrides, policies, tokens
from controlplane.actions.actor import SYSTEM
from controlplane.domain import sync
from controlplane.models import AuditEntry, BreakerPolicy, GatewayConfig, Override, Role
from controlplane.notify import hub
from tests import builders
from tests.controlplane.test_status import applied, item, report, snapshot
from tests.controlplane.test_watch import fetch, force, force_now, settled, token
from tests.controlplane.watching import watch

__all__ = ["token"]

CHECKOUT = Path(__file__).resolve().parents[2]


async def override_status(name: str) -> dict[str, Any]:
    """What a viewer reads of an override."""
    return (await sync_to_async(_read)(f"/overrides/{name}"))["status"]


def _read(path: str) -> Any:
    viewer = tokens.issue(actor=SYSTEM, name=f"v{secrets.token_hex(4)}", role="viewer", **_now())
    headers = {"Authorization": f"Bearer {viewer.token}"}
    return Client().get(f"/api/v1{path}", headers=headers).json()


async def test_pitfall_01_saved_is_recorded_only(token: str) -> None:
    await report(token)
    row = await force()
    status = await override_status(row.name)
    assert status["phase"] == "Progressing"
    assert (status["counts"]["targeted"], status["counts"]["enforced"]) == (1, 0)
    assert [c["status"] for c in status["conditions"]] == ["False"]
    config = await snapshot(token)
    await report(token, seq=2, **applied(config), items=[item(row)])
    assert (await override_status(row.name))["phase"] == "Enforced"


async def test_pitfall_02_a_rejection_is_never_read_as_applied(token: str) -> None:
    row = await force()
    config = await snapshot(token)
    refused = item(row, "Rejected", reason="LocalFloorViolated", message="the last one")
    await report(token, **applied(config), items=[refused])
    status = await override_status(row.name)
    assert (status["phase"], status["counts"]["enforced"]) == ("Failed", 0)
    assert status["instances"][0]["reason"] == "LocalFloorViolated"
    gateway = await sync_to_async(_read)("/gateways/eu-1")
    assert gateway["status"]["instances"][0]["sync"] == "Rejected"


async def test_pitfall_03_an_override_is_in_the_database_before_anybody_is_told(token: str) -> None:
    row = await force()
    told = json.loads((await GatewayConfig.objects.aget(gateway__name="eu-1")).spec)
    assert [o["uid"] for o in told["overrides"]] == [str(row.uid)]
    assert await Override.objects.filter(uid=row.uid, ended_at=None).aexists()


async def test_pitfall_04_a_snapshot_says_how_much_it_holds(token: str) -> None:
    await force()
    config = await snapshot(token)
    assert config["items"] == sum(len(items) for items in config["spec"].values())
    assert config["may_shrink"] is False


async def test_pitfall_05_the_page_shows_enforced_of_targeted(token: str) -> None:
    for n in (1, 2):
        await report(token, boot=f"0193f1d2-0000-7000-8000-00000000000{n}", slot=f"h/{n}")
    row = await force()
    config = await snapshot(token)
    boot = "0193f1d2-0000-7000-8000-000000000001"
    await report(token, boot=boot, slot="h/1", seq=2, **applied(config), items=[item(row)])
    counts = (await override_status(row.name))["counts"]
    assert (counts["targeted"], counts["enforced"]) == (2, 1)


async def test_pitfall_06_what_was_true_of_an_older_generation_is_not_shown_as_now(
    token: str,
) -> None:
    row = await force()
    config = await snapshot(token)
    await report(token, **applied(config), items=[item(row)])
    row = await sync_to_async(overrides.extend)(
        actor=SYSTEM, name=row.name, expires_in=timedelta(hours=2), now=builders.now()
    )
    status = await override_status(row.name)
    assert (status["phase"], status["counts"]["enforced"]) == ("Progressing", 0)
    assert status["conditions"][0]["observedGeneration"] == 2


async def test_pitfall_12_the_server_speaks_while_nothing_changes(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.watch.stream.BOOKMARK_SECONDS", 0.05)
    async with watch("eu-1", token) as reader:
        await settled(reader)
        frame = await reader.next()
        assert frame is not None
        assert frame.event == "bookmark"
        assert frame.data["server_time"]


async def test_pitfall_16_a_lost_wake_up_loses_nothing(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watch("eu-1", token) as reader:
        await settled(reader)
        monkeypatch.setattr(hub, "_readers", {"desired": set(), "observed": set()})
        await force()
        frame = await reader.next()
        assert frame is not None
        assert frame.data["spec"]["overrides"]


def test_pitfall_17_the_control_plane_never_opens_a_connection_to_a_gateway() -> None:
    """Nothing that could dial out is imported outside of the launcher of local parts."""
    dialling = {"aiohttp", "requests", "httpx", "urllib.request", "http.client", "telnetlib"}
    found = []
    for package in ("controlplane", "dashboard", "workers"):
        for path in (CHECKOUT / package).rglob("*.py"):
            parts = path.relative_to(CHECKOUT).parts
            # The launcher asks its own children, the CLI and the seeding are clients of ours.
            if parts[:2] in {("controlplane", p) for p in ("local", "cli", "management")}:
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                found += [(str(path), name) for name in names if name in dialling]
    assert found == []


async def test_pitfall_18_order_is_by_number_and_an_end_is_a_duration(token: str) -> None:
    row = await force()
    config = await snapshot(token)
    assert 299 < config["remaining_s"][str(row.uid)] <= 300
    # A report that claims to be from the future, with a lower seq, changes nothing.
    await report(token, seq=5, version="new")
    late = {"sent_at": "2030-01-01T00:00:00Z", "version": "old"}
    await report(token, seq=4, **late)
    gateway = await sync_to_async(_read)("/gateways/eu-1")
    assert gateway["status"]["instances"][0]["version"] == "new"


async def test_pitfall_19_the_unchanged_cost_no_body_and_too_many_are_told_to_wait(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = await fetch(token)
    assert (await fetch(token, **{"if-none-match": whole.headers["etag"]})).status == 304
    known = whole.json()
    async with watch("eu-1", token, f"&generation={known['generation']}&hash={known['hash']}") as r:
        first = await r.next()
        assert first is not None
        assert first.event == "bookmark"
        monkeypatch.setattr("controlplane.watch.stream.MAX_STREAMS", 1)
        async with watch("eu-1", token) as second:
            assert (second.status, int(second.headers["retry-after"]) > 0) == (503, True)


@pytest.mark.django_db
def test_pitfall_20_no_policy_can_touch_an_override() -> None:
    builders.gateway("demo")
    builders.circuit("openai", "gpt-4o", "")
    row = force_now()
    policies.create(actor=SYSTEM, name="p", spec={}, match={"provider": "openai"}, **_now())
    before = Override.objects.get(id=row.pk)
    version = BreakerPolicy.objects.get(name="p").resource_version
    policies.remove(actor=SYSTEM, name="p", expected_version=version, **_now())
    after = Override.objects.get(id=row.pk)
    assert (after.ended_at, after.resource_version) == (None, before.resource_version)
    operator = tokens.issue(actor=SYSTEM, name="op", role=Role.OPERATOR.value, **_now())
    answer = Client().post(
        "/api/v1/policies/p/apply",
        json.dumps({"spec": {"mode": "ForceOpen"}}),
        content_type="application/json",
        headers={"Authorization": f"Bearer {operator.token}"},
    )
    assert answer.status_code == 422


def _now() -> dict[str, Any]:
    return {"now": builders.now()}


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/overrides", "/probes"])
def test_pitfall_21_no_reason_is_422_on_every_path(path: str) -> None:
    builders.gateway("demo")
    builders.circuit("openai", "gpt-4o", "")
    operator = tokens.issue(actor=SYSTEM, name="op", role=Role.OPERATOR.value, **_now())
    body = {"mode": "ForceOpen", "provider": "openai", "expiresIn": "10m"}
    if path == "/probes":
        body = {"provider": "openai"}
    answer = Client().post(
        f"/api/v1{path}",
        json.dumps(body),
        content_type="application/json",
        headers={"Authorization": f"Bearer {operator.token}"},
    )
    assert answer.status_code == 422
    assert "reason" in [e["field"].removeprefix("spec.") for e in answer.json()["errors"]]
    assert not AuditEntry.objects.filter(object_kind__in=["Override", "Probe"]).exists()


async def test_pitfall_22_numbers_are_in_the_order_of_commits(token: str) -> None:
    """The slow transaction itself is in test_watch; here: no two changes share a number."""
    rows = [await force(model=model) for model in ("", "gpt-4o")]
    versions = [row.resource_version for row in rows]
    assert versions == sorted(set(versions))


def test_pitfall_silence_is_said_within_thirty_seconds() -> None:
    assert timedelta(seconds=30) == sync.SILENT_RED
