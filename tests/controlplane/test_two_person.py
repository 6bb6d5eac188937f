"""Two-person rule: what is fleet-wide waits for another operator, or breaks the glass loudly."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.test import Client

from controlplane.actions import approvals, overrides, tokens
from controlplane.actions.actor import SYSTEM, Actor
from controlplane.domain.overrides import is_fleet_wide
from controlplane.domain.precedence import Selection
from controlplane.errors import Conflict, Forbidden
from controlplane.models import (
    AuditEntry,
    GatewayConfig,
    Override,
    PendingOverride,
    Revision,
    Role,
)
from tests import builders
from tests.controlplane.test_api import Caller

pytestmark = pytest.mark.django_db

WIDE = {"mode": "ForceOpen", "provider": "openai", "reason": "529s", "expiresIn": "30m"}
NARROW = WIDE | {"gateway": "demo"}
ANN, BOB = (Actor(name, "person", Role.OPERATOR) for name in ("ann", "bob"))


@pytest.fixture(autouse=True)
def rule(settings: Any) -> None:
    settings.TWO_PERSON = True
    builders.gateway("demo", labels={"tier": "eu"})
    builders.circuit("openai", "gpt-4o", "")
    builders.person("admin", role=Role.ADMIN)


def caller(name: str, role: str = "operator", by: Actor = SYSTEM) -> Caller:
    made = tokens.issue(actor=by, name=name, role=role, expires_at=None, now=builders.now())
    return Caller(made.token)


def specs() -> str:
    return json.dumps(list(GatewayConfig.objects.values_list("spec", flat=True)))


@pytest.mark.parametrize(
    ("parts", "wide"),
    [
        ({}, True),
        ({"provider": "openai"}, True),
        ({"provider": "openai", "model": "m", "region": "eu"}, True),
        ({"gateway": "demo"}, True),
        ({"selector": "tier=eu"}, True),
        ({"gateway": "demo", "provider": "openai"}, False),
        ({"selector": "tier=eu", "provider": "openai"}, False),
        ({"selector": "tier", "provider": "openai"}, False),
        ({"selector": "tier!=none,tier", "provider": "openai"}, False),
        ({"selector": "tier!=none", "provider": "openai"}, True),
        ({"selector": "tier!=none,spot!=1", "provider": "openai"}, True),
        ({"selector": "not a selector", "provider": "openai"}, False),
    ],
)
def test_every_gateway_or_every_provider_is_fleet_wide(parts: dict[str, str], wide: bool) -> None:
    every = dict.fromkeys(("gateway", "selector", "provider", "model", "region"), "")
    assert is_fleet_wide(Selection(**(every | parts))) is wide


def test_nobody_approves_with_a_token_that_a_token_of_theirs_made() -> None:
    boss = Actor("admin", "person", Role.ADMIN)
    tokens.issue(actor=boss, name="one", role="admin", expires_at=None, now=builders.now())
    one = Actor("token:one", "service", Role.ADMIN)
    two = caller("two", by=one)
    wish: dict[str, Any] = {"mode": "ForceOpen", "reason": "529s", "provider": "openai"}
    wish |= {"now": builders.now(), "expires_in": timedelta(minutes=5)}
    row = approvals.ask(actor=boss, **wish)
    refused = two("POST", f"/overrides/{row.name}/approve")
    assert (refused.status_code, refused.json()["code"]) == (403, "own_request")


@pytest.mark.parametrize(("lasts", "waits"), [("expires_in", 15), ("expires_at", 5)])
def test_it_waits_for_15_minutes_unless_it_would_have_ended_by_then(lasts: str, waits: int) -> None:
    now, minutes = builders.now(), timedelta(minutes=5)
    ends: Any = {"expires_in": minutes} if lasts == "expires_in" else {"expires_at": now + minutes}
    row = approvals.ask(actor=ANN, mode="ForceOpen", reason="r", provider="openai", now=now, **ends)
    assert row.approve_before == now + timedelta(minutes=waits)


def test_who_asks_is_told_what_holds_the_match_and_says_that_it_is_taken_over() -> None:
    ann, bob = caller("ann"), caller("bob")
    held = builders.override(name="first", provider="openai")
    refused = ann("POST", "/overrides", WIDE)
    assert (refused.status_code, refused.json()["code"]) == (409, "already_forced")
    assert refused.json()["current"]["name"] == held.name
    asked = ann("POST", "/overrides", WIDE | {"replace": held.name})
    assert asked.status_code == 202
    assert bob("POST", f"/overrides/{asked.json()['metadata']['name']}/approve").status_code == 200
    held.refresh_from_db()
    assert held.end_cause == "Replaced"


def test_a_wide_one_is_in_no_snapshot_until_another_approves() -> None:
    ann, bob = caller("ann"), caller("bob")
    revision = Revision.objects.get(id=1).value
    asked = ann("POST", "/overrides", WIDE)
    assert (asked.status_code, asked.json()["status"]["phase"]) == (202, "Pending")
    name = asked.json()["metadata"]["name"]
    assert not Override.objects.exists()
    assert Revision.objects.get(id=1).value == revision
    assert ann("GET", f"/overrides/{name}").json()["status"]["active"] is False
    listed = ann("GET", "/overrides?active=1").json()
    assert (listed["items"], [p["metadata"]["name"] for p in listed["pending"]]) == ([], [name])
    own = ann("POST", f"/overrides/{name}/approve")
    assert (own.status_code, own.json()["code"]) == (403, "own_request")
    viewer = caller("eve", "viewer")
    assert viewer("POST", f"/overrides/{name}/approve").status_code == 403
    assert not Override.objects.exists()
    done = bob("POST", f"/overrides/{name}/approve")
    assert done.status_code == 200, done.content
    assert done.json()["status"]["active"] is True
    assert done.json()["metadata"]["createdBy"] == "token:ann"
    assert name in specs()
    assert bob("POST", f"/overrides/{name}/approve").json()["code"] == "approved"
    assert ann("GET", f"/overrides/{name}").json()["status"]["active"] is True
    entries = AuditEntry.objects.filter(object_name=name).order_by("id")
    assert [(e.action, e.actor) for e in entries] == [
        ("ask", "token:ann"),
        ("approve", "token:bob"),
    ]
    assert entries[1].after["requested_by"] == "token:ann"
    assert ann("POST", f"/overrides/{name}/release").status_code == 200


def test_a_narrow_one_and_a_dry_run_wait_for_nobody() -> None:
    ann = caller("ann")
    dry = ann("POST", "/overrides?dryRun=1", WIDE)
    assert (dry.status_code, dry.json()["dryRun"]["needsApproval"]) == (200, True)
    assert ann("POST", "/overrides", NARROW).status_code == 201
    assert not PendingOverride.objects.exists()


def test_without_the_setting_nothing_waits(settings: Any) -> None:
    settings.TWO_PERSON = False
    assert caller("ann")("POST", "/overrides", WIDE).status_code == 201
    # The flag is no crime where there is no glass.
    again = caller("bob")("POST", "/overrides", WIDE | {"model": "gpt-4o", "breakGlass": True})
    assert again.status_code == 201
    assert not approvals.unacknowledged().exists()


def test_no_door_goes_round_it() -> None:
    with pytest.raises(Forbidden, match="second operator"):
        overrides.force(
            actor=ANN,
            mode="ForceOpen",
            reason="r",
            now=builders.now(),
            provider="openai",
            expires_in=timedelta(hours=1),
        )
    assert not Override.objects.exists()


def ask(**more: Any) -> PendingOverride:
    wish = {"mode": "ForceOpen", "reason": "r", "provider": "openai", "now": builders.now()}
    return approvals.ask(**({"actor": ANN, "expires_in": timedelta(hours=1)} | wish | more))


def test_a_request_lapses_and_its_length_counts_from_the_approval() -> None:
    row = ask()
    late = row.approve_before
    with pytest.raises(Conflict, match="Lapsed"):
        approvals.approve(actor=BOB, name=row.name, now=late)
    assert not approvals.waiting(late).exists()
    soon = late - timedelta(seconds=1)
    made = approvals.approve(actor=BOB, name=row.name, now=soon)
    assert made.expires_at == soon + timedelta(hours=1)


def test_what_was_withdrawn_is_not_approved() -> None:
    row = ask()
    approvals.withdraw(actor=BOB, name=row.name, now=builders.now())
    with pytest.raises(Conflict, match="Withdrawn by bob"):
        approvals.approve(actor=BOB, name=row.name, now=builders.now())
    assert AuditEntry.objects.filter(action="withdraw", object_name=row.name).count() == 1


def test_a_match_that_was_forced_meanwhile_is_a_conflict_and_it_waits_on() -> None:
    row = ask()
    builders.override(provider="openai")
    with pytest.raises(Conflict) as held:
        approvals.approve(actor=BOB, name=row.name, now=builders.now())
    assert held.value.code == "already_forced"
    assert approvals.waiting(builders.now()).count() == 1


def test_a_token_of_ones_own_making_is_no_second_person() -> None:
    boss = Actor("boss", "person", Role.ADMIN)
    row = ask(actor=boss)
    mine = caller("mine", by=boss)
    answer = mine("POST", f"/overrides/{row.name}/approve")
    assert (answer.status_code, answer.json()["code"]) == (403, "own_request")
    asked = mine("POST", "/overrides", WIDE | {"model": "gpt-4o"}).json()["metadata"]["name"]
    with pytest.raises(Forbidden, match="another person"):
        approvals.approve(actor=boss, name=asked, now=builders.now())


def test_the_database_too_refuses_ones_own_approval() -> None:
    row = ask()
    row.decision, row.decided_by = "Approved", "ann"
    with pytest.raises(IntegrityError, match="pending_approved_by_another"), transaction.atomic():
        row.save()


def test_broken_glass_goes_at_once_and_is_told_until_another_has_seen_it() -> None:
    ann, bob = caller("ann"), caller("bob")
    made = ann("POST", "/overrides", WIDE | {"breakGlass": True})
    assert made.status_code == 201
    assert made.json()["spec"]["breakGlass"] is True
    name = made.json()["metadata"]["name"]
    assert name in specs()
    assert AuditEntry.objects.get(object_name=name).action == "break-glass"
    assert ann("POST", f"/overrides/{name}/acknowledge").status_code == 403
    assert ann("POST", f"/overrides/{name}/release").status_code == 200
    assert approvals.unacknowledged().count() == 1
    seen = bob("POST", f"/overrides/{name}/acknowledge")
    assert seen.json()["status"]["acknowledgedBy"] == "token:bob"
    assert not approvals.unacknowledged().exists()
    assert AuditEntry.objects.filter(action="acknowledge", object_name=name).count() == 1


@pytest.mark.parametrize("text", ["\x00", "\ud800", "x" * 2000])
def test_what_cannot_be_stored_is_a_fault_of_its_field(text: str) -> None:
    ann = caller("ann")
    for body in (WIDE, NARROW):
        answer = ann("POST", "/overrides", body | {"replace": text})
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "replace")
    name = ann("POST", "/overrides", WIDE).json()["metadata"]["name"]
    answer = ann("POST", f"/overrides/{name}/withdraw", {"reason": text})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "reason")
    assert approvals.waiting(builders.now()).count() == 1


def test_a_key_asks_once() -> None:
    ann = caller("ann")
    first = ann("POST", "/overrides", WIDE, **{"Idempotency-Key": "k"})
    again = ann("POST", "/overrides", WIDE, **{"Idempotency-Key": "k"})
    assert (again.status_code, again.json()) == (202, first.json())
    assert PendingOverride.objects.count() == 1


def test_the_pages_ask_approve_and_acknowledge(client: Client) -> None:
    ann, bob = builders.person("ann"), builders.person("bob")
    client.force_login(ann)
    chosen = {"provider": "openai", "mode": "ForceOpen", "minutes": "30", "reason": "529s"}
    form = client.get("/overrides/new", {"provider": "openai"}).content.decode()
    assert "another operator has to approve it" in form
    assert "Ask for ForceOpen on" in form
    glass = client.post("/overrides/preview", {**chosen, "break_glass": "on"}).content.decode()
    assert "Force open on" in glass
    asked = client.post("/overrides/new", chosen).content.decode()
    assert "In force nowhere" in asked
    row = PendingOverride.objects.get()
    assert "another operator approves it" in client.get("/overrides").content.decode()
    assert client.post(f"/overrides/{row.name}/approve").status_code == 403
    assert "In force nowhere" in client.get(f"/overrides/{row.name}").content.decode()
    client.force_login(bob)
    assert f"/overrides/{row.name}/approve" in client.get("/overrides").content.decode()
    assert client.post(f"/overrides/{row.name}/approve").status_code == 302
    assert Override.objects.get().created_by == "ann"
    assert "Waiting for a second person" not in client.get("/overrides").content.decode()
    direct = {**chosen, "model": "gpt-4o", "break_glass": "on"}
    assert client.post("/overrides/new", direct).status_code == 302
    broken = Override.objects.get(break_glass=True)
    assert "Glass broken by bob" in client.get("/overrides").content.decode()
    assert "nobody else has" in client.get(f"/overrides/{broken.name}").content.decode()
    assert "Glass broken by bob" in client.get("/audit").content.decode()
    said = client.get("/overrides/broken?said=").content.decode()
    assert f"said={broken.pk}" in said
    assert client.get(f"/overrides/broken?said={broken.pk}").status_code == 204
    client.force_login(ann)
    client.post(f"/overrides/{broken.name}/acknowledge")
    assert "Glass broken" not in client.get(f"/overrides/broken?said={broken.pk}").content.decode()
    assert "Glass broken" not in client.get("/overrides").content.decode()
