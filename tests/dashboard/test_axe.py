"""axe finds nothing serious on any page, in both themes, with a busy fleet on it."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from controlplane.actions import policies, routes
from controlplane.actions.actor import SYSTEM
from controlplane.models import Circuit, Override, RetryBudget
from tests import builders
from tests.dashboard import stories
from tests.dashboard.server import WebProcess
from tests.dashboard.test_browser import live, log_in
from tests.dashboard.test_find import a_request

pytestmark = [pytest.mark.browser, pytest.mark.long]
THEMES: tuple[Literal["light"], Literal["dark"]] = ("light", "dark")
ROOMS = ["/", "/incident", "/circuits", "/gateways", "/overrides", "/budgets", "/report", "/audit"]
ROOMS += ["/policies", "/policies/new", "/routes", "/providers", "/telemetry"]
PANES = ("spec", "conditions", "events", "yaml")


def complaints(page: Page) -> list[tuple[str, str, str]]:
    """(rule, impact, the first nodes) of what axe calls serious or worse."""
    found: dict[str, Any] = Axe().run(page).response
    return [
        (rule["id"], rule["impact"], " | ".join(node["html"][:160] for node in rule["nodes"][:3]))
        for rule in found["violations"]
        if rule["impact"] in ("serious", "critical")
    ]


def test_every_page_reads_in_both_themes(page: Page, web: WebProcess) -> None:
    page.goto(f"{web.url}/log-in")
    found = {("/log-in", "light"): complaints(page)}
    stories.brownout()
    sick = Circuit.objects.filter(provider="openai").first()
    assert sick is not None
    builders.override("ForceOpen", provider="mistral")
    for one in Override.objects.filter(provider="mistral"):
        rooms = [f"/overrides/{one.name}"]
    rooms += [f"/circuits/{sick.provider}%2F{sick.model}%40{sick.region}"]
    rooms += [f"/budgets/{RetryBudget.objects.latest('id').name}", "/overrides/new"]
    worst = builders.ago(60 * (stories.LENGTH - 24))
    rooms += [f"/?at={worst:%Y-%m-%dT%H:%M}Z", "/find?q=openai", "/find?q=nothing-is-so-named"]
    rooms += ["/incident?from=x", "/tasks/never-seen", "/tasks/invoice-7"]
    a_request("invoice-7")
    policies.create(actor=SYSTEM, name="slow", spec={}, now=builders.now())
    target = {"provider": sick.provider, "model": sick.model, "region": sick.region}
    routes.create(actor=SYSTEM, name="chat", spec={"targets": [target]}, now=builders.now())
    rooms += ["/policies/slow", "/routes/chat", "/gateways/chat-lhr", f"/providers/{sick.provider}"]
    rooms += [f"{rooms[1]}#{pane}" for pane in PANES] + ["/policies/slow#spec"]
    log_in(page, web)
    page.set_default_navigation_timeout(60_000)  # a page with charts, on a machine that is busy
    for room in [*ROOMS, *rooms]:
        page.goto(f"{web.url}{room}")
        if room == "/incident":
            expect(page.locator("#timeline .bars").first).to_be_attached(timeout=60_000)
        for theme in THEMES:
            page.emulate_media(color_scheme=theme)
            found[room, theme] = complaints(page)
    assert {where: what for where, what in found.items() if what} == {}


def test_the_dialogs_and_the_stale_pages_read_too(page: Page, web: WebProcess) -> None:
    one = builders.instance(builders.gateway("chat"))
    builders.circuit_state(one, builders.circuit(), "Open")
    builders.circuit_state(one, builders.circuit(model="gpt-4.1"))
    log_in(page, web)
    found = {}
    for theme in THEMES:
        page.emulate_media(color_scheme=theme)
        page.keyboard.press("?")
        expect(page.locator("#keys")).to_be_visible()
        found["keys", theme] = complaints(page)
        page.keyboard.press("Escape")
        page.locator(".card").focus()
        page.keyboard.press("o")
        expect(page.locator("#force-form")).to_be_visible()
        found["force", theme] = complaints(page)
        page.keyboard.press("Escape")
    other = page.context.new_page()
    other.goto(f"{web.url}/gateways")
    live(other)
    web.kill()
    for name, lost in {"wall": page, "gateways": other}.items():
        expect(lost.locator("#stale")).to_be_visible()
        for theme in THEMES:
            lost.emulate_media(color_scheme=theme)
            found[f"{name}, stale", theme] = complaints(lost)
    assert {where: what for where, what in found.items() if what} == {}
