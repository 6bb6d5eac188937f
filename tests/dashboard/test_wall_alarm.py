"""The wall's alarm in a real Chromium: who wants it hears a circuit open, and nobody else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from controlplane.models import CircuitState
from tests import builders
from tests.browser import new_page
from tests.dashboard.conftest import notify
from tests.dashboard.server import WebProcess
from tests.dashboard.test_browser import fleet, live, log_in

pytestmark = pytest.mark.browser
# Counts the tones that are started and the notifications that are made; both still happen.
_COUNTING = """(() => {
  window.__tones = 0;
  window.__told = [];
  const start = OscillatorNode.prototype.start;
  OscillatorNode.prototype.start = function (...given) {
    window.__tones += 1;
    return start.apply(this, given);
  };
  window.Notification = class extends Notification {
    constructor(title, more) {
      super(title, more);
      window.__told.push(title);
    }
  };
})()"""
_HIDE = """() => {
  Object.defineProperty(document, "visibilityState", { value: "hidden", configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.fixture
def page(browser: Browser, web: WebProcess) -> Iterator[Page]:
    with new_page(browser) as opened:
        opened.context.grant_permissions(["notifications"])
        opened.add_init_script(_COUNTING)
        [one] = fleet(1)
        builders.circuit_state(one, builders.circuit())
        log_in(opened, web)
        yield opened


def become(state: str) -> None:
    CircuitState.objects.update(state=state)
    notify()


def switch_on(page: Page) -> None:
    """By its key; it sounds once, so that one knows it."""
    page.keyboard.press("n")
    expect(page.locator("#alarm")).to_have_attribute("aria-pressed", "true")
    assert page.evaluate("__tones") == 1


def test_it_is_silent_until_it_is_switched_on_and_remembered(page: Page) -> None:
    become("Open")
    expect(page.locator(".card .is b")).to_have_text("Open")
    assert page.evaluate("__tones") == 0
    switch_on(page)
    page.reload()
    live(page)
    expect(page.locator("#alarm")).to_have_text("Alarm waits for a click")
    page.click("h1")
    expect(page.locator("#alarm")).to_have_text("Alarm on")
    # What was open already does not ring.
    assert page.evaluate("__tones") == 0


def test_a_circuit_that_opens_sounds_and_tells_who_looks_elsewhere(page: Page) -> None:
    switch_on(page)
    page.evaluate(_HIDE)
    become("Open")
    page.wait_for_function("() => __told.length === 1")
    assert page.evaluate("[__tones, __told]") == [2, ["Open: gpt-4o us-east"]]


def test_what_a_hand_opens_is_no_news(page: Page) -> None:
    switch_on(page)
    builders.override("ForceOpen", provider="openai")
    CircuitState.objects.update(state="Open", mode="ForceOpen")
    notify()
    expect(page.locator("#say")).to_contain_text("Open")
    page.evaluate("() => new Promise((done) => setTimeout(done))")
    assert page.evaluate("__tones") == 1


def test_it_is_silent_while_somebody_has_the_incident(page: Page) -> None:
    switch_on(page)
    page.locator("#claim").get_by_role("button", name="I have it").click()
    live(page)
    expect(page.locator("#claim")).to_have_attribute("data-holder", "me")
    become("Open")
    expect(page.locator("#say")).to_contain_text("Open")
    page.evaluate("() => new Promise((done) => setTimeout(done))")
    assert page.evaluate("__tones") == 0  # the page was loaded anew by the claim
