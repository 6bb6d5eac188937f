"""Objects' pages in a real Chromium: tabs, keys, times, copying, and a force over a wide match."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from controlplane.actions import policies
from controlplane.actions.actor import SYSTEM
from controlplane.models import BreakerPolicy, Override, Role
from tests import builders
from tests.browser import new_page
from tests.dashboard.conftest import notify
from tests.dashboard.server import WebProcess
from tests.dashboard.test_browser import live, log_in

pytestmark = pytest.mark.browser
CIRCUIT = "/circuits/openai%2Fgpt-4o%40us-east"


@pytest.fixture
def page(browser: Browser, web: WebProcess) -> Iterator[Page]:
    with new_page(browser) as opened:
        opened.context.grant_permissions(["clipboard-read", "clipboard-write"])
        yield opened


def copied(page: Page) -> str:
    return str(page.evaluate("navigator.clipboard.readText()"))


def test_a_circuit_is_read_and_forced_by_keys_alone(page: Page, web: WebProcess) -> None:
    one = builders.instance(builders.gateway("chat"), "chat/0")
    builders.circuit_state(one, builders.circuit(), "Open")
    log_in(page, web)
    page.goto(f"{web.url}{CIRCUIT}")
    expect(page.locator("#status")).to_be_visible()
    for key, pane in (("2", "spec"), ("3", "conditions"), ("4", "events"), ("5", "yaml")):
        page.keyboard.press(key)
        expect(page.locator(f"#{pane}")).to_be_visible()
        expect(page.locator(".pane:visible")).to_have_count(1)
        expect(page.locator(".tabs [aria-current]")).to_have_attribute("href", f"#{pane}")
    page.keyboard.press("y")
    expect(page.locator(".menu-list")).to_be_visible()
    page.wait_for_function(
        "navigator.clipboard.readText().then(t => t.startsWith('kind: Circuit'))"
    )
    assert "name: openai/gpt-4o@us-east" in copied(page)
    # The page reads itself anew: the part that is shown stays the one.
    builders.circuit_state(one, builders.circuit(), "HalfOpen")
    notify()
    expect(page.locator("h1 .is")).to_contain_text("HalfOpen")
    expect(page.locator(".tabs [aria-current]")).to_have_attribute("href", "#yaml")
    expect(page.locator("#yaml")).to_be_visible()
    page.keyboard.press("?")
    own = page.locator("#own-keys")
    for words in ("force it", "let it probe now", "its conditions", "copy it as YAML"):
        expect(own).to_contain_text(words)
    page.keyboard.press("Escape")
    page.keyboard.press("p")
    expect(page.locator("#dialog-title")).to_contain_text("Probe now")
    page.keyboard.press("Escape")
    expect(page.locator("#dialog")).to_be_hidden()
    page.keyboard.press("o")
    expect(page.locator("#force-form")).to_be_visible()
    page.fill("#reason", "it's slow; stop")
    expect(page.locator("#as-typed-cli")).to_have_value(re.compile("slow; stop"))
    page.locator(".copies >> text=CLI").click()
    page.wait_for_function(
        "() => navigator.clipboard.readText().then(t => t.includes('slow; stop'))"
    )
    words = shlex.split(copied(page))
    assert words[:3] == ["switchgear", "force-open", "openai/gpt-4o@us-east"]
    assert "--reason=it's slow; stop" in words
    page.locator('#force-form select[name="model"]').select_option("")
    expect(page.locator(".wide-note")).to_contain_text("every model of openai in us-east")
    expect(page.locator("#reason")).to_have_value("it's slow; stop")
    page.locator("#force-form button.hand").click()
    expect(page.locator("#spread h2")).to_contain_text("recorded, not yet in force")
    made = Override.objects.get()
    assert (made.provider, made.model, made.region) == ("openai", "", "us-east")


def test_times_are_read_in_the_zone_in_utc_and_as_ages(page: Page, web: WebProcess) -> None:
    policies.create(actor=SYSTEM, name="slow", spec={}, now=builders.ago(4000))
    log_in(page, web)
    page.goto(f"{web.url}/policies/slow")
    first = page.locator("#edit time").first
    before = first.text_content()
    page.keyboard.press("t")
    expect(page.locator("#times")).to_have_text("UTC")
    expect(page.locator("#now")).to_contain_text("UTC")
    page.keyboard.press("t")
    expect(first).to_contain_text("1 h 6 min ago")
    page.reload()
    expect(first).to_contain_text("1 h 6 min ago")
    page.keyboard.press("t")
    assert first.text_content() == before
    expect(first).to_have_attribute("title", re.compile(r"UTC$"))
    page.keyboard.press("g")
    page.keyboard.press("g")
    expect(page).to_have_title("Gateways · Switchgear")
    live(page)  # its scripts listen for keys
    page.keyboard.press("g")
    page.keyboard.press("b")
    expect(page).to_have_title("Retry budgets · Switchgear")
    page.click("text=Breaker policies")
    expect(page).to_have_title("Breaker policies · Switchgear")
    live(page)  # its scripts listen for keys
    page.keyboard.press("j")
    expect(page.locator(":focus")).to_have_text("slow")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/policies/slow"))


def test_two_people_tune_the_same_policy(page: Page, web: WebProcess) -> None:
    policies.create(actor=SYSTEM, name="slow", spec={}, now=builders.now())
    log_in(page, web)
    page.goto(f"{web.url}/policies/slow")
    row = BreakerPolicy.objects.get()
    # Before the other's change: the page reads itself anew, and a form that is being written stays.
    page.fill("#open_seconds", "15")
    page.fill("#why", "too long")
    policies.update(
        actor=SYSTEM, name="slow", spec={"open_seconds": 25.0}, now=builders.now(),
        expected_version=row.resource_version,
    )  # fmt: skip
    page.click("#edit button.hand")
    expect(page.locator(".clash")).to_contain_text("Somebody changed this while you edited it")
    expect(page.locator(".clash tbody tr")).to_have_count(1)
    page.click("text=Save mine over it")
    expect(page.locator(".clash")).to_have_count(0)
    row.refresh_from_db()
    assert (row.spec["open_seconds"], row.generation) == (15, 3)


def test_on_paper_every_part_but_the_yaml_stands_and_no_button(page: Page, web: WebProcess) -> None:
    one = builders.instance(builders.gateway("chat"), "chat/0")
    builders.circuit_state(one, builders.circuit(), "Open")
    log_in(page, web, Role.VIEWER)
    page.goto(f"{web.url}{CIRCUIT}")
    page.emulate_media(media="print")
    expect(page.locator(".pane:visible")).to_have_count(4)
    expect(page.locator("#yaml")).to_be_hidden()
    for part in (".top", ".rail", ".tabs", ".acts", ".menu"):
        expect(page.locator(part).first).to_be_hidden()


def test_copying_works_without_https_too_and_says_so_each_time(page: Page, web: WebProcess) -> None:
    one = builders.instance(builders.gateway("chat"), "chat/0")
    builders.circuit_state(one, builders.circuit(), "Open")
    # As on a page that was not loaded over https: there is no clipboard but the browser's command.
    page.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.add_init_script(
        "addEventListener('copy', () => { window.taken = document.activeElement.value })"
    )
    log_in(page, web)
    page.locator(".card").focus()
    page.keyboard.press("o")
    page.fill("#reason", "it burns")
    button = page.locator("#dialog .copies button").first
    expect(page.locator("#as-typed-cli")).to_have_value(re.compile("it burns"))
    # What it says lasts 1.5 s, so it is noted down rather than met; the second press comes within.
    button.evaluate(
        """button => {
          window.said = [];
          const note = () => said.push(button.textContent);
          new MutationObserver(note).observe(button, { childList: true });
          button.click();
          button.click();
        }"""
    )
    page.wait_for_function("() => window.said.includes('Copied')")
    assert "force-open openai/gpt-4o@us-east" in page.evaluate("window.taken")
    expect(button).to_have_text("CLI")
    expect(button).to_be_focused()
