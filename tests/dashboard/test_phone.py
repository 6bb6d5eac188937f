"""A phone of 390 px: see the state, open a circuit, force it; nothing scrolls sideways."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from controlplane.models import Override
from tests import builders
from tests.browser import new_page
from tests.dashboard import stories
from tests.dashboard.server import WebProcess
from tests.dashboard.test_axe import THEMES, complaints
from tests.dashboard.test_browser import live, log_in

pytestmark = pytest.mark.browser
WIDTH, FINGER = 390, 44
_SMALL = """(least) => [...document.querySelectorAll(
    '.rail a, .top a, .top .plain, .button, .menu-list .plain, .tabs a, .segments > *, select,' +
    'input:not([type=hidden], [type=checkbox], [type=radio]), .card .force, .card-name')]
  .filter((node) => node.checkVisibility() && node.getBoundingClientRect().height > 0)
  .map((node) => [node.className || node.tagName, node.textContent.trim().slice(0, 20),
                  Math.round(node.getBoundingClientRect().height)])
  .filter(([, , height]) => height < least)"""


def fits(page: Page) -> None:
    """Nothing is wider than the screen, nothing that is pressed lower than a finger."""
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, page.url
    assert page.evaluate(_SMALL, FINGER) == [], page.url
    for theme in THEMES:
        page.emulate_media(color_scheme=theme)
        assert complaints(page) == [], (page.url, theme)


def test_a_circuit_is_seen_and_forced_with_a_thumb(browser: Browser, web: WebProcess) -> None:
    one = builders.instance(builders.gateway("chat"), "chat/0")
    name = "a-model-whose-name-is-longer-than-a-telephone-is-wide-2026-11-30"
    builders.circuit_state(one, builders.circuit(model=name), "Open")
    with new_page(browser, WIDTH, 844) as page:
        log_in(page, web)
        live(page)
        fits(page)
        page.locator(".card .force").click()
        expect(page.locator("#force-form")).to_be_visible()
        fits(page)
        dialog = page.locator("#dialog").bounding_box()
        assert dialog is not None
        assert (round(dialog["x"]), round(dialog["width"])) == (0, WIDTH)
        # The button stands at the foot without scrolling to it.
        button = page.locator("#force-form .sheet-foot button.hand")
        expect(button).to_be_in_viewport(ratio=1)
        page.fill("#reason", "seen from a train")
        button.click()
        expect(page.locator("#spread")).to_be_visible()
        assert Override.objects.get().model == name
        page.locator("[data-close]").first.click()
        page.locator(".card-name").first.click()
        expect(page.locator("h1")).to_contain_text(name)
        fits(page)


def test_the_gateways_take_one_row_and_the_silent_one_is_first(
    browser: Browser, web: WebProcess
) -> None:
    for name in ("api-lhr", "batch-lhr", "chat-lhr"):
        builders.instance(builders.gateway(name), f"{name}/0")
    builders.instance(builders.gateway("zone-iad"), "zone-iad/0", last_seen_at=builders.ago(120))
    with new_page(browser, WIDTH, 844) as page:
        log_in(page, web)
        live(page)
        boxes = {
            n.inner_text().split()[0]: n.bounding_box() for n in page.locator(".gateway").all()
        }
        places = {
            name: (box["x"], box["y"] + box["height"] / 2) for name, box in boxes.items() if box
        }
        assert len(places) == 4
        assert min(places, key=lambda name: places[name][0]) == "zone-iad"
        assert max(y for _, y in places.values()) - min(y for _, y in places.values()) < 4
        cells = [(c.bounding_box(), c.inner_text()) for c in page.locator(".strip-cell").all()]
        read = sorted((box["y"], box["x"], text.split()[0]) for box, text in cells if box)
        assert [word for _, _, word in read] == [
            "Fleet",
            "Wasted",
            "Spend",
            "Retry",
            "Data",
            "Active",
        ]
        fits(page)
        page.locator(".gateway", has_text="zone-iad").click()
        expect(page.locator("h1")).to_contain_text("zone-iad")


def test_every_page_fits_a_phone(browser: Browser, web: WebProcess) -> None:
    stories.brownout()
    builders.override("ForceOpen", provider="mistral", reason="long " * 60)
    with new_page(browser, WIDTH, 844) as page:
        log_in(page, web)
        page.set_default_navigation_timeout(60_000)
        for path in ("/circuits", "/gateways", "/overrides", "/overrides/new", "/budgets",
                     "/budgets/system", "/incident", "/audit", "/report"):  # fmt: skip
            page.goto(f"{web.url}{path}", wait_until="domcontentloaded")
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path
            assert page.evaluate(_SMALL, FINGER) == [], path
