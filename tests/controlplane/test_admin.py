"""What only admins may do, over HTTP: every sibling is checked, whatever the body."""

import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from controlplane.actions import people, tokens
from controlplane.actions.actor import SYSTEM
from controlplane.errors import Conflict
from controlplane.models import AuditEntry, Gateway, GatewayToken, Person, Role, ServiceToken
from tests import builders
from tests.controlplane.test_api import Caller

pytestmark = pytest.mark.django_db

WRITES: list[tuple[str, str, Any]] = [
    ("POST", "/gateways", {"name": "eu-1"}),
    ("POST", "/gateways/demo/tokens", {}),
    ("DELETE", "/gateways/demo/tokens/1", None),
    ("POST", "/tokens", {"name": "ci", "role": "admin"}),
    ("DELETE", "/tokens/admin-tests", None),
    ("POST", "/people", {"name": "eve", "password": "a-long-password-1", "role": "admin"}),
    ("PATCH", "/people/oncall", {"role": "admin"}),
    ("PATCH", "/people/oncall", {"permissions": {}}),
    ("PATCH", "/people/oncall", {"role": None}),
]
LISTS = ["/tokens", "/people", "/gateways/demo/tokens"]


def caller(role: Role) -> Caller:
    issued = tokens.issue(actor=SYSTEM, name=f"{role}-tests", role=role.value, now=builders.now())
    return Caller(issued.token)


@pytest.fixture
def admin() -> Caller:
    builders.gateway("demo")
    builders.person("oncall")
    return caller(Role.ADMIN)


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
def test_nobody_else_may(admin: Caller, role: Role) -> None:
    other = caller(role)
    before = AuditEntry.objects.count()
    for method, path, body in WRITES:
        assert other(method, path, body).status_code == 403, (path, body)
    for path in LISTS:
        assert other("GET", path).status_code == 403, path
    assert AuditEntry.objects.count() == before
    assert Person.objects.get(username="oncall").role == Role.OPERATOR


def test_a_gateway_is_made_and_its_token_works_until_revoked(admin: Caller) -> None:
    made = admin("POST", "/gateways", {"name": "eu-1", "labels": {"tier": "eu"}})
    assert made.status_code == 201
    assert made.json()["status"]["token"].startswith("sgg_")
    second = admin("POST", "/gateways/eu-1/tokens", {}).json()["status"]["token"]
    rows = GatewayToken.objects.filter(gateway__name="eu-1", revoked_at=None).order_by("id")
    assert rows.count() == 2
    first = rows[0]
    assert admin("DELETE", f"/gateways/eu-1/tokens/{first.pk}").status_code == 204
    assert list(rows.values_list("id", flat=True)) != [first.pk]
    assert second not in json.dumps(list(AuditEntry.objects.values("after")), default=str)
    assert admin("POST", "/gateways", {"name": "eu-1"}).status_code == 409
    assert admin("POST", "/gateways", {"name": "eu 1"}).status_code == 422
    assert admin("POST", "/gateways", {"name": "x", "labels": {"a b": "c"}}).status_code == 422
    assert Gateway.objects.filter(name="x").exists() is False


def test_a_service_token_has_a_role_and_an_end(admin: Caller) -> None:
    ends = (builders.now() + timedelta(days=30)).isoformat()
    body = {"name": "ci", "role": "viewer", "expiresAt": ends}
    token = admin("POST", "/tokens", body).json()["status"]["token"]
    assert Caller(token)("GET", "/overrides").status_code == 200
    assert admin("DELETE", "/tokens/ci").status_code == 204
    assert Caller(token)("GET", "/overrides").status_code == 401
    assert ServiceToken.objects.get(name="ci").revoked_at is not None
    assert admin("POST", "/tokens", {"name": "ci2", "role": "root"}).status_code == 422


