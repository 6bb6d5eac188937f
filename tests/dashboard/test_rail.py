"""Counts beside the navigation: the wall's own judgement, on every page, cheap and live."""

from __future__ import annotations

import pytest
from django.test import Client
from playwright.sync_api import Browser, expect

from controlplane.reports import wall
from dashboard import rail
from dashboard.fleet import Fleet
from tests import builders
from tests.browser import new_page
from tests.dashboard.conftest import notify
from tests.dashboard.server import WebProcess
from tests.dashboard.test_browser import live, log_in


def counted() -> dict[str, str | None]:
    now = wall.read_present()
    return rail.fields(now, Fleet(now))


@pytest.mark.django_db
def test_it_counts_what_is_wrong_else_what_is_there() -> None:
    chat = builders.gateway("chat")
    one = builders.instance(chat, "chat/0")
    circuit, other = builders.circuit(), builders.circuit(model="o3")
    builders.circuit_state(one, circuit)
    builders.circuit_state(one, other)
    builders.retry_budget()
    calm = counted()
    assert [calm[f"nav_{page}"] for page in rail.COUNTED] == ["2", "1", "0", "1"]
    assert not any(calm[f"nav_{page}_{part}"] for page in rail.COUNTED for part in ("word", "tone"))
    batch = builders.gateway("batch")
    builders.instance(batch, "batch/0", last_seen_at=builders.ago(120))
    silent = builders.instance(chat, "chat/1", last_seen_at=builders.ago(120))
    builders.circuit_state(silent, circuit, "Open")  # of the silent one nothing is known
    builders.override(provider="openai")
    builders.circuit_state(one, other, "Open")
    sick = counted()
    assert [(sick[f"nav_{page}"], sick[f"nav_{page}_word"]) for page in rail.COUNTED] == [
        ("1", "open"), ("1", "silent"), ("1", "active"), ("1", None),
    ]  # fmt: skip


@pytest.mark.django_db
def test_who_says_nothing_is_not_unsynced_and_who_disobeys_comes_first() -> None:
    builders.instance(builders.gateway("batch"), "batch/0", last_seen_at=builders.ago(120))
    keys = ("nav_gateways", "nav_gateways_word", "nav_gateways_tone")
    assert [counted()[key] for key in keys] == ["1", "silent", "unk"]
    chat = builders.gateway("chat", generation=9)
    builders.instance(chat, "chat/0", applied_generation=3, received_generation=9)
    builders.instance(chat, "chat/1", last_seen_at=builders.ago(120))
    assert [counted()[key] for key in keys] == ["1", "unsynced", "half"]


@pytest.mark.django_db
def test_a_page_asks_once_and_a_fragment_never(oncall: Client) -> None:
    builders.circuit_state(builders.instance(builders.gateway("chat")), builders.circuit(), "Open")
    text = oncall.get("/audit").content.decode()
    assert '<i data-t="nav_circuits">1</i> <em data-t="nav_circuits_word">open</em>' in text
    fragment = oncall.get("/overrides/new?provider=openai", headers={"HX-Request": "true"})
    assert "nav_circuits" not in fragment.content.decode()


@pytest.mark.browser
@pytest.mark.parametrize("path", ["/", "/gateways"])
def test_it_follows_on_the_wall_and_on_every_live_page(
    browser: Browser, web: WebProcess, path: str
) -> None:
    one = builders.instance(builders.gateway("chat"), "chat/0")
    builders.circuit_state(one, builders.circuit())
    with new_page(browser) as page:
        log_in(page, web)
        page.goto(f"{web.url}{path}")
        live(page)
        count = page.locator(".rail a[href='/circuits'] .n")
        expect(count).to_have_attribute("data-tone", "")
        builders.circuit_state(one, builders.circuit(model="o3"), "Open")
        notify()
        expect(count).to_have_attribute("data-tone", "open")
        expect(count).to_have_text("1 open")
