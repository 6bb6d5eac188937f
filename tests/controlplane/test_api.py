"""The people's API over HTTP: shapes, versions, doors, and errors that name their field."""

import json
import re
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.test import Client

from controlplane.actions import gateways, overrides, routes, tokens
from controlplane.actions.actor import SYSTEM
from controlplane.actions.bootstrap import Secrets, bootstrap
from controlplane.api.v1 import api
from controlplane.models import (
    AuditEntry,
    CircuitState,
    Delivery,
    Gateway,
    Override,
    RetryBudget,
    Role,
)
from tests import builders
from tests.embedded import TestPostgres

pytestmark = pytest.mark.django_db

FORCE = {
    "mode": "ForceOpen",
    "provider": "openai",
    "reason": "provider is failing",
    "expiresIn": "30m",
}


class Caller:
    """Somebody with a bearer token."""

    def __init__(self, token: str) -> None:
        self.client = Client()
        self.token = token

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        return self.client.generic(
            method,
            f"/api/v1{path}",
            data=body if isinstance(body, bytes) else json.dumps(body) if body is not None else b"",
            content_type="application/json",
            headers={"Authorization": f"Bearer {self.token}"} | headers,
        )


@pytest.fixture
def installed(few_prices: None) -> Secrets:
    secrets = Secrets("admin", "a-long-password-1", "sgs_op", "sgs_view", "demo", "sgg_demo")
    bootstrap(secrets, fresh=True, now=builders.now())
    builders.circuit("openai", "gpt-4o", "")
    builders.circuit("openai", "ft:gpt-4o/acme@2", "eu")
    return secrets


@pytest.fixture
def operator(installed: Secrets) -> Caller:
    return Caller(installed.operator_token)


@pytest.fixture
def viewer(installed: Secrets) -> Caller:
    return Caller(installed.viewer_token)


def fields_of(answer: Any) -> list[str]:
    assert answer["Content-Type"] == "application/problem+json"
    return [fault["field"] for fault in answer.json()["errors"]]


def test_forcing_by_curl_and_following_it(operator: Caller) -> None:
    slot = builders.instance(Gateway.objects.get(name="demo"), "host-a/0")
    made = operator("POST", "/overrides", FORCE)
    assert made.status_code == 201
    body = made.json()
    assert body["kind"] == "Override"
    assert body["metadata"]["createdBy"] == "token:bootstrap-operator"
    assert body["spec"]["mode"] == "ForceOpen"
    assert 1795 < body["status"]["remainingSeconds"] <= 1800
    assert body["status"]["phase"] == "Progressing"
    assert body["status"]["instances"][0]["stage"] == "Recorded"
    row = Override.objects.get()
    builders.delivery(
        slot,
        row,
        delivered_at=row.updated_at + timedelta(milliseconds=120),
        acknowledged_at=row.updated_at + timedelta(milliseconds=180),
    )
    status = operator("GET", f"/overrides/{row.name}").json()["status"]
    step = status["instances"][0]
    assert (step["stage"], step["deliveredMs"], step["enforcedMs"]) == ("Enforced", 120, 180)
    assert step["atBoot"] is False
    assert status["phase"] == "Enforced"
    assert status["counts"]["enforced"] == status["counts"]["targeted"] == 1
    assert status["conditions"][0]["status"] == "True"


def test_a_boot_that_found_it_there_is_timed_from_its_first_word(operator: Caller) -> None:
    operator("POST", "/overrides", FORCE)
    row = Override.objects.get()
    Override.objects.update(updated_at=builders.ago(7200))
    first = builders.ago(60)
    slot = builders.instance(Gateway.objects.get(name="demo"), "host-a/0", first_seen_at=first)
    said_at = first + timedelta(milliseconds=40)
    builders.delivery(slot, row, delivered_at=said_at, acknowledged_at=said_at)
    (step,) = operator("GET", f"/overrides/{row.name}").json()["status"]["instances"]
    assert (step["stage"], step["atBoot"], step["enforcedMs"]) == ("Enforced", True, 40)