def test_people_are_made_changed_and_switched_off(admin: Caller) -> None:
    body = {"name": "eve", "password": "a-long-password-1", "role": "viewer"}
    assert admin("POST", "/people", body).status_code == 201
    assert admin("POST", "/people", body | {"name": "EVE"}).status_code == 409
    weak = admin("POST", "/people", body | {"name": "eve2", "password": "12345678"})
    assert weak.json()["errors"][0]["field"] == "password"
    assert admin("PATCH", "/people/eve", {"role": "operator"}).json()["spec"]["role"] == "operator"
    assert admin("PATCH", "/people/eve", {"active": False}).json()["spec"]["active"] is False
    assert admin("PATCH", "/people/nobody", {"active": False}).status_code == 404
    assert "a-long-password-1" not in json.dumps(
        list(AuditEntry.objects.values("before", "after")), default=str
    )


def test_the_last_admin_stays() -> None:
    builders.person("root", Role.ADMIN)
    with pytest.raises(Conflict, match="no active admin"):
        people.update(actor=SYSTEM, name="root", role="viewer", now=builders.now())
    with pytest.raises(Conflict, match="no active admin"):
        people.update(actor=SYSTEM, name="root", active=False, now=builders.now())
    assert Person.objects.get(username="root").is_active


def test_credentials_are_listed_without_their_secrets(admin: Caller) -> None:
    soon = (builders.now() + timedelta(days=1)).isoformat()
    body = {"name": "ci", "role": "viewer", "expiresAt": soon}
    secret = admin("POST", "/tokens", body).json()["status"]["token"]
    first = admin("POST", "/gateways/demo/tokens", {}).json()
    second = admin("POST", "/gateways/demo/tokens", {"expiresAt": soon}).json()
    assert admin("DELETE", f"/gateways/demo/tokens/{first['metadata']['id']}").status_code == 204
    ServiceToken.objects.filter(name="ci").update(expires_at=builders.ago(1))
    texts = [admin("GET", path).content.decode() for path in LISTS]
    for told in (secret, first["status"]["token"], second["status"]["token"], "sha256", "password"):
        assert not any(told in text for text in texts)
    states = {i["metadata"]["name"]: i["status"]["state"] for i in json.loads(texts[0])["items"]}
    assert states == {"admin-tests": "Valid", "ci": "Expired"}
    listed = {i["metadata"]["id"]: i["status"]["state"] for i in json.loads(texts[2])["items"]}
    assert listed[first["metadata"]["id"]] == "Revoked"
    assert listed[second["metadata"]["id"]] == "Valid"
    assert [i["metadata"]["name"] for i in json.loads(texts[1])["items"]] == ["oncall"]
    assert admin("GET", "/gateways/nobody/tokens").status_code == 404


@pytest.mark.parametrize("path", ["/tokens", "/gateways/demo/tokens"])
@pytest.mark.parametrize("at", ["2020-01-01T00:00:00Z", "2040-01-01T00:00:00"])
def test_an_end_that_has_passed_or_has_no_offset_is_a_422(
    admin: Caller, path: str, at: str
) -> None:
    body = {"expiresAt": at} | ({"name": "ci", "role": "viewer"} if path == "/tokens" else {})
    answer = admin("POST", path, body)
    assert answer.status_code == 422
    assert [fault["field"] for fault in answer.json()["errors"]] == ["expiresAt"]


def test_the_first_admins_token_comes_from_the_database_host() -> None:
    said = io.StringIO()
    call_command("create_token", "me", "--role", "admin", "--days", "30", stdout=said)
    secret = said.getvalue().strip()
    assert Caller(secret)("POST", "/gateways", {"name": "eu-1"}).status_code == 201
    row = ServiceToken.objects.get(name="me")
    assert row.expires_at is not None
    assert (row.role, row.expires_at - row.created_at) == ("admin", timedelta(days=30))
    assert secret not in json.dumps([e.after for e in AuditEntry.objects.all()])
    assert AuditEntry.objects.filter(action="issue_token", object_name="me").exists()


@pytest.mark.parametrize(
    "wrong", [("me",), ("a/b c",), ("new", "--days", "0"), ("new", "--days", "9999999")]
)
def test_a_token_that_cannot_be_made_says_why(wrong: tuple[str, ...]) -> None:
    call_command("create_token", "me", "--role", "viewer", stdout=io.StringIO())
    with pytest.raises(CommandError, match=r"named me already|name|expires_at|days"):
        call_command("create_token", *wrong, "--role", "admin", stdout=io.StringIO())
