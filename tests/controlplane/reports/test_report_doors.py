"""The report's page, file and API: who gets in, what they say, what a bad question is told."""

from __future__ import annotations

import csv
import io
import json
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.test import Client

from controlplane.actions import tokens
from controlplane.actions.actor import SYSTEM
from controlplane.models import Gateway, Role
from tests import builders
from tests.controlplane.ingest import batches
from tests.controlplane.ingest.conftest import Sender
from tests.controlplane.reports.test_weekly import LONDON, last_week, now, prices

HOSTILE = "=cmd|' /C calc'!A0<script>alert(1)</script>"


@pytest.fixture
def viewer(client: Client, transactional_db: None) -> Client:
    client.force_login(builders.person("looker", Role.VIEWER))
    return client


@pytest.fixture
def bearer(transactional_db: None) -> dict[str, str]:
    issued = tokens.issue(actor=SYSTEM, name="reader", role="viewer", now=now())
    return {"Authorization": f"Bearer {issued.token}"}


async def a_week(sender: Sender) -> None:
    """A few tasks of last week, one of a tenant with a hostile name."""
    await sync_to_async(prices)()
    at = last_week().bounds(LONDON)[0] + timedelta(days=2, hours=10)
    events: list[dict[str, Any]] = []
    for number in range(5):
        request = batches.attempt(at)["request"]
        whose = {"request": request, "tenant": HOSTILE if number == 0 else "acme"}
        events += [
            batches.attempt(at, **whose, model="gpt-4o" if number else "unpriced"),
            batches.outcome(at + timedelta(seconds=1), **whose),
        ]
    await sender.send(batches.batch(*events))


async def test_the_page_shows_the_figures_and_allows_only_styles(
    sender: Sender, viewer: Client
) -> None:
    await a_week(sender)
    answer = await sync_to_async(viewer.get)("/report", {"by": "tenant"})
    text = answer.content.decode()
    assert answer.status_code == 200
    assert "Cost per successful task" in text
    assert "1 attempt of 5 cannot be priced" in text
    assert "acme" in text
    assert HOSTILE not in text
    assert "Simulated" not in text
    directives = answer.headers["Content-Security-Policy"].split(";")
    policy = {name: set(values) for name, *values in (part.split() for part in directives)}
    assert policy["script-src"] == {"'self'"}
    assert policy["style-src"] == {"'self'", "'unsafe-inline'"}
    assert policy["default-src"] == {"'none'"}
    data = text.partition('<script id="charts" type="application/json">')[2]
    assert set(json.loads(data.partition("</script>")[0])) == {"line-chart", "day-chart"}


async def test_simulated_figures_are_marked_wherever_they_are_shown(
    sender: Sender, viewer: Client
) -> None:
    await a_week(sender)
    gateways = Gateway.objects.filter(pk=sender.gateway_id)
    await sync_to_async(gateways.update)(labels={"simulated": "true"})
    name = await sync_to_async(lambda: gateways.get().name)()
    page = await sync_to_async(viewer.get)("/report")
    assert f"<b>Simulated.</b> These figures count what {name} reported" in page.content.decode()
    file = await sync_to_async(viewer.get)("/report.csv")
    assert {row["simulated"] for row in read(file.content) if row["attempts"] != "0"} == {name}
    document = (await sync_to_async(viewer.get)("/api/v1/reports/weekly")).json()
    assert document["status"]["simulated"] == [name]


def read(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


async def test_the_file_holds_exact_numbers_and_no_formula(sender: Sender, viewer: Client) -> None:
    await a_week(sender)
    asked = {"week": str(last_week()), "by": "tenant"}
    first = await sync_to_async(viewer.get)("/report.csv", asked)
    again = await sync_to_async(viewer.get)("/report.csv", asked)
    assert first.content == again.content
    assert first.headers["Content-Type"].startswith("text/csv")
    assert f"switchgear-{last_week()}-by-tenant.csv" in first.headers["Content-Disposition"]
    rows = {row["tenant"]: row for row in read(first.content) if row["week"] == asked["week"]}
    assert set(rows) == {f"'{HOSTILE}", "acme", "(total)"}
    costs = await sender.rows("attempt", "sum(cost_gbp)")
    assert rows["(total)"]["cost_gbp"] == f"{costs[0][0]:f}".rstrip("0")
    assert rows[f"'{HOSTILE}"]["cost_gbp"] == ""
    assert rows[f"'{HOSTILE}"]["unpriced_attempts"] == "1"
    assert rows["(total)"]["retry_ratio"] == "0"


async def test_the_api_answers_strict_json(
    sender: Sender, bearer: dict[str, str], client: Client
) -> None:
    await a_week(sender)
    answer = await sync_to_async(client.get)("/api/v1/reports/weekly", headers=bearer)
    document = json.loads(answer.content, parse_constant=pytest.fail)
    assert (document["kind"], document["spec"]["by"]) == ("WeeklyReport", "circuit")
    status = document["status"]
    names = {line["name"]: line for line in status["lines"]}
    assert set(names) == {"openai/gpt-4o", "openai/unpriced"}
    assert names["openai/unpriced"]["costGbp"] is None
    assert isinstance(names["openai/gpt-4o"]["costGbp"], str)
    assert status["total"]["tasksSucceeded"] == 5
    assert status["before"]["total"]["costPerSuccessfulTaskGbp"] is None
    assert [day["attempts"] for day in status["days"]] == [0, 0, 5, 0, 0, 0, 0]
    file = await sync_to_async(client.get)("/api/v1/reports/weekly.csv", headers=bearer)
    assert read(file.content)[0]["circuit"] == "openai/gpt-4o"


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"week": "2026-W54"}, "week"),
        ({"week": "last"}, "week"),
        ({"zone": "Europe/Londn"}, "zone"),
        ({"by": "model"}, "by"),
        ({"zone": "a\x00b"}, "zone"),
    ],
)
def test_a_bad_question_is_named(
    viewer: Client, bearer: dict[str, str], asked: dict[str, str], field: str
) -> None:
    answer = Client().get("/api/v1/reports/weekly", asked, headers=bearer)
    # A NUL is refused at the API's door already, whatever the question.
    assert answer.status_code == (400 if "\x00" in "".join(asked.values()) else 422)
    assert [error["field"] for error in answer.json()["errors"]] == [field]
    page = viewer.get("/report", asked)
    assert page.status_code == 422
    assert 'role="alert"' in page.content.decode()
    assert viewer.get("/report.csv", asked).status_code == 422


@pytest.mark.parametrize("path", ["/report", "/report.csv"])
def test_a_stranger_is_sent_to_log_in(client: Client, transactional_db: None, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 302
    assert Client().get("/api/v1/reports/weekly").status_code == 401


def test_an_empty_product_has_an_empty_report(viewer: Client) -> None:
    text = viewer.get("/report").content.decode()
    assert "Nothing was reported in this week" in text
    assert "NaN" not in text
    assert "£0.00" not in text


def test_a_running_and_a_forgotten_week_say_so(viewer: Client) -> None:
    running = str(last_week().shifted(1))
    assert "This week is not over" in viewer.get("/report", {"week": running}).content.decode()
    old = viewer.get("/report", {"week": "2024-W07"}).content.decode()
    assert "no longer kept: it is incomplete" in old


def test_weeks_of_other_zones(viewer: Client) -> None:
    page = viewer.get("/report", {"week": "2026-W43", "zone": "Europe/London"}).content.decode()
    assert "Europe/London, 169 h" in page