def test_the_rejected_and_the_unreachable_are_named(operator: Caller) -> None:
    demo = Gateway.objects.get(name="demo")
    refusing = builders.instance(demo, "host-a/0")
    builders.instance(demo, "host-a/1", last_seen_at=builders.ago(60))
    operator("POST", "/overrides", FORCE)
    row = Override.objects.get()
    builders.delivery(refusing, row, "Rejected", reason="LocalFloorViolated", message="the last")
    status = operator("GET", f"/overrides/{row.name}").json()["status"]
    by_slot = {step["slot"]: step for step in status["instances"]}
    assert by_slot["host-a/0"]["stage"] == "Rejected"
    assert by_slot["host-a/0"]["reason"] == "LocalFloorViolated"
    assert by_slot["host-a/0"]["enforcedMs"] is None
    assert by_slot["host-a/1"]["stage"] == "Unreachable"
    assert status["conditions"][0]["status"] == "False"


def test_what_was_rejected_is_never_called_lifted(operator: Caller) -> None:
    refusing = builders.instance(Gateway.objects.get(name="demo"), "host-a/0")
    operator("POST", "/overrides", FORCE)
    row = Override.objects.get()
    builders.delivery(
        refusing, row, "Rejected", reason="LocalFloorViolated", lifted_at=builders.now()
    )
    operator("DELETE", f"/overrides/{row.name}")
    status = operator("GET", f"/overrides/{row.name}").json()["status"]
    step = status["instances"][0]
    assert (step["stage"], step["reason"], step["liftedMs"]) == (
        "Rejected",
        "LocalFloorViolated",
        None,
    )
    assert (status["counts"]["rejected"], status["counts"]["lifted"]) == (1, 0)


def test_the_kubernetes_form_is_the_same(operator: Caller) -> None:
    body = {"kind": "Override", "metadata": {}, "spec": FORCE | {"model": "gpt-4o"}}
    assert operator("POST", "/overrides", body).json()["spec"]["model"] == "gpt-4o"


def test_a_circuit_may_be_named_in_one_word(operator: Caller) -> None:
    body = {k: v for k, v in FORCE.items() if k != "provider"}
    made = operator("POST", "/overrides", body | {"circuit": "openai/ft:gpt-4o/acme%402@eu"})
    assert made.status_code == 201
    spec = made.json()["spec"]
    assert (spec["model"], spec["region"]) == ("ft:gpt-4o/acme@2", "eu")


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"reason": None}, "reason"),
    ({"reason": ""}, "reason"),
    ({"expiresIn": None}, "expiresIn"),
    ({"expiresIn": "soon"}, "expiresIn"),
    ({"expiresIn": "25h"}, "expiresIn"),
    ({"expiresIn": 1e300}, "expiresIn"),
    ({"expiresIn": None, "expiresAt": "2026-11-30T04:00:00"}, "expiresAt"),
    ({"expiresIn": None, "expiresAt": "0001-01-01T00:00:00+14:00"}, "expiresAt"),
    ({"mode": "Open"}, "mode"),
    ({"provider": "opnai"}, "provider"),
    ({"circuit": "openai"}, "circuit"),
    ({"allowLastHealthy": "perhaps"}, "allowLastHealthy"),
    ({"reasn": "typo"}, "reasn"),
    ({"expires_in": "30m"}, "expires_in"),
    ({"gateway": "nowhere"}, "gateway"),
]


def test_a_fault_names_its_field_in_both_forms(operator: Caller) -> None:
    for change, field in FAULTS:
        body = FORCE | change
        flat = operator("POST", "/overrides", body)
        assert flat.status_code == 422, change
        assert field in fields_of(flat), change
        wrapped = operator("POST", "/overrides", {"spec": body})
        assert f"spec.{field}" in fields_of(wrapped), change
    assert not Override.objects.exists()


