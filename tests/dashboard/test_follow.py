"""Pages other than the wall, in a real Chromium: they follow the feed, and keep what is typed."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from controlplane.models import RetryBudget, Revision
from tests import builders
from tests.dashboard import stories
from tests.dashboard.conftest import notify
from tests.dashboard.server import WebProcess
from tests.dashboard.test_browser import fleet, live, log_in

pytestmark = [pytest.mark.browser, pytest.mark.long]
PATIENCE_MS = 60_000  # a page is read again within seconds; on a busy machine several times that


def saved_by_another(budget: RetryBudget, ratio: int) -> None:
    """Somebody else's change, as the action would write it."""
    RetryBudget.objects.filter(pk=budget.pk).update(
        spec={"ratio_per_mille": ratio},
        resource_version=budget.resource_version + 1,
        generation=budget.generation + 1,
        updated_by="somebody-else",
    )
    Revision.objects.update(value=builders.now().timestamp() // 1)
    notify("desired")


def test_a_circuit_page_moves_by_itself_and_keeps_the_focus(page: Page, web: WebProcess) -> None:
    one, two = fleet()
    circuit = builders.circuit()
    for instance in (one, two):
        builders.circuit_state(instance, circuit)
    log_in(page, web)
    page.goto(f"{web.url}/circuits/openai%2Fgpt-4o%40us-east")
    live(page)
    expect(page.locator("h1 .is")).to_contain_text("Closed")
    page.locator(".acts .hand").focus()
    builders.circuit_state(one, circuit, "Open")
    notify()
    expect(page.locator("h1 .is")).to_contain_text("Open 1/2", timeout=PATIENCE_MS)
    assert page.evaluate("document.activeElement.matches('.acts .hand')")
    builders.override("ForceOpen", provider="openai", reason="stop paying for probes")
    notify("desired")
    expect(page.locator("h1 .want")).to_contain_text("ForceOpen", timeout=PATIENCE_MS)
    # What has come by itself works as what was there: the dialog opens in place.
    page.get_by_text("Extend or release").click()
    expect(page.locator("#dialog #spread")).to_be_visible()


def test_other_pages_follow_too(page: Page, web: WebProcess) -> None:
    [one] = fleet(1)
    builders.circuit_state(one, builders.circuit())
    log_in(page, web)
    page.goto(f"{web.url}/overrides")
    live(page)
    hand = builders.override("ObserveOnly", provider="openai", reason="while we look")
    notify("desired")
    expect(page.locator("tbody tr").first).to_contain_text("while we look", timeout=PATIENCE_MS)
    page.goto(f"{web.url}/gateways")
    live(page)
    builders.delivery(one, hand, "Rejected", reason="LocalFloorViolated")
    builders.instance(one.gateway, "chat/new")
    notify()
    expect(page.locator("main")).to_contain_text("chat/new", timeout=PATIENCE_MS)


def test_a_page_that_loses_the_server_says_so_and_reads_itself_anew(
    page: Page, web: WebProcess
) -> None:
    [one] = fleet(1)
    circuit = builders.circuit()
    builders.circuit_state(one, circuit)
    log_in(page, web)
    page.goto(f"{web.url}/circuits/openai%2Fgpt-4o%40us-east")
    live(page)
    web.kill()
    banner = page.locator("#stale")
    expect(banner).to_contain_text("Live connection lost. Data as of")
    expect(page.locator(".pulse")).to_contain_text("Not live")
    assert page.evaluate("getComputedStyle(document.querySelector('.page-head')).filter") != "none"
    builders.circuit_state(one, circuit, "HalfOpen")
    web.start()
    expect(banner).to_be_hidden(timeout=PATIENCE_MS)
    # Live only once what it shows is what is so.
    assert "HalfOpen" in page.locator("h1 .is").inner_text()


def test_a_form_that_is_being_edited_is_kept_and_told_of_anothers_change(
    page: Page, web: WebProcess
) -> None:
    budget = builders.retry_budget("circuits", "circuit")
    log_in(page, web)
    page.goto(f"{web.url}/budgets/circuits")
    live(page)
    ratio = page.locator("#ratio")
    saved_by_another(budget, 150)
    expect(ratio).to_have_value("15", timeout=PATIENCE_MS)
    ratio.fill("7")
    budget.refresh_from_db()
    saved_by_another(budget, 200)
    expect(page.locator(".changed-under")).to_contain_text("Somebody saved", timeout=PATIENCE_MS)
    expect(ratio).to_have_value("7")
    page.locator("main form.form button.hand").click()
    expect(page.locator(".clash")).to_contain_text("Somebody changed this while you edited it")
    budget.refresh_from_db()
    assert budget.spec["ratio_per_mille"] == 200


def test_a_form_on_a_page_that_is_not_live_is_read_again_before_it_is_sent(
    page: Page, web: WebProcess
) -> None:
    budget = builders.retry_budget("circuits", "circuit")
    log_in(page, web)
    page.route_web_socket("**/ws/news", lambda socket: socket.close())
    page.goto(f"{web.url}/budgets/circuits")
    expect(page.locator("#stale")).to_be_visible(timeout=PATIENCE_MS)
    page.fill("#why", "mine")
    page.fill("#ratio", "7")
    saved_by_another(budget, 200)
    page.locator("main form.form button.hand").click()
    expect(page.locator(".clash")).to_contain_text("Somebody changed this while you edited it")
    page.goto(f"{web.url}/budgets/circuits")
    expect(page.locator("#stale")).to_be_visible(timeout=PATIENCE_MS)
    page.fill("#ratio", "7")
    web.kill()
    page.locator("main form.form button.hand").click()
    expect(page.locator("#stale")).to_contain_text("Nothing was sent")
    expect(page.locator("#ratio")).to_have_value("7")


def test_the_force_dialog_asks_again_when_the_wall_is_not_live(page: Page, web: WebProcess) -> None:
    one, two = fleet()
    circuit = builders.circuit()
    builders.circuit_state(one, circuit, "Open")
    log_in(page, web)
    page.locator(".card").focus()
    page.keyboard.press("o")
    page.fill("#reason", "it browns out")
    expect(page.locator("#force-form button.hand")).to_contain_text("on 2 instances")
    # The word of the feed takes the sign away within a second: what is tested is the dialog.
    page.evaluate(
        "() => { const { classList } = document.body;"
        " const say = () => classList.contains('stale') || classList.add('stale');"
        " new MutationObserver(say).observe(document.body, { attributeFilter: ['class'] });"
        " say(); }"
    )
    builders.instance(one.gateway, "chat/late")
    page.locator("#force-form button.hand").click()
    expect(page.locator("#dialog .fault")).to_contain_text("Nothing is recorded yet")
    expect(page.locator("#reason")).to_have_value("it browns out")
    expect(page.locator("#force-form button.hand")).to_contain_text("on 3 instances")
    page.locator("#force-form button.hand").click()
    expect(page.locator("#spread")).to_be_visible()
    assert two.gateway_id == one.gateway_id


def test_the_timeline_of_what_goes_on_goes_on_and_a_zoom_stays(page: Page, web: WebProcess) -> None:
    stories.brownout()
    log_in(page, web)
    page.goto(f"{web.url}/incident?last=60")
    live(page)
    expect(page.locator("#timeline .bars").first).to_be_attached()
    end = "document.getElementById('timeline').layout.xaxis.range[1]"
    first = page.evaluate(end)
    builders.override("ObserveOnly", provider="openai", reason="seen by itself")
    notify("desired")
    expect(page.locator("main table").first).to_contain_text("seen by itself", timeout=PATIENCE_MS)
    assert page.evaluate(end) > first
    page.keyboard.press("+")
    zoomed = page.evaluate(end)
    builders.override("ObserveOnly", provider="mistral", reason="and this one")
    notify("desired")
    expect(page.locator("main table").first).to_contain_text("and this one", timeout=PATIENCE_MS)
    assert page.evaluate(end) == zoomed
    # A link names both ends: it is of the past, and stands.
    page.goto(page.locator("#share").input_value())
    expect(page.locator(".pulse")).to_have_attribute("data-live", "off")
