"""A browser over the tests' web process (`web`, in the fixtures of all), and people in it."""

from __future__ import annotations

from collections.abc import Iterator

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
from tests.dashboard.server import WebProcess


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
