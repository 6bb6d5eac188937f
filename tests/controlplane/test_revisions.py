"""History, rollback and apply of policies, budgets and routes, through the HTTP door."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from controlplane.actions import probes, tokens
from controlplane.actions.actor import SYSTEM
from controlplane.models import AuditEntry, GatewayConfig, Role
from tests import builders

pytestmark = pytest.mark.django_db


class Caller:
    """Somebody with a service token."""

    def __init__(self, name: str, role: Role) -> None:
        issued = tokens.issue(actor=SYSTEM, name=name, role=role.value, now=builders.now())
        self._headers = {"Authorization": f"Bearer {issued.token}"}

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        text = "" if body is None else json.dumps(body)
        return Client().generic(
            method, f"/api/v1{path}", text, content_type="application/json", headers=self._headers
        )


@pytest.fixture
def ann() -> Caller:
    builders.gateway("demo")
    builders.circuit("openai", "gpt-4o", "")
    return Caller("ann", Role.OPERATOR)


@pytest.fixture
def git(ann: Caller) -> Caller:
    return Caller("git", Role.OPERATOR)


@pytest.fixture
def boss() -> Caller:
    return Caller("boss", Role.ADMIN)


def put(caller: Caller, version: str | None = None, **spec: Any) -> Any:
    head = {"metadata": {"resourceVersion": version}} if version else {}
    answer = caller("PUT", "/policies/chat", head | {"spec": spec})
    assert answer.status_code in (200, 201), answer.content
    return answer.json()


def apply(caller: Caller, query: str = "", **spec: Any) -> Any:
    return caller("POST", f"/policies/chat/apply?fieldManager=repo{query}", {"spec": spec})


def test_the_history_holds_every_generation_with_who_and_why(ann: Caller) -> None:
    first = put(ann, openSeconds=20, reason="calm")
    put(ann, first["metadata"]["resourceVersion"], openSeconds=30, reason="storm")
    found = ann("GET", "/policies/chat/history").json()["items"]
    assert [(h["metadata"]["generation"], h["spec"]["openSeconds"]) for h in found] == [
        (2, 30),
        (1, 20),
    ]
    assert [h["status"]["reason"] for h in found] == ["storm", "calm"]
    assert {h["metadata"]["updatedBy"] for h in found} == {"token:ann"}


def test_a_rollback_is_a_new_generation_of_the_person(ann: Caller) -> None:
    first = put(ann, openSeconds=20, match={"provider": "openai"})
    put(ann, first["metadata"]["resourceVersion"], openSeconds=30, match={})
    told = GatewayConfig.objects.get().generation
    answer = ann("POST", "/policies/chat/rollback", {"toGeneration": 1, "reason": "too slow"})
    back = answer.json()
    assert answer.status_code == 200
    assert (back["metadata"]["generation"], back["spec"]["openSeconds"]) == (3, 20)
    assert back["spec"]["match"]["provider"] == "openai"
    assert back["metadata"]["managers"]["openSeconds"] == "token:ann"
    assert GatewayConfig.objects.get().generation == told + 1
    entry = AuditEntry.objects.latest("id")
    assert (entry.action, entry.reason) == ("rollback", "too slow")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"toGeneration": 1}, "reason"),
        ({"toGeneration": 9, "reason": "x"}, "toGeneration"),
        ({"toGeneration": "one", "reason": "x"}, "toGeneration"),
    ],
)
def test_a_rollback_needs_a_reason_and_a_generation_that_was(
    ann: Caller, body: dict[str, Any], field: str
) -> None:
    put(ann, openSeconds=20)
    answer = ann("POST", "/policies/chat/rollback", body)
    assert answer.status_code == 422
    assert field in [e["field"] for e in answer.json()["errors"]]


def test_an_apply_after_a_rollback_conflicts_unless_forced(ann: Caller, git: Caller) -> None:
    assert apply(git, openSeconds=20).status_code == 200
    assert apply(git, openSeconds=30).status_code == 200
    ann("POST", "/policies/chat/rollback", {"toGeneration": 1, "reason": "too slow"})
    refused = apply(git, openSeconds=30)
    assert refused.status_code == 409
    assert refused.json()["code"] == "field_conflict"
    assert [e["field"] for e in refused.json()["errors"]] == ["spec.openSeconds"]
    assert "token:ann" in refused.json()["detail"]
    forced = apply(git, "&force=1", openSeconds=30)
    assert forced.json()["spec"]["openSeconds"] == 30
    assert forced.json()["metadata"]["managers"]["openSeconds"] == "apply:repo"


def test_an_apply_twice_changes_nothing(git: Caller) -> None:
    first = apply(git, openSeconds=20).json()
    told = GatewayConfig.objects.get().generation
    again = apply(git, openSeconds=20).json()
    assert again["metadata"]["generation"] == first["metadata"]["generation"]
    assert GatewayConfig.objects.get().generation == told


def test_a_dry_apply_says_what_would_be_and_writes_nothing(git: Caller) -> None:
    apply(git, openSeconds=20)
    told = GatewayConfig.objects.get().generation
    dry = apply(git, "&dryRun=1", openSeconds=30).json()
    assert (dry["spec"]["openSeconds"], dry["metadata"]["generation"]) == (30, 2)
    assert git("GET", "/policies/chat").json()["spec"]["openSeconds"] == 20
    assert GatewayConfig.objects.get().generation == told


def test_a_route_is_an_admins_and_every_approval_has_a_name(ann: Caller, boss: Caller) -> None:
    target = {"provider": "openai", "model": "gpt-4o"}
    body = {"spec": {"targets": [target, target | {"model": "o5", "approved": False}]}}
    assert ann("PUT", "/routes/assistant", body).status_code == 403
    made = boss("PUT", "/routes/assistant", body)
    assert made.status_code == 201, made.content
    first, second = made.json()["spec"]["targets"]
    assert (first["approved_by"], second["approved_by"]) == ("token:boss", "")
    spec = json.loads(GatewayConfig.objects.get().spec)
    assert [r["name"] for r in spec["routes"]] == ["assistant"]
    version = made.json()["metadata"]["resourceVersion"]
    again = boss("PUT", "/routes/assistant", body | {"metadata": {"resourceVersion": version}})
    assert again.json()["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({}, "targets"),
        ({"targets": []}, "targets"),
        ({"targets": [{"provider": "openai"}]}, "targets.0"),
        ({"targets": [{"provider": "openai", "model": "m", "nose": 1}]}, "targets.0.nose"),
        ({"targets": [{"provider": "openai", "model": "m"}] * 2}, "targets"),
        ({"targets": [{"provider": "o", "model": "m"}], "deadlineSeconds": 0}, "deadlineSeconds"),
        ({"targets": [{"provider": "o", "model": "m"}], "match": {"provider": "o"}}, "provider"),
    ],
)
def test_a_route_that_cannot_be_is_refused_with_its_field(
    ann: Caller, boss: Caller, spec: dict[str, Any], field: str
) -> None:
    answer = boss("PUT", "/routes/assistant", {"spec": spec})
    assert answer.status_code == 422, answer.content
    assert field in [e["field"].removeprefix("spec.") for e in answer.json()["errors"]]


def test_a_probe_reaches_the_snapshot_once_and_leaves_it(ann: Caller) -> None:
    answer = ann("POST", "/probes", {"provider": "openai", "reason": "they say it is over"})
    assert answer.status_code == 201, answer.content
    assert answer.json()["status"]["phase"] == "Pending"
    spec = json.loads(GatewayConfig.objects.get().spec)
    assert [p["match"] for p in spec["probes"]] == [{"provider": "openai"}]
    assert probes.end_expired(builders.now()) == []
    assert len(probes.end_expired(builders.now() + timedelta(seconds=61))) == 1
    assert json.loads(GatewayConfig.objects.get().spec)["probes"] == []
    assert ann("POST", "/probes", {"provider": "openai"}).status_code == 422


def test_release_mine_ends_mine_in_one_change(ann: Caller, git: Caller) -> None:
    body = {"mode": "ForceOpen", "reason": "down", "expiresIn": "10m", "provider": "openai"}
    ann("POST", "/overrides", body)
    git("POST", "/overrides", body | {"model": "gpt-4o"})
    ended = ann("POST", "/overrides/release-mine", {"reason": "over"}).json()["items"]
    assert [o["status"]["endCause"] for o in ended] == ["Released"]
    left = ann("GET", "/overrides?active=1").json()["items"]
    assert [o["metadata"]["createdBy"] for o in left] == ["token:git"]


def test_a_take_over_names_both_hands(ann: Caller, git: Caller) -> None:
    body = {"mode": "ForceOpen", "reason": "down", "expiresIn": "10m", "provider": "openai"}
    old = ann("POST", "/overrides", body).json()["metadata"]["name"]
    new = git("POST", "/overrides", body | {"reason": "mine now", "replace": old}).json()
    entries = {e.action: e for e in AuditEntry.objects.order_by("id")}
    assert entries["force"].after is not None
    assert entries["force"].after["replaces"]["created_by"] == "token:ann"
    assert (entries["replace"].actor, entries["replace"].reason) == ("token:git", "mine now")
    assert new["metadata"]["createdBy"] == "token:git"


def test_a_new_budget_without_its_level_is_refused_with_the_field(git: Caller) -> None:
    refused = git("POST", "/budgets/new/apply", {"spec": {"ratioPermille": 100}})
    assert refused.status_code == 422
    assert "level" in {error["field"].rpartition(".")[2] for error in refused.json()["errors"]}
