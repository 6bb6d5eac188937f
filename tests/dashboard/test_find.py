"""Find by a part of a name or by a whole id; a task's trace in the order in which it happened."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client

from controlplane.reports import finding
from tests import builders

pytestmark = pytest.mark.django_db

_ATTEMPT = """
INSERT INTO attempt (gateway_id, instance_id, circuit_id, id, occurred_at, received_at, request,
    task, ordinal, role, rerouted, key, tenant, route, status, verdict, reason, counts, ended_ms,
    waited_ms, tokens_estimated, service_tier, billing, served, generation, cost_gbp, cost_status)
VALUES (%s, %s, %s, gen_random_uuid(), %s, %s, %s, %s, %s, %s, false, 'main', 'retail', 'chat', %s,
    %s, %s, %s, 800, 0, false, '', 'billed', %s, 1, %s, 'priced')
"""
_OUTCOME = """
INSERT INTO outcome (gateway_id, instance_id, id, occurred_at, received_at, request, task, tenant,
    route, success, explicit, reason, latency_ms, waited_ms)
VALUES (%s, %s, gen_random_uuid(), %s, %s, %s, %s, 'retail', 'chat', true, false, '', 1700, 0)
"""
_TASK = """
INSERT INTO task (gateway_id, tenant, task, first_started_at, last_ended_at, implicit_at,
    implicit_success)
VALUES (%s, 'retail', %s, %s, %s, %s, true)
"""


def a_request(task: str | None) -> uuid.UUID:
    """A request with one failed attempt and one that served."""
    one = builders.instance(builders.gateway("chat"))
    first, second = builders.circuit(), builders.circuit("mistral", "mistral-large", "eu")
    request, at = uuid.uuid4(), builders.ago(60)
    end = at + timedelta(seconds=2)
    with connection.cursor() as cursor:
        cursor.execute("SELECT switchgear_ensure_days(%s, %s)", [at.date(), end.date()])
        for ordinal, circuit, role, status, verdict, reason, served, cost in (
            (1, first, "first", 503, "retryable", "overloaded", False, "0.001"),
            (2, second, "fallback", 200, "success", "", True, "0.02"),
        ):
            moment = at + timedelta(seconds=ordinal - 1)
            cursor.execute(_ATTEMPT, [
                one.gateway_id, one.pk, circuit.pk, moment, moment, request, task, ordinal, role,
                status, verdict, reason, verdict != "success", served, cost])  # fmt: skip
        cursor.execute(_OUTCOME, [one.gateway_id, one.pk, end, end, request, task])
        if task is not None:
            cursor.execute(_TASK, [one.gateway_id, task, at, end, end])
    return request


def test_a_task_id_leads_straight_to_its_trace(oncall: Client) -> None:
    a_request("invoice/7 <b>")
    answer = oncall.get("/find", {"q": "invoice/7 <b>"}, follow=True)
    text = answer.content.decode()
    assert answer.status_code == 200
    assert "invoice/7 &lt;b&gt;" in text
    assert text.index("overloaded") < text.index("success 200, served")
    assert "openai/gpt-4o@us-east" in text
    assert "2.1p" in text
    assert "fallback" in text


def test_a_request_without_a_task_is_found_by_its_own_id(oncall: Client) -> None:
    request = a_request(None)
    text = oncall.get("/find", {"q": str(request)}, follow=True).content.decode()
    assert "Succeeded" in text
    assert "refused by" not in text
    assert text.count("attempt") >= 2


def test_names_are_found_by_any_of_their_parts(oncall: Client) -> None:
    builders.instance(builders.gateway("chat-lhr"), "chat-lhr/0")
    builders.circuit("openai", "gpt-4o", "us-east")
    text = oncall.get("/find", {"q": "gpt us-ea"}).content.decode()
    assert "openai/gpt-4o@us-east" in text
    assert "chat-lhr" not in text
    text = oncall.get("/find", {"q": "lhr"}).content.decode()
    assert "chat-lhr/0" in text
    assert "gpt-4o" not in text


@pytest.mark.parametrize("q", ["", "nothing like it", "%", "_", "'; DROP TABLE task; --", "\ud7ff"])
def test_what_is_not_there_is_said_so(oncall: Client, q: str) -> None:
    builders.circuit()
    answer = oncall.get("/find", {"q": q})
    assert answer.status_code == 200
    assert "gpt-4o" not in answer.content.decode()


def test_a_task_that_is_not_known_says_so_and_how_to_look(oncall: Client) -> None:
    builders.gateway("chat")
    answer = oncall.get("/tasks/none?gateway=chat&tenant=a")
    text = answer.content.decode()
    assert answer.status_code == 404
    assert "No such task is known" in text
    assert "Raw events are kept for 35 days" in text
    assert "No gateway is named" not in text
    answer = oncall.get("/tasks/<b>?gateway=nowhere&tenant=a")
    text = answer.content.decode()
    assert answer.status_code == 404
    assert "No gateway is named <b>nowhere</b>" in text
    assert "&lt;b&gt;" in text
    for odd in ("/tasks/a%00b", "/tasks/%ff", "/tasks/x?gateway=%00&tenant=%ed%a0%80"):
        assert oncall.get(odd).status_code == 404


def test_a_task_asked_for_in_the_wrong_place_is_shown_where_it_is_known(oncall: Client) -> None:
    a_request("invoice 7")
    answer = oncall.get("/tasks/invoice 7?gateway=chat&tenant=another")
    assert answer.status_code == 404
    assert "It is known elsewhere" in answer.content.decode()
    assert "/tasks/invoice%207?gateway=chat&amp;tenant=retail" in answer.content.decode()


def test_a_task_known_once_needs_no_gateway_and_no_tenant(oncall: Client) -> None:
    request = a_request("invoice 7")
    for asked in ("/tasks/invoice 7", "/tasks/invoice 7?tenant=retail", f"/tasks/{request}"):
        answer = oncall.get(asked)
        assert answer.status_code == 302
        assert answer["Location"] == "/tasks/invoice%207?gateway=chat&tenant=retail"
        assert "overloaded" in oncall.get(answer["Location"]).content.decode()


def test_a_task_known_at_several_tenants_is_never_guessed(oncall: Client) -> None:
    a_request("invoice 7")
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO task (gateway_id, tenant, task, implicit_at, implicit_success)"
            " SELECT gateway_id, 'wholesale', task, implicit_at, true FROM task"
        )
    answer = oncall.get("/tasks/invoice 7?gateway=chat")
    text = answer.content.decode()
    assert answer.status_code == 200
    assert "is known at several places" in text
    assert "overloaded" not in text
    for tenant in ("retail", "wholesale"):
        assert f"/tasks/invoice%207?gateway=chat&amp;tenant={tenant}" in text


def test_every_list_is_short() -> None:
    for number in range(30):
        builders.circuit("openai", f"model-{number}", "eu")
    assert len(finding.find("model", builders.now()).circuits) == finding.MOST
