"""A provider's record: written by admins, an address of the web or nothing."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError

from controlplane.actions import providers
from controlplane.actions.actor import Actor
from controlplane.errors import Conflict, Forbidden, InvalidInput, NotFound
from controlplane.models import AuditEntry, Provider, Role
from tests import builders
from tests.controlplane.test_marks import call, token_of

pytestmark = pytest.mark.django_db
ADMIN = Actor("ada", "person", Role.ADMIN)


def write(url: str, version: int | None = None, actor: Actor = ADMIN, name: str = "openai") -> Any:
    return providers.describe(
        actor=actor, name=name, status_url=url, now=builders.now(), expected_version=version
    )


def test_a_record_is_made_changed_and_audited() -> None:
    builders.circuit()
    assert write("https://status.example.com").version == 1
    assert write("http://other.example.com", 1).version == 2
    assert write("http://other.example.com", 2).version == 2  # nothing changed, nothing written
    assert write("", 2).status_url == ""
    entries = AuditEntry.objects.filter(object_kind="Provider").order_by("id")
    assert [(e.action, e.after["status_url"]) for e in entries if e.after] == [
        ("create", "https://status.example.com"),
        ("update", "http://other.example.com"),
        ("update", ""),
    ]


def test_only_an_admin_only_of_a_known_provider_only_the_version_that_was_read() -> None:
    builders.circuit()
    with pytest.raises(Forbidden):
        write("https://a.example", actor=Actor("op", "person", Role.OPERATOR))
    with pytest.raises(NotFound, match="nearest: openai"):
        write("https://a.example", name="opnai")
    with pytest.raises(InvalidInput, match="status_url: write an address that begins with"):
        write("javascript:alert(4)")
    write("https://a.example")
    with pytest.raises(Conflict) as caught:
        write("https://b.example")
    assert caught.value.data["current"]["status_url"] == "https://a.example"


def test_the_database_itself_holds_no_other_scheme() -> None:
    with pytest.raises(IntegrityError, match="provider_status_url_is_http"):
        builders.provider(status_url="javascript:alert(4)")


def test_over_http() -> None:
    builders.circuit()
    admin, viewer = token_of("root", Role.ADMIN), token_of("looker", Role.VIEWER)
    listed = call(viewer, "GET", "/providers").json()["items"]
    assert listed[0]["metadata"] == {
        "name": "openai", "resourceVersion": None, "updatedAt": None, "updatedBy": None,
    }  # fmt: skip
    body = {"spec": {"statusUrl": "https://status.example.com"}}
    assert call(viewer, "PUT", "/providers/openai", body).status_code == 403
    made = call(admin, "PUT", "/providers/openai", body)
    assert (made.status_code, made.headers["ETag"]) == (200, '"1"')
    stale = call(admin, "PUT", "/providers/openai", body | {"metadata": {"resourceVersion": "7"}})
    assert stale.status_code == 409
    odd = call(admin, "PUT", "/providers/openai", {"statusUrl": "file:///etc/passwd"})
    assert odd.status_code == 422
    assert odd.json()["errors"][0]["field"] == "statusUrl"
    assert call(viewer, "GET", "/providers/none").status_code == 404
    assert Provider.objects.get().status_url == "https://status.example.com"
