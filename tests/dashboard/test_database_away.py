"""With Postgres away a page is a 503 that waits, the API a problem document; never a 500."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections
from django.test import Client
from playwright.sync_api import expect

from controlplane.local.ports import free_port
from controlplane.models.pool import conninfo
from tests import builders
from tests.browser import chromium, new_page
from tests.dashboard.server import WebProcess
from tests.dashboard.test_browser import log_in

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def client() -> Client:
    known = Client()
    known.force_login(builders.person("oncall"))
    return known


@pytest.fixture
def away(client: Client) -> Iterator[None]:
    """Nothing listens where Postgres was."""
    port = connection.settings_dict["PORT"]
    connection.close()
    connection.settings_dict["PORT"] = free_port()
    yield
    connection.close()
    connection.settings_dict["PORT"] = port


@pytest.mark.usefixtures("away")
@pytest.mark.parametrize("path", ["/", "/circuits", "/log-in?next=/", "/report"])
def test_a_page_is_a_503_that_waits(client: Client, path: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer["Retry-After"]) == (503, "5")
    assert answer["Cache-Control"] == "no-store"
    text = answer.content.decode()
    assert "database does not answer" in text
    assert "dashboard/away" in text
    assert "Traceback" not in text
    assert "connection" not in text


@contextmanager
def unreadable(table: str) -> Iterator[None]:
    """Nobody gets to a table, and a statement waits for a quarter of a second and no longer."""
    with psycopg.connect(conninfo()) as other, connection.cursor() as cursor:
        other.execute(f"LOCK TABLE {table}".encode())
        cursor.execute("SET statement_timeout = '250ms'")
        try:
            yield
        finally:
            cursor.execute("RESET statement_timeout")


def test_a_page_that_takes_too_long_says_so_and_does_not_ask_again(client: Client) -> None:
    with unreadable("circuit"):
        answer = client.get("/circuits")
    assert (answer.status_code, answer["Retry-After"]) == (503, "60")
    text = answer.content.decode()
    assert "took longer than a statement may" in text
    assert "dashboard/away" not in text
    assert "does not answer" not in text


def test_an_answer_of_the_api_that_takes_too_long_says_so(client: Client) -> None:
    with unreadable("circuit"):
        answer = client.get("/api/v1/circuits")
    assert (answer.status_code, answer["Retry-After"]) == (503, "60")
    assert (answer.json()["code"], answer.json()["title"]) == ("too_slow", "Too slow")


@pytest.mark.parametrize("path", ["/report", "/report.csv", "/api/v1/reports/weekly"])
def test_a_week_that_takes_too_long_says_what_is_not_derived(client: Client, path: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE rollup_watermark SET upto = now() - '40 days'::interval")
    try:
        with unreadable("rollup_hour_split"):
            answer = client.get(path)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE rollup_watermark SET upto = date_trunc('hour', now())")
    assert answer.status_code == 503
    # One more or less in the week in which clocks change.
    assert re.search("16[789] hours of", answer.content.decode())
    assert "try again in some minutes" in answer.content.decode()
    with unreadable("rollup_hour_split"):
        answer = client.get(path)
    assert answer.status_code == 503
    assert "not derived" not in answer.content.decode()
    assert "took longer than a statement may" in answer.content.decode()


@pytest.mark.usefixtures("away")
def test_who_wrote_is_told_that_it_may_not_have_been_kept(client: Client) -> None:
    answer = client.post("/incident/claim", {"act": "claim"})
    assert answer.status_code == 503
    assert "may not have been kept" in answer.content.decode()
    assert "dashboard/away" not in answer.content.decode()


@pytest.mark.usefixtures("away")
def test_the_api_says_so_in_a_problem_document(client: Client) -> None:
    answer = client.get("/api/v1/circuits")
    assert (answer.status_code, answer["Content-Type"]) == (503, "application/problem+json")
    assert int(answer["Retry-After"]) > 0
    assert "does not answer" in answer.json()["detail"]


def test_any_other_error_is_still_a_500(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dashboard.views.wall.compose", None)
    client.raise_request_exception = False
    assert client.get("/").status_code == 500


@contextmanager
def refusing() -> Iterator[None]:
    """Postgres takes no connection to the tests' database, and lets go of every one but ours."""
    name = connection.settings_dict["NAME"]
    with (
        psycopg.connect(conninfo(), dbname="postgres", autocommit=True) as other,
        connection.cursor() as ours,
    ):
        ours.execute("SELECT pg_backend_pid()")
        [pid] = ours.fetchone()
        other.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        try:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = %s AND pid <> %s",
                [name, pid],
            )
            yield
        finally:
            other.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
            # The thread in which asynchronous tests ask Django has lost its connection, too.
            with ThreadPoolExecutor(1) as beside:
                beside.submit(asyncio.run, sync_to_async(connections.close_all)()).result()


@pytest.mark.browser
def test_the_page_comes_by_itself_when_the_database_is_back(web: WebProcess) -> None:
    with chromium() as browser, new_page(browser) as page:
        log_in(page, web)
        with refusing():
            answer = page.goto(f"{web.url}/circuits")
            assert answer is not None
            assert answer.status == 503
            expect(page.locator("h1")).to_contain_text("database does not answer")
        expect(page.locator("h1")).to_contain_text("Circuits", timeout=60_000)
