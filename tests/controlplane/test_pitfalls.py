"""What other control planes got wrong, by its number in our list of 25: the control plane's side.

docs/pitfalls.md lists all 25 with every test of each; the gateway's side by number is in
tests/gateway/test_pitfalls.py.
"""

import ast
import json
import re
import secrets
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import IntegrityError, transaction
from django.test import Client

from controlplane.actions import overrides, policies, tokens
from controlplane.actions.actor import SYSTEM
from controlplane.domain import sync
from controlplane.models import AuditEntry, BreakerPolicy, GatewayConfig, Override, Role
from controlplane.notify import hub
from controlplane.reports import wall
from dashboard.board import Board, compose
from tests import builders
from tests.controlplane.test_status import AT, applied, item, report, snapshot
from tests.controlplane.test_watch import fetch, force, force_now, settled, token
from tests.controlplane.watching import watch
from workers.tasks import end_expired_overrides, end_expired_probes, refresh_ceiling_prices

__all__ = ["token"]

CHECKOUT = Path(__file__).resolve().parents[2]


def board() -> Board:
    return compose(wall.read())


@pytest.fixture
def oncall(client: Client) -> Client:
    client.force_login(builders.person("oncall"))
    return client


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


async def test_pitfall_02_a_rejected_generation_is_not_sent_again_until_something_changes(
    token: str,
) -> None:
    await force()
    refused = await snapshot(token)
    told = {"refused_generation": refused["generation"], "refused_reason": "it shrank"}
    await report(token, **told)
    gateway = await sync_to_async(_read)("/gateways/eu-1")
    [instance] = gateway["status"]["instances"]
    assert (instance["sync"], instance["reason"]) == ("Rejected", "SnapshotRefused")
    assert instance["refusedReason"] == "it shrank"
    # The gateway names the newest that it has read, refused or not, whenever it comes again.
    known = f"&epoch={refused['epoch']}&generation={refused['generation']}&hash={refused['hash']}"
    for _ in range(2):
        async with watch("eu-1", token, known) as reader:
            first = await reader.next()
            assert first is not None
            assert first.event == "bookmark"
            assert await reader.silent(0.3)
    async with watch("eu-1", token, known) as reader:
        await reader.next()
        await force(model="gpt-4o")
        news = await reader.next()
        assert news is not None
        assert (news.event, news.data["generation"]) == ("snapshot", refused["generation"] + 1)


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


async def test_pitfall_07_a_wedged_half_open_is_named_with_its_age(token: str) -> None:
    stuck = {"provider": "openai", "model": "gpt-4o", "state": "HalfOpen", "number": 4}
    await report(token, circuits=[stuck | {"since": AT, "cause": "Stuck", "stuck": True}])
    circuit = await sync_to_async(_read)("/circuits/openai/gpt-4o")
    [breaker] = circuit["status"]["instances"]
    assert (breaker["stuck"], breaker["cause"], breaker["number"]) == (True, "Stuck", 4)
    assert breaker["since"].startswith(AT[:-1])
    [card] = (await sync_to_async(board)()).cards.values()
    assert (card["why_strong"], card["kind"]) == ("Stuck:", "card")


async def test_pitfall_08_however_bad_it_looks_only_people_throw_breakers(token: str) -> None:
    """The control plane aggregates and shows; it opens nothing, though all are open."""
    opened = {"provider": "openai", "model": "gpt-4o", "state": "Open", "number": 9, "since": AT}
    for n in range(1, 4):
        boot = f"0193f1d2-0000-7000-8000-00000000000{n}"
        await report(token, boot=boot, slot=f"h/{n}", circuits=[opened | {"cause": "FailureRatio"}])
    before = (await snapshot(token))["hash"]
    audited = await AuditEntry.objects.acount()
    for task in (end_expired_overrides, end_expired_probes, refresh_ceiling_prices):
        await sync_to_async(task)()
    assert (await snapshot(token))["hash"] == before
    assert not await Override.objects.aexists()
    assert await AuditEntry.objects.acount() == audited


