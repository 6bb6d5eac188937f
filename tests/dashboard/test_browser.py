"""The wall in a real Chromium: it moves by itself, and says at once when it cannot."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from controlplane.models import Instance, Override, Role
from tests import builders
from tests.browser import WAIT_MS
from tests.dashboard.conftest import notify
from tests.dashboard.server import WebProcess

pytestmark = pytest.mark.browser


def log_in(page: Page, web: WebProcess, role: Role = Role.OPERATOR) -> None:
    """Through the form, until the wall is live."""
    builders.product_person("oncall", role)
    page.goto(web.url)
    page.fill("#username", "oncall")
    page.fill("#password", builders.PASSWORD)
    page.click("text=Log in")
    live(page)


def live(page: Page) -> None:
    expect(page.locator(".pulse")).to_have_attribute("data-live", "on", timeout=WAIT_MS)


def fleet(instances: int = 2) -> list[Instance]:
    gateway = builders.gateway("chat")
    return [builders.instance(gateway, f"chat/{number}") for number in range(instances)]


def test_a_circuit_that_opens_becomes_a_card_by_itself(page: Page, web: WebProcess) -> None:
    one, two = fleet()
    circuit = builders.circuit()
    builders.circuit_state(one, circuit)
    builders.circuit_state(two, circuit)
    log_in(page, web)
    expect(page.locator(".tile")).to_have_count(1)
    builders.circuit_state(one, circuit, "Open")
    notify()
    card = page.locator("#attention .card")
    expect(card).to_have_count(1)
    expect(card.locator(".is")).to_contain_text("Open")
    expect(card.locator(".count")).to_have_text("1/2")
    expect(page.locator(".tile")).to_have_count(0)
    expect(page).to_have_title("1 open · Switchgear")
    builders.circuit_state(one, circuit)
    notify()
    expect(page.locator(".tile")).to_have_count(1)
    expect(page.locator("#calm")).to_be_visible()


def test_when_the_server_goes_the_page_says_so_at_once_and_recovers(
    page: Page, web: WebProcess
) -> None:
    [one] = fleet(1)
    circuit = builders.circuit()
    builders.circuit_state(one, circuit, "Open")
    log_in(page, web)
    web.kill()
    banner = page.locator("#stale")
    expect(banner).to_be_visible(timeout=3000)
    expect(banner).to_contain_text("Live connection lost. Data as of")
    expect(banner).to_contain_text("Retry in")
    expect(page.locator(".card .pill-unknown")).to_contain_text("unknown (was Open 1/1 at")
    expect(page.locator(".card .pill")).to_be_hidden()
    expect(page.locator(".pulse")).to_contain_text("Not live")
    builders.circuit_state(one, circuit, "HalfOpen")
    web.start()
    live(page)
    expect(banner).to_be_hidden()
    expect(page.locator(".card .is")).to_contain_text("HalfOpen")


def test_a_hostile_name_stays_a_name(page: Page, web: WebProcess) -> None:
    [one] = fleet(1)
    log_in(page, web)
    hostile = "<img src=x onerror=\"document.body.dataset.hacked='yes'\">"
    circuit = builders.circuit("openai", hostile, hostile)
    builders.circuit_state(one, circuit, "Open")
    builders.override("ObserveOnly", provider="openai", reason=hostile, created_by=hostile)
    notify()
    expect(page.locator(".card-name")).to_have_text(hostile)
    assert page.locator("#wall img").count() == 0
    assert page.locator("body").get_attribute("data-hacked") is None
    page.click(".card-name")
    expect(page.locator("h1")).to_contain_text(hostile)
    assert page.locator("img").count() == 0


def test_forcing_shows_each_instance_until_it_enforces_or_refuses(
    page: Page, web: WebProcess
) -> None:
    one, two = fleet()
    circuit = builders.circuit()
    for instance in (one, two):
        builders.circuit_state(instance, circuit, "Open")
    log_in(page, web)
    page.locator(".card").focus()
    page.keyboard.press("o")
    form = page.locator("#force-form")
    expect(form).to_contain_text("on 2 instances")
    form.locator("button.hand").click()
    expect(page.locator("#dialog .fault")).to_contain_text("reason: required")
    assert not Override.objects.exists()
    page.fill("#reason", "provider browns out")
    page.locator("label", has_text="15 min").click()
    page.locator("#force-form button.hand").click()
    expect(page.locator("#spread h2")).to_contain_text("recorded, not yet in force")
    expect(page.locator(".dots li")).to_have_count(2)
    hand = Override.objects.get()
    assert hand.reason == "provider browns out"
    assert hand.region == "us-east"
    builders.delivery(one, hand)
    expect(page.locator("#spread h2")).to_contain_text("partly in force")
    expect(page.locator('.dots li[data-state="enforced"]')).to_contain_text("chat/0")
    builders.delivery(two, hand, "Rejected", reason="LocalFloorViolated")
    expect(page.locator('.dots li[data-state="rejected"]')).to_contain_text("chat/1")
    expect(page.locator("#dialog")).to_contain_text("LocalFloorViolated")
    page.locator("#dialog button", has_text="Release").click()
    expect(page.locator("#spread h2")).to_contain_text("being released")
    hand.refresh_from_db()
    assert hand.end_cause == "Released"
    page.keyboard.press("Escape")
    expect(page.locator("#dialog")).to_be_hidden()


def test_what_is_chosen_in_the_dialog_stays_while_it_follows_the_instances(
    page: Page, web: WebProcess
) -> None:
    one, two = fleet()
    circuit = builders.circuit()
    for instance in (one, two):
        builders.circuit_state(instance, circuit, "Open")
    log_in(page, web)
    page.keyboard.press("j")
    page.keyboard.press("o")
    expect(page.locator("#reason")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.type("by keys alone")
    force = page.locator("#force-form button.hand")
    force.focus()
    page.keyboard.press("Enter")
    # The form has gone with the focus in it: what is said now has the focus.
    expect(page.locator("#spread #dialog-title")).to_be_focused()
    chosen = page.locator("#extend-minutes")
    chosen.focus()
    page.keyboard.press("End")
    last = chosen.locator("option").last.get_attribute("value")
    expect(chosen).to_have_value(str(last))
    hand = Override.objects.get()
    builders.delivery(one, hand)
    expect(page.locator('.dots li[data-state="enforced"]')).to_have_count(1)
    expect(chosen).to_be_focused()
    expect(chosen).to_have_value(str(last))
    page.keyboard.press("Tab")
    expect(page.locator("#spread button", has_text="Extend")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#spread #dialog-title")).to_be_focused()
    first_end = hand.expires_at
    hand.refresh_from_db()
    assert hand.expires_at > first_end
    page.keyboard.press("Escape")
    expect(page.locator("#dialog")).to_be_hidden()
    expect(page.locator(".card")).to_be_focused()


def test_an_answer_after_the_dialog_was_closed_does_not_open_it_again(
    page: Page, web: WebProcess
) -> None:
    [one] = fleet(1)
    builders.circuit_state(one, builders.circuit(), "Open")
    hand = builders.override(provider="openai", model="gpt-4o", region="us-east")
    log_in(page, web)
    page.goto(f"{web.url}/overrides")
    live(page)
    page.locator("table a").first.click()
    expect(page.locator("#spread")).to_be_visible()
    with page.expect_response(f"**/overrides/{hand.name}") as answer:
        # Within one task: asked, closed, and only then answered.
        page.evaluate(
            """() => {
              const spread = document.getElementById("spread");
              document.body.addEventListener("htmx:beforeRequest", (event) => {
                if (event.detail.elt === spread) setTimeout(() => spread.parentElement.close());
              }, { once: true });
            }"""
        )
    answer.value.finished()
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    expect(page.locator("#dialog")).to_be_hidden()


def test_the_dialog_asks_again_when_its_scope_changes(page: Page, web: WebProcess) -> None:
    [one] = fleet(1)
    builders.circuit_state(one, builders.circuit(), "Open")
    builders.circuit_state(one, builders.circuit(model="gpt-4.1"), "Closed")
    log_in(page, web)
    page.locator(".card").hover()
    page.locator(".card .force").click()
    page.fill("#reason", "kept while asking")
    effects = page.locator(".effects")
    expect(effects).to_contain_text("1 · 1")
    page.locator('#force-form select[name="model"]').select_option("")
    expect(effects).to_contain_text("2 · 1")
    expect(page.locator("#reason")).to_have_value("kept while asking")
    page.locator("label", has_text="ObserveOnly").click()
    expect(page.locator("#force-form .segments").last).to_contain_text("7 days, the most")
    assert not Override.objects.exists()


def test_the_order_stands_still_under_the_pointer(page: Page, web: WebProcess) -> None:
    [one] = fleet(1)
    first, second = builders.circuit(model="first"), builders.circuit(model="second")
    builders.circuit_state(one, first, "HalfOpen")
    builders.circuit_state(one, second, "HalfOpen")
    log_in(page, web)
    names = page.locator(".card-name")
    expect(names).to_have_text(["first", "second"])
    page.locator(".card").first.hover()
    builders.circuit_state(one, second, "Open")
    notify()
    moved = page.locator("#moved")
    expect(moved).to_contain_text("would move")
    expect(names).to_have_text(["first", "second"])
    expect(page.locator(".card").last.locator(".is")).to_contain_text("Open")
    page.keyboard.press(".")
    expect(names).to_have_text(["second", "first"])
    expect(moved).to_be_hidden()


def test_the_order_stands_still_under_the_focus_which_stays_on_its_circuit(
    page: Page, web: WebProcess
) -> None:
    [one] = fleet(1)
    first, second = builders.circuit(model="first"), builders.circuit(model="second")
    third = builders.circuit(model="third")
    for circuit in (first, second):
        builders.circuit_state(one, circuit, "HalfOpen")
    builders.circuit_state(one, third)
    log_in(page, web)
    page.keyboard.press("j")
    page.keyboard.press("j")
    focused = page.locator("article:focus")
    expect(focused).to_contain_text("second")
    builders.circuit_state(one, second, "Open")
    builders.circuit_state(one, third, "Open")
    notify()
    expect(page.locator("#moved")).to_contain_text("would move")
    names = page.locator(".card-name")
    expect(names).to_have_text(["first", "second"])
    expect(focused).to_contain_text("Open")
    page.keyboard.press(".")
    expect(names).to_have_text(["second", "third", "first"])
    expect(focused).to_contain_text("second")
    # A tile that becomes a card is another node, and the same circuit.
    page.keyboard.press("j")
    page.keyboard.press("j")
    builders.circuit_state(one, first)
    notify()
    expect(page.locator("#moved")).to_be_visible()
    page.keyboard.press(".")
    expect(page.locator(".tile")).to_have_count(1)
    expect(focused).to_contain_text("first")
    page.keyboard.press("o")
    expect(page.locator("#dialog-title")).to_contain_text("first")


def test_a_name_on_a_chip_is_cut_before_its_end(page: Page, web: WebProcess) -> None:
    [one] = fleet(1)
    name = "text-embedding-of-the-longest-kind-3-large"
    builders.circuit_state(one, builders.circuit(model=name, region="europe-west2"))
    log_in(page, web)
    page.evaluate("document.getElementById('wall').dataset.density = 'dense'")
    link = page.get_by_role("link", name=name)
    expect(link).to_be_visible()
    inside = """link => {
      const tile = link.closest(".tile").getBoundingClientRect();
      const [head, tail] = [...link.children];
      return [head.scrollWidth > head.clientWidth, tail.textContent,
              tail.getBoundingClientRect().right <= tile.right, tail.clientWidth > 0];
    }"""
    assert link.evaluate(inside) == [True, "-3-large", True, True]


def test_cards_stand_under_their_gateway_and_a_provider_alone_can_be_shown(
    page: Page, web: WebProcess
) -> None:
    chat, batch = builders.gateway("chat"), builders.gateway("batch")
    here, there = builders.instance(chat, "chat/0"), builders.instance(batch, "batch/0")
    builders.circuit_state(here, builders.circuit("openai", "first"), "Open")
    builders.circuit_state(there, builders.circuit("azure-openai", "second"), "Open")
    builders.circuit_state(there, builders.circuit("openai", "third"), "HalfOpen")
    log_in(page, web)
    page.click("text=By gateway")
    expect(page.locator("#attention .heading")).to_have_text(["batch 2", "chat 1"])
    expect(page.locator(".card-name")).to_have_text(["second", "third", "first"])
    page.click("#providers >> text=openai 2")
    expect(page.locator(".card:not(.filtered-out) .card-name")).to_have_text(["third", "first"])
    page.click("text=Worst first")
    expect(page.locator("#attention .heading")).to_have_count(0)
    page.reload()
    live(page)
    expect(page.locator(".card:not(.filtered-out) .card-name")).to_have_text(["first", "third"])
    page.click("#providers >> text=openai 2")
    expect(page.locator(".card:not(.filtered-out)")).to_have_count(3)


def test_a_viewer_sees_that_forcing_takes_an_operator(page: Page, web: WebProcess) -> None:
    [one] = fleet(1)
    builders.circuit_state(one, builders.circuit(), "Open")
    log_in(page, web, Role.VIEWER)
    page.locator(".card").hover()
    page.locator(".card .force").click()
    expect(page.locator("#dialog")).to_contain_text("You are a viewer")
    expect(page.locator("#force-form button.hand")).to_be_disabled()
    page.keyboard.press("Escape")
    page.locator(".card").focus()
    page.keyboard.press("o")
    expect(page.locator("#dialog")).to_contain_text("You are a viewer")


def test_logging_out_elsewhere_ends_the_live_page(page: Page, web: WebProcess) -> None:
    log_in(page, web)
    other = page.context.new_page()
    other.goto(web.url)
    other.click("text=Log out")
    expect(page.locator("#stale")).to_contain_text("You are logged out.", timeout=12_000)
    expect(page.locator("#reconnect")).to_have_text("Log in again")


def test_the_theme_is_kept(page: Page, web: WebProcess) -> None:
    log_in(page, web)
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    after = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert after != before
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == after
