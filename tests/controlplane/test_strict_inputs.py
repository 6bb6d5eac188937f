"""Every write of the people's API, field by field, with what is not of the field's type."""

import re
from typing import Any
from urllib.parse import quote

import pytest
from django.test import Client

from controlplane.actions import tokens
from controlplane.actions.actor import SYSTEM
from controlplane.actions.bootstrap import Secrets, bootstrap
from controlplane.api.v1 import api
from controlplane.models import AuditEntry, BreakerPolicy
from tests import builders
from tests.controlplane.test_api import Caller

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin(few_prices: None) -> Caller:
    secrets = Secrets("admin", "a-long-password-1", "sgs_op", "sgs_view", "demo", "sgg_demo")
    bootstrap(secrets, fresh=True, now=builders.now())
    builders.circuit("openai", "gpt-4o", "")
    made = tokens.issue(
        actor=SYSTEM, name="boss", role="admin", expires_at=None, now=builders.now()
    )
    return Caller(made.token)


OVERRIDE = {"mode": "ForceOpen", "provider": "openai", "reason": "r", "expiresIn": "30m"}
MATCH = ("gateway", "selector", "provider", "model", "region", "circuit")
# Method, path, a good body, and its fields with what each must not be.
TEXT, TRUTH, WHOLE, TIME, SPAN = "text", "truth", "whole", "time", "span"
TARGETS = "targets"
TARGET = {"provider": "openai", "model": "gpt-4o"}
ROUTE = {"targets": [TARGET]}
ROUTE_FIELDS = {
    "deadlineSeconds": WHOLE,
    "attemptSeconds": WHOLE,
    "targets": TARGETS,
    "reason": TEXT,
}
WRITES: list[tuple[str, str, dict[str, Any], dict[str, str]]] = [
    (
        "POST",
        "/overrides",
        OVERRIDE,
        dict.fromkeys(("mode", "reason", "ticket", "replace", *MATCH), TEXT)
        | {"allowLastHealthy": TRUTH, "breakGlass": TRUTH, "expiresIn": SPAN, "expiresAt": TIME},
    ),
    (
        "POST",
        "/overrides/{override}/extend",
        {"expiresIn": "10m"},
        {"expiresIn": SPAN, "expiresAt": TIME, "reason": TEXT},
    ),
    ("POST", "/overrides/{override}/release", {}, {"reason": TEXT}),
    ("POST", "/overrides/{override}/withdraw", {}, {"reason": TEXT}),
    ("POST", "/overrides/release-mine", {}, {"reason": TEXT}),
    (
        "POST",
        "/probes",
        {"provider": "openai", "reason": "r"},
        dict.fromkeys(("reason", *MATCH), TEXT),
    ),
    (
        "PUT",
        "/policies/fresh",
        {"openSeconds": 5},
        dict.fromkeys(
            (
                "consecutiveFailures",
                "minimumCalls",
                "windowCalls",
                "halfOpenProbes",
                "closeAfter",
                "openSeconds",
                "failureRatio",
                "rampSeconds",
                "requestsPerMinute",
                "tokensPerMinute",
            ),
            WHOLE,
        )
        | {"rateLimitsCount": TRUTH, "reason": TEXT},
    ),
    ("PATCH", "/policies/standing", {"openSeconds": 5}, {"openSeconds": WHOLE, "reason": TEXT}),
    ("POST", "/policies/standing/apply?force=1", {"openSeconds": 5}, {"openSeconds": WHOLE}),
    (
        "POST",
        "/policies/standing/rollback",
        {"toGeneration": 1, "reason": "r"},
        {"toGeneration": WHOLE, "reason": TEXT},
    ),
    (
        "PUT",
        "/budgets/fresh",
        {"level": "system", "burst": 10},
        dict.fromkeys(
            ("ratioPerMille", "minPerSecond", "burst", "windowSeconds", "maxAttempts"), WHOLE
        )
        | {"level": TEXT, "maxCostGbp": TEXT},
    ),
    ("PATCH", "/budgets/standing", {"burst": 10}, {"burst": WHOLE, "reason": TEXT}),
    ("POST", "/budgets/standing/apply?force=1", {"burst": 10}, {"burst": WHOLE, "reason": TEXT}),
    (
        "POST",
        "/budgets/standing/rollback",
        {"toGeneration": 1, "reason": "r"},
        {"toGeneration": WHOLE, "reason": TEXT},
    ),
    ("PUT", "/routes/fresh", ROUTE, ROUTE_FIELDS),
    ("PATCH", "/routes/standing", ROUTE, ROUTE_FIELDS),
    ("POST", "/routes/standing/apply?force=1", ROUTE, ROUTE_FIELDS),
    (
        "POST",
        "/routes/standing/rollback",
        {"toGeneration": 1, "reason": "r"},
        {"toGeneration": WHOLE, "reason": TEXT},
    ),
    (
        "PUT",
        "/providers/openai",
        {"statusUrl": "https://status.example.com"},
        {"statusUrl": TEXT, "reason": TEXT},
    ),
    ("POST", "/annotations", {"text": "deploy"}, {"text": TEXT, "at": TIME}),
    ("POST", "/claim", {}, {"note": TEXT, "minutes": WHOLE, "takeOver": TRUTH}),
    ("POST", "/gateways", {"name": "eu-1"}, {"name": TEXT, "labels": "labels"}),
    ("POST", "/gateways/demo/tokens", {}, {"expiresAt": TIME}),
    ("POST", "/gateways/demo/allow-shrink", {"reason": "restored"}, {"reason": TEXT}),
    (
        "POST",
        "/tokens",
        {"name": "ci", "role": "viewer"},
        {"name": TEXT, "role": TEXT, "expiresAt": TIME},
    ),
    (
        "POST",
        "/people",
        {"name": "ann", "password": "correct horse 9", "role": "viewer"},
        {"name": TEXT, "password": TEXT, "role": TEXT},
    ),
    ("PATCH", "/people/admin", {}, {"role": TEXT, "active": TRUTH, "password": TEXT}),
]
WRONG: dict[str, list[Any]] = {
    TEXT: [7, True, ["a"], {"a": 1}, 1.5],
    TRUTH: ["yes", "true", 1, 0, 1.0, [], {}],
    WHOLE: ["5", True, [5], {}, 10**40, -(10**40), "NaN", 1e308],
    TIME: [7, True, "soon", [], {}, 1e300, "2026-11-30T04:00:00"],
    SPAN: [True, [], {}, "soon", 1e300, 10**40, -1],
    TARGETS: [
        *("a", 7, True, {}, {"a": 1}, [], [7], ["a"], [None], [[]]),
        *([TARGET | {name: 7}] for name in ("provider", "model", "region", "approvedBy")),
        *(
            [TARGET | {name: word}]
            for name in ("approved", "retentionDays")
            for word in ("yes", [])
        ),
        *([TARGET | {name: 7}] for name in ("approvedAt", "approvedUntil")),
        *([TARGET | {name: "soon"}] for name in ("approvedAt", "approvedUntil")),
        *([TARGET | {"features": wrong}] for wrong in ("tools", [7], {"a": 1})),
        [TARGET | {"retentionDays": 10**40}],
        [TARGET | {"nonsense": 1}],
    ],
    "labels": ["a", 7, ["a"], {"a": 1}, {"a": True}],
}