BODIES = [
    (b"", 422),
    (b"{", 400),
    (b"[1]", 400),
    (b'{"reason": NaN}', 400),
    (b"\xff\xfe", 400),
    (b'{"spec": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
    (b'{"reason": "' + b"x" * 3_000_000 + b'"}', 413),
    (json.dumps(FORCE | {"reason": "a\x00b"}).encode(), 422),
    (json.dumps(FORCE | {"provider": "\ud800"}).encode(), 422),
]


def test_a_body_that_cannot_be_used_is_a_4xx(operator: Caller) -> None:
    for body, status in BODIES:
        answer = operator("POST", "/overrides", body)
        assert answer.status_code == status, body[:40]
        assert answer["Content-Type"] == "application/problem+json"


def test_an_unreadable_body_says_where(operator: Caller) -> None:
    answer = operator("POST", "/overrides", b'{"mode": "ForceOpen",}')
    assert answer.json()["code"] == "not_json"
    assert "line 1 column" in answer.json()["detail"]


def test_the_detail_spells_fields_as_the_caller_does(operator: Caller) -> None:
    said = operator("POST", "/overrides", FORCE | {"expiresIn": "1s"}).json()["detail"]
    assert "expiresIn: it would end" in said
    assert "expires_in" not in said


def test_an_override_takes_the_name_it_is_given_once(operator: Caller) -> None:
    named = {"metadata": {"name": "try-openai"}, "spec": FORCE}
    assert operator("POST", "/overrides", named).json()["metadata"]["name"] == "try-openai"
    assert operator("GET", "/overrides/try-openai").status_code == 200
    operator("DELETE", "/overrides/try-openai")
    again = operator("POST", "/overrides", named)
    assert (again.status_code, again.json()["code"]) == (409, "name_taken")
    assert Override.objects.count() == 1
    for odd in ("Try", "a/b", "a b", "x" * 101):
        answer = operator("POST", "/overrides", {"metadata": {"name": odd}, "spec": FORCE})
        assert answer.status_code == 422
        assert fields_of(answer) == ["metadata.name"]


def test_a_taken_match_is_409_with_the_holder(operator: Caller) -> None:
    operator("POST", "/overrides", FORCE)
    answer = operator("POST", "/overrides", FORCE)
    assert answer.status_code == 409
    assert answer.json()["current"]["created_by"] == "token:bootstrap-operator"
    assert "provider is failing" in answer.json()["detail"]


def test_a_dry_run_says_what_it_would_touch_and_writes_nothing(operator: Caller) -> None:
    demo = Gateway.objects.get(name="demo")
    slot = builders.instance(demo, "host-a/0")
    target = builders.circuit("openai", "gpt-4o", "")
    builders.circuit_state(slot, target, "Closed")
    builders.rollup(demo, target, attempts=30, cost_gbp="0.6")
    spec = {"targets": [{"provider": "openai", "model": "gpt-4o"}]}
    routes.create(actor=SYSTEM, name="chat", spec=spec, now=builders.now())
    answer = operator("POST", "/overrides?dryRun=1", FORCE)
    assert answer.status_code == 200
    found = answer.json()["dryRun"]
    assert found["circuits"] == ["openai/ft:gpt-4o/acme%402@eu", "openai/gpt-4o"]
    assert found["instances"] == ["demo/host-a/0"]
    assert [one["name"] for one in found["routes"]] == ["chat"]
    assert found["lastHealthy"] == ["demo/host-a/0"]
    assert found["callsPerSecond"] == 0.5
    assert float(found["gbpPerMinute"]) == 0.6
    looked = operator("POST", "/overrides?dryRun=1", FORCE | {"mode": "ObserveOnly"}).json()
    assert (looked["dryRun"]["routes"], looked["dryRun"]["lastHealthy"]) == ([], [])
    assert not Override.objects.exists()
    assert operator("POST", "/overrides?dryRun=1", FORCE | {"reason": ""}).status_code == 422


def test_a_write_with_an_unknown_parameter_is_not_done(operator: Caller) -> None:
    for path in ("/overrides?dryrun=1", "/overrides?dryRun=1&dry-run=1"):
        answer = operator("POST", path, FORCE)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["field"].startswith("query.dry")
    name = operator("POST", "/overrides", FORCE).json()["metadata"]["name"]
    for path in (f"/overrides/{name}/extend?dryRun=1", f"/overrides/{name}/release?dryRun=1"):
        assert operator("POST", path, {"spec": {"expiresIn": "5m"}}).status_code == 422
    assert operator("DELETE", f"/overrides/{name}?reason=over").status_code == 200
    assert AuditEntry.objects.filter(object_name=name).count() == 2


def test_a_problem_is_titled_as_its_status(operator: Caller) -> None:
    for path in ("/overrides/nobody", "/nothing"):
        assert operator("GET", path).json()["title"].lower() == "not found"


def test_an_idempotency_key_does_it_once(operator: Caller) -> None:
    key = {"Idempotency-Key": "incident-12"}
    first = operator("POST", "/overrides", FORCE, **key)
    again = operator("POST", "/overrides", FORCE, **key)
    assert (again.status_code, again.json()) == (201, first.json())
    assert again["Idempotent-Replayed"] == "true"
    assert Override.objects.count() == 1
    other = operator("POST", "/overrides", FORCE | {"model": "gpt-4o"}, **key)
    assert (other.status_code, other.json()["code"]) == (409, "key_reused")


def test_what_failed_may_be_tried_again_with_its_key(operator: Caller) -> None:
    key = {"Idempotency-Key": "incident-13"}
    assert operator("POST", "/overrides", FORCE | {"reason": ""}, **key).status_code == 422
    assert operator("POST", "/overrides", FORCE, **key).status_code == 201


def test_extend_and_release(operator: Caller) -> None:
    made = operator("POST", "/overrides", FORCE).json()["metadata"]
    path = f"/overrides/{made['name']}"
    longer = operator("POST", f"{path}/extend", {"expiresIn": "2h", "reason": "still failing"})
    assert longer.json()["metadata"]["generation"] == 2
    stale = operator("POST", f"{path}/extend", {"expiresIn": "3h"}, **{"If-Match": '"1"'})
    assert stale.status_code == 409
    released = operator("POST", f"{path}/release", {"reason": "recovered"})
    assert released.json()["status"]["endCause"] == "Released"
    assert operator("POST", f"{path}/release").status_code == 200
    assert operator("POST", f"{path}/extend", {"expiresIn": "1h"}).status_code == 409
    assert operator("DELETE", "/overrides/nothing").status_code == 404
    active = operator("GET", "/overrides?active=1").json()["items"]
    ended = operator("GET", "/overrides?active=0").json()["items"]
    assert (len(active), len(ended)) == (0, 1)


def test_delete_is_release(operator: Caller) -> None:
    name = operator("POST", "/overrides", FORCE).json()["metadata"]["name"]
    assert operator("DELETE", f"/overrides/{name}?reason=over").status_code == 200
    assert AuditEntry.objects.get(action="release").reason == "over"


def test_an_expired_override_is_shown_as_expired_before_any_worker_came(operator: Caller) -> None:
    overrides.force(
        actor=SYSTEM,
        mode="ForceOpen",
        reason="short",
        provider="openai",
        expires_in=timedelta(seconds=5),
        now=builders.ago(10),
    )
    (row,) = operator("GET", "/overrides").json()["items"]
    assert (row["status"]["active"], row["status"]["phase"]) == (False, "Expired")
    assert operator("GET", "/overrides?active=1").json()["items"] == []


def test_a_budget_is_changed_under_its_version(operator: Caller) -> None:
    read = operator("GET", "/budgets/tenant").json()
    change = {"metadata": read["metadata"] | {}, "spec": {"ratioPerMille": 200}}
    change["metadata"] = {"resourceVersion": read["metadata"]["resourceVersion"]}
    changed = operator("PATCH", "/budgets/tenant", change)
    assert changed.status_code == 200
    assert changed.json()["spec"]["ratioPerMille"] == 200
    assert changed.json()["spec"]["burst"] == read["spec"]["burst"]
    assert changed.json()["metadata"]["generation"] == 2
    stale = operator("PATCH", "/budgets/tenant", change | {"spec": {"burst": 1}})
    assert stale.status_code == 409
    assert "token:bootstrap-operator" in stale.json()["detail"]
    assert stale.json()["current"]["spec"]["ratio_per_mille"] == 200
    blind = operator("PUT", "/budgets/tenant", {"spec": {"burst": 1}})
    assert fields_of(blind) == ["metadata.resourceVersion"]


def test_a_budget_comes_back_as_enforced_with_the_time_it_took(operator: Caller) -> None:
    slot = builders.instance(Gateway.objects.get(name="demo"), "host-a/0")
    version = operator("GET", "/budgets/tenant").json()["metadata"]["resourceVersion"]
    operator("PATCH", "/budgets/tenant", {"burst": 5}, **{"If-Match": f'"{version}"'})
    row = RetryBudget.objects.get(name="tenant")
    Delivery.objects.create(
        gateway_id=slot.gateway_id,
        instance=slot,
        kind="Budget",
        name=row.name,
        uid=str(row.uid),
        generation=row.generation,
        delivered_at=row.updated_at,
        acknowledged_at=row.updated_at + timedelta(milliseconds=95),
        verdict="Applied",
    )
    status = operator("GET", "/budgets/tenant").json()["status"]
    assert status["phase"] == "Enforced"
    assert status["instances"][0]["enforcedMs"] == 95


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_an_answer_can_be_edited_and_sent_back(operator: Caller, method: str) -> None:
    read = operator("GET", "/budgets/circuit").json()
    assert {"createdAt", "updatedBy"} <= read["metadata"].keys()
    read["spec"]["ratioPerMille"] = 250
    answer = operator(method, "/budgets/circuit", read)
    assert answer.status_code == 200, answer.content
    assert operator("GET", "/budgets/circuit").json()["spec"]["ratioPerMille"] == 250
    assert operator(method, "/budgets/circuit", read).status_code == 409


def test_a_dry_run_is_refused_where_there_is_none(operator: Caller) -> None:
    body = {"metadata": {"resourceVersion": "1"}, "spec": {"ratioPerMille": 250}}
    for method in ("PUT", "PATCH"):
        answer = operator(method, "/budgets/circuit?dryRun=1", body)
        assert answer.status_code == 422
        assert answer.json()["detail"].startswith("dryRun: ")
    assert operator("GET", "/budgets/circuit").json()["spec"]["ratioPerMille"] == 100


def test_a_change_without_effect_makes_no_generation(operator: Caller) -> None:
    read = operator("GET", "/policies/default").json()["metadata"]
    etag = {"If-Match": f'"{read["resourceVersion"]}"'}
    same = operator("PATCH", "/policies/default", {"consecutiveFailures": 5}, **etag)
    assert same.json()["metadata"]["generation"] == read["generation"]


OUT_OF_BOUNDS: list[tuple[str, dict[str, Any], str]] = [
    ("/budgets/tenant", {"ratioPerMille": 1001}, "ratioPerMille"),
    ("/budgets/tenant", {"ratioPerMille": 0.5}, "ratioPerMille"),
    ("/budgets/tenant", {"ratioPerMille": True}, "ratioPerMille"),
    ("/budgets/tenant", {"maxPerSecond": 0.01}, "maxPerSecond"),
    ("/budgets/tenant", {"ratio": 0.1}, "ratio"),
    ("/budgets/tenant", {"level": "system"}, "level"),
    ("/budgets/system", {"match": {"tenant": "acme"}}, "tenant"),
    ("/budgets/tenant", {"match": {"tenent": "acme"}}, "match.tenent"),
    ("/policies/default", {"openSeconds": 100, "maxOpenSeconds": 50}, "maxOpenSeconds"),
    ("/policies/default", {"failureRatio": 0}, "failureRatio"),
    ("/policies/default", {"rateLimitsCount": 1}, "rateLimitsCount"),
    ("/policies/default", {"match": {"selector": "a in (b)"}}, "selector"),
    ("/policies/Bad Name", {"openSeconds": 5}, "name"),
]


def test_numbers_out_of_bounds_name_their_field(operator: Caller) -> None:
    for path, spec, field in OUT_OF_BOUNDS:
        read = operator("GET", path)
        metadata = {}
        if read.status_code == 200:
            metadata = {"resourceVersion": read.json()["metadata"]["resourceVersion"]}
        answer = operator("PUT", path, {"metadata": metadata, "spec": spec})
        assert answer.status_code == 422, spec
        assert fields_of(answer)[0] in {f"spec.{field}", f"metadata.{field}"}, spec


def test_a_policy_for_some_gateways_is_made_and_removed(operator: Caller) -> None:
    spec = {"consecutiveFailures": 3, "match": {"selector": "tier=eu", "provider": "openai"}}
    made = operator("PUT", "/policies/eu-openai", {"spec": spec | {"reason": "eu is flaky"}})
    assert made.status_code == 201
    assert made.json()["spec"]["match"]["selector"] == "tier=eu"
    assert AuditEntry.objects.latest("id").reason == "eu is flaky"
    assert operator("DELETE", "/policies/eu-openai").status_code == 422
    etag = {"If-Match": made["ETag"]}
    assert operator("DELETE", "/policies/eu-openai", None, **etag).status_code == 204
    assert operator("GET", "/policies/eu-openai").status_code == 404


def test_circuits_are_found_by_plain_and_by_encoded_names(operator: Caller) -> None:
    builders.circuit_state(
        builders.instance(Gateway.objects.get(name="demo"), "host-a/0"),
        builders.circuit("openai", "gpt-4o", ""),
        "Open",
    )
    operator("POST", "/overrides", FORCE)
    for path in ("/circuits/openai/gpt-4o", "/circuits/openai%2Fgpt-4o"):
        found = operator("GET", path).json()
        assert found["metadata"]["name"] == "openai/gpt-4o"
        assert found["status"]["desired"][0]["mode"] == "ForceOpen"
        assert found["status"]["instances"][0]["state"] == "Open"
    for path in (
        "/circuits/openai/ft:gpt-4o/acme%25402@eu",
        "/circuits/openai/ft:gpt-4o/acme%402@eu",
    ):
        assert operator("GET", path).json()["spec"]["model"] == "ft:gpt-4o/acme@2"
    missing = operator("GET", "/circuits/openai/gpt-4p")
    assert missing.status_code == 404
    assert "openai/gpt-4o" in missing.json()["detail"]
    assert len(operator("GET", "/circuits").json()["items"]) == 2


def test_a_silent_instance_never_shows_its_last_state_as_present(operator: Caller) -> None:
    silent = builders.instance(
        Gateway.objects.get(name="demo"), "host-a/0", last_seen_at=builders.ago(120)
    )
    builders.circuit_state(silent, builders.circuit("openai", "gpt-4o", ""), "Closed")
    (state,) = operator("GET", "/circuits/openai/gpt-4o").json()["status"]["instances"]
    assert (state["state"], state["lastState"]) == ("Unknown", "Closed")
    (instance,) = operator("GET", "/gateways/demo").json()["status"]["instances"]
    assert instance["sync"] == "Unreachable"


def test_gateways_show_generations_and_sync(operator: Caller) -> None:
    builders.instance(Gateway.objects.get(name="demo"), "host-a/0")
    found = operator("GET", "/gateways/demo").json()
    (instance,) = found["status"]["instances"]
    assert instance["sync"] == "InSync"
    assert instance["appliedGeneration"] == found["spec"]["generation"]
    operator("POST", "/overrides", FORCE)
    (instance,) = operator("GET", "/gateways/demo").json()["status"]["instances"]
    assert (instance["sync"], instance["reason"]) == ("Applying", "NotDelivered")
    assert operator("GET", "/gateways/dmo").status_code == 404


def test_the_audit_can_be_read_by_object(operator: Caller) -> None:
    name = operator("POST", "/overrides", FORCE).json()["metadata"]["name"]
    (entry,) = operator("GET", f"/audit?kind=Override&name={name}").json()["items"]
    assert (entry["actor"], entry["action"]) == ("token:bootstrap-operator", "force")
    assert operator("GET", "/audit?actor=nobody").json()["items"] == []
    assert operator("GET", "/audit?limit=0").status_code == 422


WRITES = [
    ("POST", "/overrides", FORCE),
    ("POST", "/overrides?dryRun=1", FORCE),
    ("POST", "/overrides/x/extend", {"expiresIn": "1h"}),
    ("POST", "/overrides/x/release", {}),
    ("DELETE", "/overrides/x", None),
    ("PUT", "/budgets/new", {"spec": {"level": "tenant"}}),
    ("PATCH", "/budgets/tenant", {"metadata": {"resourceVersion": 1}, "spec": {"burst": 1}}),
    ("PUT", "/policies/new", {"spec": {"closeAfter": 2}}),
]


def test_a_viewer_writes_nothing(viewer: Caller) -> None:
    before = AuditEntry.objects.count()
    for method, path, body in WRITES:
        assert viewer(method, path, body).status_code == 403, path
    assert AuditEntry.objects.count() == before
    assert viewer("GET", "/overrides").status_code == 200


def _writes() -> list[tuple[str, str]]:
    """Every route by which a person writes, with something in each place of its path."""
    return [
        (method.upper(), re.sub(r"\{(\w+)\}", r"1", path.removeprefix("/api/v1")))
        for path, item in api.get_openapi_schema()["paths"].items()
        for method, said in item.items()
        if method in ("post", "put", "patch", "delete")
        and said.get("security") != [{"gatewayToken": []}]
    ]


ADMINS = r"/(tokens|people|routes|providers)(/.*)?|/gateways.*"


def test_a_role_is_looked_at_before_the_body(viewer: Caller, operator: Caller) -> None:
    """A body that nobody could read is no reason to say anything else."""
    writes = _writes()
    assert len(writes) > 30
    for method, path in writes:
        assert viewer(method, path, [{"": 1}]).status_code == 403, (method, path)
        if re.fullmatch(ADMINS, path):
            assert operator(method, path, [{"": 1}]).status_code == 403, (method, path)


def test_the_door(operator: Caller) -> None:
    for headers in ({"Authorization": "Bearer nonsense"}, {"Authorization": "Basic YTpi"}):
        assert operator("GET", "/overrides", None, **headers).status_code == 401
    for query in ("token=SECRET123", "access_token=SECRET123"):
        answer = operator("GET", f"/overrides?{query}")
        assert answer.status_code == 400
        assert b"SECRET123" not in answer.content


def test_nul_in_a_path_or_a_query_is_a_400(operator: Caller) -> None:
    for method, path, field in (
        ("GET", "/overrides/a%00b", "path"),
        ("POST", "/overrides/a%00b/release", "path"),
        ("DELETE", "/budgets/a%00b", "path"),
        ("GET", "/gateways/a%00b", "path"),
        ("GET", "/circuits/openai/a%00b", "path"),
        ("GET", "/audit?actor=%00", "actor"),
        ("DELETE", "/overrides/x?reason=%00", "reason"),
    ):
        answer = operator(method, path)
        assert answer.status_code == 400, path
        assert fields_of(answer) == [field]


def test_nobody_is_401(installed: Secrets) -> None:
    assert Client().get("/api/v1/overrides").status_code == 401


def test_an_expired_or_revoked_token_is_nobody(installed: Secrets) -> None:
    now = builders.now()
    before, end = now - timedelta(hours=1), now - timedelta(seconds=1)
    issued = tokens.issue(actor=SYSTEM, name="ci", role="operator", now=before, expires_at=end)
    assert Caller(issued.token)("GET", "/overrides").status_code == 401
    issued = tokens.issue(actor=SYSTEM, name="ci-2", role="operator", now=now)
    assert Caller(issued.token)("GET", "/overrides").status_code == 200
    tokens.revoke(actor=SYSTEM, name="ci-2", now=now)
    assert Caller(issued.token)("GET", "/overrides").status_code == 401


def test_a_gateways_token_does_not_open_the_peoples_door(installed: Secrets) -> None:
    assert Caller(installed.gateway_token)("GET", "/overrides").status_code == 401


def test_a_session_needs_the_csrf_token_to_write(installed: Secrets) -> None:
    builders.person("oncall", Role.OPERATOR)
    client = Client(enforce_csrf_checks=True)
    assert client.login(username="oncall", password=builders.PASSWORD)
    assert client.get("/api/v1/overrides").status_code == 200
    body = json.dumps(FORCE)
    url = "/api/v1/overrides"
    refused = client.post(url, body, content_type="application/json")
    assert (refused.status_code, refused.json()["code"]) == (403, "csrf")
    from django.conf import settings
    from django.middleware.csrf import _get_new_csrf_string, _mask_cipher_secret

    secret = _get_new_csrf_string()
    client.cookies[settings.CSRF_COOKIE_NAME] = secret
    made = client.post(
        url,
        body,
        content_type="application/json",
        headers={"X-CSRFToken": _mask_cipher_secret(secret)},
    )
    assert made.status_code == 201
    assert made.json()["metadata"]["createdBy"] == "oncall"


def test_a_person_who_was_switched_off_is_out_at_once(installed: Secrets) -> None:
    person = builders.person("oncall")
    client = Client()
    client.force_login(person)
    assert client.get("/api/v1/overrides").status_code == 200
    person.is_active = False
    person.save()
    assert client.get("/api/v1/overrides").status_code in {401, 403}


def test_unknown_paths_and_methods_are_problems(operator: Caller) -> None:
    for method in ("GET", "POST"):
        nothing = operator(method, "/nothing")
        assert nothing.status_code == 404
        assert nothing["Content-Type"] == "application/problem+json"
        assert "/api/v1/nothing" in nothing.json()["detail"]
    assert operator("PUT", "/overrides").status_code == 405


def test_the_document_lists_the_routes(operator: Caller) -> None:
    document = operator("GET", "/openapi.json").json()
    assert "/api/v1/overrides/{name}/extend" in document["paths"]


def test_a_new_gateway_gets_its_token_once(installed: Secrets) -> None:
    issued = gateways.create(actor=SYSTEM, name="eu-1", labels={"tier": "eu"}, now=builders.now())
    assert issued.token.startswith("sgg_")
    assert issued.gateway.config.generation == 1
    assert not CircuitState.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_is_lost_is_no_fault_of_ours(
    installed: Secrets, postgres: TestPostgres
) -> None:
    viewer = Caller(installed.viewer_token)
    assert viewer("GET", "/policies").status_code == 200
    pid = connection.connection.info.backend_pid
    with psycopg.connect(postgres.dsn(str(connection.settings_dict["NAME"]))) as other:
        other.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))
    try:
        refused = viewer("GET", "/policies")
    finally:
        connection.close()
    assert (refused.status_code, refused.json()["code"]) == (503, "busy")
    assert int(refused.headers["Retry-After"]) > 0
    assert viewer("GET", "/policies").status_code == 200
