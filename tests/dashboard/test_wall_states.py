"""The wall without circuits, and with names that do not fit: a real Chromium."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests import builders
from tests.dashboard.conftest import notify
from tests.dashboard.server import WebProcess
from tests.dashboard.test_browser import fleet, log_in

pytestmark = pytest.mark.browser
_CUT = """node => {
  const tail = node.lastElementChild;
  const inside = tail.getBoundingClientRect().right <= node.getBoundingClientRect().right + 1;
  const cut = [...node.querySelectorAll(".cut")].some((n) => n.scrollWidth > n.clientWidth);
  return [cut, tail.textContent, inside && tail.clientWidth > 0];
}"""


def test_an_empty_wall_says_how_it_fills_and_fills_by_itself(page: Page, web: WebProcess) -> None:
    log_in(page, web)
    calm = page.locator("#calm")
    expect(page.locator("h1")).to_have_text("No circuit yet")
    expect(calm).to_contain_text("switchgear create gateway NAME")
    for noise in (".healthy-head", "#wall .segments", "#claim"):
        expect(page.locator(noise)).to_be_hidden()
    [one] = fleet(1)
    notify()
    expect(calm.locator(".if-no-gateways")).to_be_hidden()
    expect(calm.locator(".if-gateways")).to_be_visible()
    builders.circuit_state(one, builders.circuit())
    notify()
    expect(calm.locator(".if-some")).to_be_visible()
    expect(calm.locator(".if-none")).to_be_hidden()
    expect(page.locator(".healthy-head")).to_contain_text("1 Closed")
    expect(page.locator("#claim")).to_be_visible()


def test_long_names_are_cut_before_their_ends_on_a_card_and_said_whole(
    page: Page, web: WebProcess
) -> None:
    [one] = fleet(1)
    model, region = "gpt-4.1-mini-2025-04-14-finetuned-support-v12", "northamerica-northeast1-b"
    builders.circuit_state(one, builders.circuit("azure-openai", model, region), "Open")
    log_in(page, web)
    name = page.locator(".card").get_by_role("link", name=model, exact=True)
    assert name.evaluate(_CUT) == [True, "port-v12", True]
    assert name.get_attribute("title") == model
    where = page.locator(".card-head > .quiet")
    assert where.evaluate(_CUT) == [True, "st1-b", True]
    assert where.get_attribute("title") == f"azure-openai · {region}"