async def test_pitfall_09_a_forced_circuit_keeps_counting_and_says_where_it_will_land(
    token: str,
) -> None:
    row = await force(mode="ForceClosed")
    config = await snapshot(token)
    below = {
        "provider": "openai",
        "model": "gpt-4o",
        "state": "Open",
        "number": 2,
        "since": AT,
        "mode": "ForceClosed",
        "override_uid": str(row.uid),
        "would_be": "Open",
    }
    await report(token, **applied(config), items=[item(row)], circuits=[below])
    assert (await override_status(row.name))["landing"] == {"Open": 1}
    circuit = await sync_to_async(_read)("/circuits/openai/gpt-4o")
    assert circuit["status"]["instances"][0]["wouldBe"] == "Open"


async def test_pitfall_10_state_cause_since_and_next_probe_are_fields(token: str) -> None:
    opened = {"provider": "openai", "model": "gpt-4o", "state": "Open", "number": 2, "since": AT}
    probe_at = "2026-11-30T03:10:20Z"
    await report(token, circuits=[opened | {"cause": "FailureRatio", "next_probe_at": probe_at}])
    circuit = await sync_to_async(_read)("/circuits/openai/gpt-4o")
    [breaker] = circuit["status"]["instances"]
    assert (breaker["state"], breaker["cause"]) == ("Open", "FailureRatio")
    assert breaker["since"].startswith(AT[:-1])
    assert breaker["nextProbeAt"].startswith(probe_at[:-1])


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
def test_pitfall_20_the_end_of_a_policy_throws_no_breaker() -> None:
    """Breakers keep their counts and states; what matched falls to the next policy."""
    builders.gateway("demo")
    builders.circuit("openai", "gpt-4o", "")
    match = {"provider": "openai"}
    policies.create(actor=SYSTEM, name="p", spec={"open_seconds": 20}, match=match, **_now())
    told = json.loads(GatewayConfig.objects.get().spec)
    assert [p["name"] for p in told["policies"]] == ["p"]
    version = BreakerPolicy.objects.get(name="p").resource_version
    policies.remove(actor=SYSTEM, name="p", expected_version=version, **_now())
    told = json.loads(GatewayConfig.objects.get().spec)
    assert (told["policies"], told["overrides"], told["probes"]) == ([], [], [])


@pytest.mark.django_db
def test_pitfall_21_the_page_and_the_database_want_a_reason_too(oncall: Client) -> None:
    builders.gateway("demo")
    builders.circuit("openai", "gpt-4o", "")
    form = {"mode": "ForceOpen", "provider": "openai", "minutes": "15", "reason": "  "}
    answer = oncall.post("/overrides/new", form)
    assert answer.status_code == 422
    assert not Override.objects.exists()
    with pytest.raises(IntegrityError, match="override_has_a_reason"), transaction.atomic():
        builders.override(reason="")


@pytest.mark.django_db
def test_pitfall_21_an_extension_without_a_word_is_audited_with_the_reason_that_stands() -> None:
    row = builders.override(reason="it browns out")
    overrides.extend(actor=SYSTEM, name=row.name, expires_in=timedelta(hours=1), **_now())
    assert AuditEntry.objects.get(action="extend").reason == "it browns out"


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


LISTED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def test_every_pitfall_has_tests_that_exist() -> None:
    """docs/pitfalls.md is not a promise: 25 rows, and each names tests that are there."""
    rows = (CHECKOUT / "docs" / "pitfalls.md").read_text(encoding="utf-8").splitlines()
    rows = [row for row in rows if re.match(r"\| \d+ \|", row)]
    assert [int(row.split("|")[1]) for row in rows] == list(range(1, 26))
    for row in rows:
        named = LISTED.findall(row)
        assert named, row
        for file, test in named:
            text = (CHECKOUT / file).read_text(encoding="utf-8")
            assert not test or re.search(rf"def {test}\b", text), (file, test)


def test_pitfall_silence_is_said_within_thirty_seconds() -> None:
    assert timedelta(seconds=30) == sync.SILENT_RED
