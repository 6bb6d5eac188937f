"""The timeline under a hand, and two people on one wall."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from controlplane.models import AuditEntry
from tests import builders
from tests.browser import WAIT_MS, new_page
from tests.dashboard import stories
from tests.dashboard.server import WebProcess
from tests.dashboard.test_browser import live, log_in

pytestmark = pytest.mark.browser


def span(page: Page) -> float:
    """Milliseconds that the one axis shows."""
    found: float = page.evaluate(
        "(([a, b]) => Date.parse(b) - Date.parse(a))(document.getElementById('timeline')"
        ".layout.xaxis.range)"
    )
    return found


def test_the_page_reads_before_the_charts_are_there_and_stands_still_when_they_come(
    browser: Browser, web: WebProcess
) -> None:
    stories.brownout()
    with new_page(browser) as page:
        log_in(page, web)
        held: list[Route] = []
        page.route("**/plotly.min*", lambda route: held.append(route))
        page.goto(f"{web.url}/incident", wait_until="commit")
        lanes = page.locator("#timeline .drawn-first .lane")
        expect(lanes).to_have_count(8)
        expect(page.locator("#timeline .drawn-first .lane .open").first).to_be_attached()
        table = page.locator(".halves")
        expect(table).to_contain_text("o3 us-east opened")
        before = table.bounding_box()
        assert held, "the script of the charts was not asked for"
        held[0].continue_()
        expect(page.locator("#timeline .bars .point path").first).to_be_attached(timeout=60_000)
        expect(lanes).to_have_count(0)
        assert table.bounding_box() == before
        # On paper it is light, its charts too, whatever the screen is.
        page.emulate_media(color_scheme="dark")
        plot = page.locator("#timeline .main-svg").first
        expect(plot).to_have_css("background-color", "rgb(20, 24, 28)")
        page.emulate_media(media="print", color_scheme="dark")
        expect(plot).to_have_css("background-color", "rgb(255, 255, 255)")
        expect(page.locator("body")).to_have_css("color", "rgb(21, 24, 28)")


_OUTSIDE = """() => {
  const box = document.querySelector("#timeline .main-svg").getBoundingClientRect();
  const { l } = document.getElementById("timeline").layout.margin;
  return [...document.querySelectorAll("#timeline .annotation")]
    .map((note) => [note.textContent, note.getBoundingClientRect()])
    .filter(([, r]) => r.width > 0)
    .filter(([text, { left, right }]) => right > box.right
      || (text.startsWith("Force") && left < box.left + l))
    .map(([text]) => text);
}"""


def test_on_a_phone_the_words_of_a_hand_end_before_the_panel_and_its_lanes_names(
    browser: Browser, web: WebProcess
) -> None:
    stories.brownout()
    end = builders.now()
    for minutes in (5, 30, 60):
        builders.override(
            provider="openai", model=f"m{minutes}", reason="<b>R&D</b> " * 20,
            created_at=end - timedelta(minutes=minutes),
        )  # fmt: skip
    with new_page(browser, 390, 844) as page:
        log_in(page, web)
        page.goto(f"{web.url}/incident")
        expect(page.locator("#timeline .bars .point path").first).to_be_attached(timeout=60_000)
        expect(page.locator("#timeline")).to_contain_text("ForceOpen")
        assert page.evaluate(_OUTSIDE) == []


def test_zoom_and_pan_move_every_row_and_the_link(browser: Browser, web: WebProcess) -> None:
    stories.brownout()
    with new_page(browser) as page:
        log_in(page, web)
        expect(page.locator("#calm")).to_contain_text("The last incident of the day")
        page.click("text=Open its timeline")
        expect(page.locator("#timeline .bars .point path").first).to_be_attached()
        whole, link = span(page), page.locator("#share").input_value()
        page.keyboard.press("+")
        page.wait_for_function("old => document.getElementById('share').value !== old", arg=link)
        assert span(page) == pytest.approx(whole / 2, rel=0.01)
        zoomed = page.locator("#share").input_value()
        page.keyboard.press("ArrowRight")
        page.wait_for_function("old => document.getElementById('share').value !== old", arg=zoomed)
        assert span(page) == pytest.approx(whole / 2, rel=0.01)
        shared = page.locator("#share").input_value()
        axes: list[Any] = page.evaluate(
            "Object.keys(document.getElementById('timeline')._fullLayout)"
            ".filter(name => /^xaxis/.test(name))"
        )
        assert axes == ["xaxis"]
        # Whoever opens the link sees the same stretch.
        page.goto(shared)
        expect(page.locator("#timeline .bars").first).to_be_attached()
        assert span(page) == pytest.approx(whole / 2, rel=0.01)


def test_two_people_see_who_has_it(browser: Browser, web: WebProcess) -> None:
    one = builders.instance(builders.gateway("chat"))
    builders.circuit_state(one, builders.circuit(), "Open")
    builders.product_person("second")
    with new_page(browser) as first, new_page(browser) as second:
        log_in(first, web)
        second.goto(web.url)
        second.fill("#username", "second")
        second.fill("#password", builders.PASSWORD)
        second.click("text=Log in")
        live(second)
        first.click("text=I have it")
        live(first)
        expect(first.locator("#claim")).to_contain_text("Give it up")
        claim = second.locator("#claim .claimed")
        expect(claim).to_contain_text("oncall has it", timeout=WAIT_MS)
        expect(second.locator("text=I have it")).to_be_hidden()
        second.click("text=Take over")
        live(second)
        expect(first.locator("#claim .claimed")).to_contain_text("second has it")
        builders.override("ObserveOnly", provider="openai", created_by="second")
        expect(second.locator(".release-mine")).to_be_visible()
        expect(first.locator(".release-mine")).to_be_hidden()
    assert AuditEntry.objects.filter(action="claim").count() == 2


def test_a_person_finds_the_keys_on_every_page(browser: Browser, web: WebProcess) -> None:
    with new_page(browser) as page:
        log_in(page, web)
        page.keyboard.press("g")
        page.keyboard.press("c")
        expect(page).to_have_url(f"{web.url}/circuits")
        page.keyboard.press("?")
        expect(page.locator("#keys")).to_be_visible()
        page.keyboard.press("Escape")
        page.keyboard.press("/")
        expect(page.locator("#find")).to_be_focused()
