"""Lost telemetry is visible to a person: the page says what the API says, and no more."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client

from controlplane.models import Instance, Role
from tests import builders

pytestmark = pytest.mark.django_db
BODY = b'{"kind": "attempt", "ordinal": 0, "tenant": "<b>acme</b>"}'


def _receipt(of: Instance, seq: int, late: int = 0, skewed: int = 0) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO receipt (gateway_id, instance_id, seq, received_at, sent_at, stored,"
            " duplicates, late, skewed) VALUES (%s, %s, %s, now(), now(), 0, 0, %s, %s)",
            [of.gateway_id, of.pk, seq, late, skewed],
        )


def _letter(of: Instance) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO dead_letter (gateway_id, instance_id, seq, index, received_at, reason,"
            " body) VALUES (%s, %s, 7, 3, now(), 'ordinal: expected int >= 1', %s)",
            [of.gateway_id, of.pk, BODY],
        )


def _text(client: Client, path: str = "/telemetry") -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return answer.content.decode()


@pytest.fixture
def losing() -> Instance:
    """One that lacks two batches, has given events up, came late, runs ahead, was misread."""
    one = builders.instance(
        builders.gateway("chat-lhr"),
        "losing/0",
        contiguous_seq=3,
        highest_seq=9,
        spool={"dropped": 41, "dropped_by_kind": {"refusal": 1, "attempt": 40}},
        replaced_at=builders.ago(600),
    )
    builders.gap(one, 4, 5)
    builders.gap(one, 8, 8, since=builders.ago(1))
    _receipt(one, 6, late=120, skewed=17)
    _letter(one)
    return one


def test_each_loss_is_told(oncall: Client, losing: Instance) -> None:
    sound = builders.instance(builders.gateway("chat-fra"), "sound/0")
    text = _text(oncall)
    for words in (
        "2 lost batches",
        "1 batch on its way",
        "41 dropped events",
        "40 attempt, 1 refusal",
        "1 dead letter",
        "120 late events",
        "17 events ahead of our clock",
        "1 slot with two living processes",
    ):
        assert words in text
    assert losing.slot in text
    assert sound.slot not in text
    assert "&lt;b&gt;acme" in text
    assert "<b>acme" not in text


def test_a_viewer_sees_the_reason_and_not_what_was_sent(client: Client, losing: Instance) -> None:
    client.force_login(builders.person("looker", Role.VIEWER))
    text = _text(client)
    assert "expected int" in text
    assert "acme" not in text


def test_one_gateway_alone(oncall: Client, losing: Instance) -> None:
    builders.gateway("chat-fra")
    assert losing.slot in _text(oncall, "/telemetry?gateway=chat-lhr")
    other = _text(oncall, "/telemetry?gateway=chat-fra")
    assert losing.slot not in other
    assert "Nothing is missing of chat-fra" in other
    for unknown in ("nobody", "a/b", "%00x", "..%2F"):
        assert oncall.get(f"/telemetry?gateway={unknown}").status_code == 404


def test_the_wall_says_that_events_were_dropped(oncall: Client) -> None:
    builders.instance(builders.gateway("chat-lhr"), spool={"dropped": 5})
    assert "1 instance with lost telemetry" in _text(oncall, "/")


def test_the_wall_waits_for_a_batch_that_another_overtook(oncall: Client) -> None:
    one = builders.instance(builders.gateway("chat-lhr"))
    builders.gap(one, 4, 5, since=builders.ago(1))
    assert "with lost telemetry" not in _text(oncall, "/")
    builders.gap(one, 8, 8)
    assert "1 instance with lost telemetry" in _text(oncall, "/")


def test_pages_lead_to_it(oncall: Client, losing: Instance) -> None:
    for page in ("/", "/gateways", "/gateways/chat-lhr"):
        assert 'href="/telemetry' in _text(oncall, page)


def test_a_column_that_no_condition_fills_is_left_out(oncall: Client) -> None:
    """While all is well every line said "– not kept" and "–"; an object's page has them filled."""
    text = _text(oncall)
    assert "<th>Condition</th>" in text
    assert "Of generation" not in text
    builders.retry_budget("patient")
    assert "Of generation" in _text(oncall, "/budgets/patient")
