"""The wall when there is nothing, when it is not told, when it cannot be read, and for a viewer.

Invariant: each state is brought about, not drawn: a socket that is never answered, a database that
takes no connection, a person whose role allows only to look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from django.db import connection
from playwright.sync_api import Browser, Page

from controlplane.models import Circuit, Override, Role
from tests import builders
from tests.dashboard import fleets
from tests.dashboard.server import WebProcess
from tests.embedded import POSTGRES
from tests.screenshots.camera import Camera
from tests.screenshots.stage import empty, in_contact

_LONG = {
    "openai": ["gpt-4.1-mini-2025-04-14-finetuned-support-triage-v12", "gpt-4.1-2025-04-14"],
    "azure-openai": [
        "text-embedding-3-large-eu-datazone-standard",
        "gpt-4o-mini-batch-provisioned",
    ],
    "anthropic": ["claude-3-7-sonnet-20250219-extended-thinking", "claude-sonnet-4-20250514"],
    "google": ["gemini-2.5-flash-lite-preview-09-2025", "gemini-2.5-pro-long-context-experimental"],
}
_FAR = ["australia-southeast2", "northamerica-northeast1", "europe-west2", "asia-southeast1-data"]


def nothing(browser: Browser, web: WebProcess) -> None:
    """No circuit yet: without a gateway, and with one that has reported nothing."""
    empty()
    camera = Camera(browser, web.url)
    camera.log_in()
    camera.take("wall-empty", "/", live=True)
    builders.instance(builders.gateway("chat-lhr"), "chat-lhr-1")
    camera.take("wall-empty-gateway", "/", live=True)


def connecting(browser: Browser, web: WebProcess) -> None:
    """The page is there, and no word has come on its socket."""
    camera = _incident(browser, web)
    camera.page.route_web_socket("**/ws/wall", lambda _: None)
    camera.take("wall-loading", "/")


def unreadable(browser: Browser, web: WebProcess) -> None:
    """Postgres takes no connection: under an open wall, and for who comes now."""
    camera = _incident(browser, web)
    page = camera.page
    with _closed_database():
        page.wait_for_selector("#stale:not([hidden])")
        page.wait_for_timeout(3000)
        camera.as_it_stands("wall-error")
        page.goto(web.url)
        camera.as_it_stands("wall-error-page")


def forbidden(browser: Browser, web: WebProcess) -> None:
    """A viewer looks at a circuit, asks to force it, and is told that a role has changed."""
    camera = _incident(browser, web, log_in=False)
    builders.product_person("watcher", Role.VIEWER)
    camera.log_in("watcher")

    def focused(page: Page) -> None:
        page.locator(".card").nth(1).focus()

    camera.take("wall-forbidden", "/", focused, live=True)


def long_names(browser: Browser, web: WebProcess) -> None:
    """Two hundred circuits whose names do not fit."""
    empty()
    fleets.populate(200, incident=True)
    names = [(p, m, r) for r in _FAR for p, models in _LONG.items() for m in models]
    for number, circuit in enumerate(Circuit.objects.order_by("id")):
        provider, model, region = names[number % len(names)]
        new = {"provider": provider, "model": model, "region": f"{region}-{number // len(names)}"}
        hands = Override.objects.filter(
            provider=circuit.provider, model=circuit.model, region=circuit.region
        )
        hands.update(**new)
        Circuit.objects.filter(pk=circuit.pk).update(**new)
    camera = Camera(browser, web.url)
    camera.log_in()
    camera.take("wall-names", "/", live=True)


def _incident(browser: Browser, web: WebProcess, *, log_in: bool = True) -> Camera:
    empty()
    fleets.populate(40, incident=True)
    in_contact()
    camera = Camera(browser, web.url)
    if log_in:
        camera.log_in()
    return camera


@contextmanager
def _closed_database() -> Iterator[None]:
    """Nobody is connected to the database, and nobody can be."""
    name = str(connection.settings_dict["NAME"])
    connection.close()
    allow = "ALTER DATABASE {} ALLOW_CONNECTIONS {}"
    with psycopg.connect(POSTGRES.dsn("postgres"), autocommit=True) as server:
        server.execute(allow.format(name, "false"))
        server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
        )
        try:
            yield
        finally:
            server.execute(allow.format(name, "true"))


SCENES: dict[str, Callable[[Browser, WebProcess], None]] = {
    "wall-empty": nothing,
    "wall-loading": connecting,
    "wall-error": unreadable,
    "wall-forbidden": forbidden,
    "wall-names": long_names,
}
