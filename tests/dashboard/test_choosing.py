"""Forcing begins with a question: nothing is chosen before somebody has chosen it."""

from __future__ import annotations

import pytest
from django.test import Client
from playwright.sync_api import Browser, Page, expect

from controlplane.models import Override
from tests import builders
from tests.browser import new_page
from tests.dashboard.server import WebProcess
from tests.dashboard.test_axe import complaints
from tests.dashboard.test_browser import log_in

FORM = {"mode": "ForceOpen", "minutes": "15", "reason": "browns out"}


@pytest.mark.django_db
@pytest.mark.parametrize("scope", [{}, {"provider": ""}, {"gateway": "chat"}])
def test_who_chose_nothing_is_asked_and_forces_nothing(
    oncall: Client, scope: dict[str, str]
) -> None:
    builders.gateway("chat")
    builders.circuit()
    asked = oncall.get("/overrides/new", scope).content.decode()
    assert "Nothing is chosen yet" in asked
    assert "What this affects now" not in asked
    assert "force-open all" not in asked
    assert oncall.post("/overrides/typed", FORM | scope).content.decode().strip() == ""
    answer = oncall.post("/overrides/new", FORM | scope)
    assert answer.status_code == 422
    assert "provider: choose a provider, or every provider" in answer.content.decode()
    assert "browns out" in answer.content.decode()
    assert not Override.objects.exists()


@pytest.mark.django_db
def test_every_circuit_is_forced_by_who_says_so(oncall: Client) -> None:
    builders.gateway("chat")
    builders.circuit()
    text = oncall.get("/overrides/new", {"provider": "*"}).content.decode()
    assert "Every circuit:</b> all 1 of every provider" in text
    assert "switchgear force-open all --reason=why" in text
    assert oncall.post("/overrides/new", FORM | {"provider": "*"}).status_code == 302
    row = Override.objects.get()
    assert (row.provider, row.model, row.region) == ("", "", "")


@pytest.mark.django_db
@pytest.mark.parametrize("scope", [{"region": "us-east"}, {"model": "gpt-4o"}])
def test_a_region_or_a_model_of_every_provider_is_a_choice(
    oncall: Client, scope: dict[str, str]
) -> None:
    builders.circuit()
    text = oncall.get("/overrides/new", scope).content.decode()
    assert "of every provider" in text
    assert oncall.post("/overrides/new", FORM | scope).status_code == 302


@pytest.mark.browser
def test_the_blast_radius_shows_as_it_is_chosen(browser: Browser, web: WebProcess) -> None:
    one = builders.instance(builders.gateway("chat"), "chat/0")
    for name in (("openai", "gpt-4o", "eu"), ("openai", "o3", "eu"), ("mistral", "small", "eu")):
        builders.circuit_state(one, builders.circuit(*name))
    with new_page(browser) as page:
        log_in(page, web)
        page.goto(f"{web.url}/overrides")
        page.locator(".acts").get_by_text("Force…").click()
        provider = page.locator("#force-form select[name=provider]")
        expect(provider).to_be_focused()
        expect(provider).to_have_value("")
        force = page.locator("#force-form .sheet-foot button.hand")
        expect(force).to_be_disabled()
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
            assert complaints(page) == []
        provider.select_option("openai")
        _affects(page, "2 · 1")
        expect(force).to_be_enabled()
        # What is chosen can be widened, and no more taken back to nothing.
        expect(provider.locator("option[value='']")).to_have_count(0)
        provider.select_option("*")
        _affects(page, "3 · 1")
        expect(page.locator("#force-form .note").first).to_contain_text("Every circuit")


def _affects(page: Page, figure: str) -> None:
    expect(page.locator("#force-form .effects b").first).to_have_text(figure)