@pytest.mark.parametrize(("method", "path", "good", "fields"), WRITES, ids=lambda v: str(v)[:40])
def test_a_value_of_another_type_is_refused_with_its_field(
    admin: Caller, method: str, path: str, good: dict[str, Any], fields: dict[str, str]
) -> None:
    builders.override(name="standing-override")
    standing = {
        "policies": {"openSeconds": 9},
        "budgets": {"level": "system", "burst": 9},
        "routes": ROUTE,
    }
    versions = {of: admin("PUT", f"/{of}/standing", body)["ETag"] for of, body in standing.items()}
    kind = path.split("/")[1]
    path = path.replace("{override}", "standing-override")
    before = AuditEntry.objects.count()
    for field, of in fields.items():
        for wrong in WRONG[of]:
            body = good | {field: wrong}
            if field == "expiresAt" and "expiresIn" in good:
                del body["expiresIn"]
            read = {"If-Match": versions[kind]} if method == "PATCH" and kind in versions else {}
            answer = admin(method, path, body, **read)
            told = f"{method} {path} {field}={wrong!r}: {answer.status_code} {answer.content!r}"
            assert answer.status_code == 422, told
            assert answer["Content-Type"] == "application/problem+json", told
            named = [fault["field"] for fault in answer.json()["errors"]]
            assert any(re.match(rf"(\w+\.)*{field}(\.|$)", one) for one in named), told
    assert AuditEntry.objects.count() == before


def test_no_write_with_a_body_is_left_out_above() -> None:
    swept = {(method, _place(path.partition("?")[0])) for method, path, _, _ in WRITES}
    for path, methods in api.get_openapi_schema()["paths"].items():
        for method, said in methods.items():
            if "requestBody" in said and "gateway" not in said["tags"]:
                assert (method.upper(), _place(path.removeprefix("/api/v1"))) in swept


