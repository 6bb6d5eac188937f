"""A real web process over the tests' database, and people in it.

Invariant: the web process runs for the whole session; each test starts from empty tables, and
nobody is connected between two tests, so nothing of one test is seen by the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from playwright.sync_api import Browser, Page

# Loaded before a test's transaction begins: its first request would import every view within it,
# and on a busy machine Postgres ends a transaction that idles for so long.
import controlplane.urls  # noqa: F401
from tests import builders
from tests.browser import chromium, new_page
from tests.dashboard.server import WebProcess, collect_static
from tests.embedded import TestPostgres


@pytest.fixture(scope="session")
def static_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the collected static files."""
    var = tmp_path_factory.mktemp("var")
    collect_static(var)
    return var


@pytest.fixture(scope="session")
def shared_web(
    django_db_setup: None, postgres: TestPostgres, static_files: Path
) -> Iterator[WebProcess]:
    """The session's web process."""
    web = WebProcess(postgres.dsn(settings.DATABASES["default"]["NAME"]), static_files)
    web.start()
    yield web
    web.kill()


@pytest.fixture
def web(transactional_db: None, shared_web: WebProcess) -> Iterator[WebProcess]:
    """The web process over empty tables; running again if the test before has killed it."""
    if shared_web.process is None:
        shared_web.start()
    yield shared_web
    connection.close()


def notify(topic: str = "observed") -> None:
    """Wake every reader, as a commit of the product does."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify('switchgear', %s)", [topic])


def session_cookie(web: WebProcess, client: Client) -> str:
    """The cookie header of a client's session at the web process."""
    return f"switchgear_session_{web.port}={client.cookies[settings.SESSION_COOKIE_NAME].value}"


@pytest.fixture
def oncall(client: Client, db: None) -> Client:
    """A client logged in as an operator."""
    client.force_login(builders.person("oncall"))
    return client


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium of one file's tests."""
    with chromium() as started:
        yield started


@pytest.fixture
def page(browser: Browser, web: WebProcess) -> Iterator[Page]:
    """A page of its own, with nobody logged in; what it complains of fails the test."""
    with new_page(browser) as opened:
        yield opened
