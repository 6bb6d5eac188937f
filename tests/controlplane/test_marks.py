"""Marks and the claim over HTTP: audited, bounded, and never held by two."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from controlplane.actions import claims, tokens
from controlplane.actions.actor import SYSTEM, Actor
from controlplane.errors import Conflict
from controlplane.models import Annotation, AuditEntry, Claim, Role
from tests import builders

pytestmark = pytest.mark.django_db


def call(token: str, method: str, path: str, body: Any = None, **headers: str) -> Any:
    return Client().generic(
        method,
        f"/api/v1{path}",
        data=json.dumps(body) if body is not None else b"",
        content_type="application/json",
        headers={"Authorization": f"Bearer {token}"} | headers,
    )


def token_of(name: str, role: Role) -> str:
    return tokens.issue(actor=SYSTEM, name=name, role=role.value, now=builders.now()).token


@pytest.fixture
def operator(db: None) -> str:
    return token_of("robot", Role.OPERATOR)


def test_a_mark_is_made_listed_and_taken_away(operator: str) -> None:
    made = call(operator, "POST", "/annotations", {"spec": {"text": "deploy 2.14.1"}})
    assert made.status_code == 201, made.content
    name = made.json()["metadata"]["name"]
    listed = call(operator, "GET", "/annotations").json()["items"]
    assert [item["spec"]["text"] for item in listed] == ["deploy 2.14.1"]
    assert call(operator, "DELETE", f"/annotations/{name}?reason=wrong+day").status_code == 200
    assert not Annotation.objects.exists()
    assert [
        e.action for e in AuditEntry.objects.filter(object_kind="Annotation").order_by("id")
    ] == [
        "create",
        "delete",
    ]


def test_the_same_key_writes_one_mark(operator: str) -> None:
    for _ in range(2):
        answer = call(
            operator, "POST", "/annotations", {"text": "deploy"}, **{"Idempotency-Key": "once"}
        )
        assert answer.status_code == 201
    assert Annotation.objects.count() == 1


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"text": ""}, "spec.text"),
        ({"text": "a\x00b"}, "spec.text"),
        ({"text": "x" * 201}, "spec.text"),
        ({"text": "x", "at": "2020-01-01T00:00:00Z"}, "spec.at"),
        ({"text": "x", "at": "no time"}, "spec.at"),
        ({"text": "x", "colour": "red"}, "spec.colour"),
    ],
)
def test_a_mark_that_cannot_be_kept_names_its_field(
    operator: str, spec: dict[str, str], field: str
) -> None:
    answer = call(operator, "POST", "/annotations", {"spec": spec})
    assert answer.status_code == 422
    assert [e["field"] for e in answer.json()["errors"]] == [field]


def test_a_viewer_may_read_and_not_write(db: None) -> None:
    viewer = token_of("reader", Role.VIEWER)
    assert call(viewer, "GET", "/annotations").status_code == 200
    assert call(viewer, "POST", "/annotations", {"text": "x"}).status_code == 403
    assert call(viewer, "POST", "/claim", {}).status_code == 403
    assert call(viewer, "GET", "/claim").json()["holder"] is None


def test_a_mark_that_is_not_there_is_a_404(operator: str) -> None:
    for name in ("nothing", "00000000-0000-4000-8000-000000000000"):
        assert call(operator, "DELETE", f"/annotations/{name}").status_code == 404


def someone(name: str) -> Actor:
    return Actor(name, "person", Role.OPERATOR)


def test_a_claim_stands_until_it_is_taken_over(db: None) -> None:
    now = builders.now()
    claims.claim(actor=someone("one"), now=now)
    with pytest.raises(Conflict) as refused:
        claims.claim(actor=someone("two"), now=now)
    assert refused.value.data["current"]["holder"] == "one"
    claims.claim(actor=someone("two"), now=now, take_over=True)
    assert Claim.objects.get(ended_at=None).holder == "two"
    entry = AuditEntry.objects.order_by("-id").first()
    assert entry is not None
    assert entry.before["holder"] == "one"
    with pytest.raises(Conflict):
        claims.give_up(actor=someone("one"), now=now)
    claims.give_up(actor=someone("two"), now=now)
    assert not Claim.objects.filter(ended_at=None).exists()


def test_a_claim_whose_time_has_passed_holds_nobody_back(db: None) -> None:
    now = builders.now()
    claims.claim(actor=someone("one"), now=now - timedelta(hours=2))
    claims.claim(actor=someone("two"), now=now)
    first, second = Claim.objects.order_by("id")
    assert first.ended_at == first.expires_at
    assert (second.holder, second.ended_at) == ("two", None)


def test_claiming_again_moves_the_end(db: None) -> None:
    now = builders.now()
    claims.claim(actor=someone("one"), now=now)
    later = now + timedelta(minutes=30)
    claims.claim(actor=someone("one"), now=later)
    assert Claim.objects.get(ended_at=None).expires_at == later + claims.DEFAULT


@pytest.mark.parametrize("minutes", [0, -5, 12 * 60 + 1, -(10**19), 10**19])
def test_a_claim_is_for_twelve_hours_at_most(operator: str, minutes: int) -> None:
    answer = call(operator, "POST", "/claim", {"minutes": minutes})
    assert answer.status_code == 422
    assert not Claim.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_two_at_once_do_not_both_have_it() -> None:
    barrier, results = threading.Barrier(2), []

    def try_it(name: str) -> None:
        barrier.wait(10)
        try:
            claims.claim(actor=someone(name), now=builders.now())
            results.append("claimed")
        except Conflict:
            results.append("refused")
        finally:
            connection.close()

    people = [threading.Thread(target=try_it, args=(name,)) for name in ("one", "two")]
    for person in people:
        person.start()
    for person in people:
        person.join(20)
    assert sorted(results) == ["claimed", "refused"]


@pytest.mark.parametrize(
    "path",
    [
        "/annotations?to=8052-04-23T00:36:03%2B22:07",
        "/annotations?to=0001-01-01T00:00:00Z",
        "/audit?from=9999-12-31T23:00:00-10:00",
        "/audit.csv?to=0009-01-07T15:37:38-16:38",
    ],
)
def test_a_time_at_the_end_of_the_calendar_is_refused_with_its_field(
    operator: str, path: str
) -> None:
    answer = call(operator, "GET", path)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] in ("from", "to")