def _place(path: str) -> str:
    """Without the names of objects, which stand after each kind."""
    return re.sub(r"^(/[\w-]+/)(?!release-mine)[^/]+", r"\1*", path)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_what_is_no_number_in_json_is_refused(admin: Caller, number: str) -> None:
    body = b'{"openSeconds": ' + number.encode() + b"}"
    answer = admin("PUT", "/policies/fresh", body)
    assert (answer.status_code, answer.json()["code"]) == (400, "not_json")


def test_what_is_meant_is_still_taken(admin: Caller) -> None:
    assert admin("POST", "/overrides", OVERRIDE | {"allowLastHealthy": True}).status_code == 201
    lasting = OVERRIDE | {"model": "gpt-4o", "expiresIn": 600}
    assert admin("POST", "/overrides", {"spec": lasting}).status_code == 201
    made = admin("PUT", "/policies/mine", {"match": {"provider": "openai"}, "openSeconds": 5})
    assert made.status_code == 201
    # An answer can be edited and sent back whole.
    document = made.json()
    document["spec"]["openSeconds"] = 6.5
    again = admin("PUT", "/policies/mine", document)
    assert again.status_code == 200, again.content
    assert BreakerPolicy.objects.get(name="mine").spec["open_seconds"] == 6.5


def test_an_empty_policy_is_refused_unless_it_says_every_circuit(admin: Caller) -> None:
    for method, path in (("PUT", "/policies/all"), ("POST", "/policies/all/apply")):
        for body in ({}, {"spec": {}}, {"spec": {"reason": "why not"}}):
            answer = admin(method, path, body)
            assert answer.status_code == 422
            assert answer.json()["errors"][0]["field"] in ("match", "spec.match")
    assert not BreakerPolicy.objects.filter(name="all").exists()
    assert admin("PUT", "/policies/all", {"spec": {"match": {}}}).status_code == 201


def test_every_operation_refuses_a_parameter_that_it_does_not_have(admin: Caller) -> None:
    asked = 0
    for path, methods in api.get_openapi_schema()["paths"].items():
        for method, said in methods.items():
            if "gateway" in said.get("tags", []) or "health" in said.get("tags", []):
                continue
            asked += 1
            place = re.sub(r"\{[^}]+\}", "1", path.removeprefix("/api/v1"))
            answer = admin(method.upper(), f"{place}?nonsense=1", {})
            assert answer.status_code == 422, f"{method} {path}: {answer.content!r}"
            fault = answer.json()["errors"][0]
            assert fault["field"] == "query.nonsense"
            known = [p["name"] for p in said.get("parameters", []) if p["in"] == "query"]
            assert all(name in fault["message"] for name in known)
    assert asked > 50


def test_who_may_not_is_told_so_first(admin: Caller) -> None:
    assert Client().get("/api/v1/policies?nonsense=1").status_code == 401
    assert Caller("sgs_op")("GET", "/tokens?nonsense=1").status_code == 403


def test_a_method_that_is_not_served_is_a_problem_with_those_that_are(admin: Caller) -> None:
    for method, path, allowed in (
        ("PUT", "/overrides", "GET, POST"),
        ("POST", "/audit", "GET"),
        ("HEAD", "/overrides", "GET, POST"),
        ("DELETE", "/circuits/openai%2Fgpt-4o", "GET"),
        ("PATCH", "/claim", "DELETE, GET, POST"),
    ):
        answer = admin(method, path)
        assert (answer.status_code, answer["Allow"]) == (405, allowed)
        assert answer["Content-Type"] == "application/problem+json"
        if method != "HEAD":
            assert answer.json()["code"] == "method_not_allowed"


@pytest.mark.parametrize("offset", ["+23:59", "-16:00"])
def test_a_time_of_a_far_zone_is_taken(admin: Caller, offset: str) -> None:
    """ISO 8601 has offsets of up to 23:59; Postgres reads none of 16 hours or more."""
    spelled = f"2026-11-30T04:00:00{offset}"
    made = admin("POST", "/annotations", {"text": "deploy", "at": spelled})
    assert made.status_code == 201, made.content
    operations = [
        (path, parameter["name"])
        for path, methods in api.get_openapi_schema()["paths"].items()
        for parameter in methods.get("get", {}).get("parameters", ())
        if "date-time" in str(parameter["schema"])
    ]
    assert len(operations) > 8
    for path, name in operations:
        where = path.removeprefix("/api/v1").replace("{name}", "openai/gpt-4o")
        answer = admin("GET", f"{where}?{name}={quote(spelled)}")
        assert answer.status_code == 200, (path, name, answer.content)
