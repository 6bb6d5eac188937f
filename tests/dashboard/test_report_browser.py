"""The weekly report in a real Chromium: its charts are drawn under its policy, in both themes."""

from __future__ import annotations

import urllib.request
from datetime import timedelta

import pytest
from playwright.sync_api import Page, expect

from controlplane.models import Role
from tests import builders
from tests.browser import WAIT_MS
from tests.controlplane.ingest import batches
from tests.controlplane.ingest.conftest import new_sender
from tests.controlplane.reports.test_weekly import LONDON, last_week, prices
from tests.dashboard.server import WebProcess
from tests.telemetry import forget_telemetry

pytestmark = pytest.mark.browser


def a_week(web: WebProcess) -> None:
    """Some tasks of last week, sent to the web process."""
    forget_telemetry()
    prices()
    at = last_week().bounds(LONDON)[0] + timedelta(days=1)
    events = []
    for number in range(4):
        attempt = batches.attempt(at + timedelta(days=number))
        whose = {"request": attempt["request"]}
        events += [attempt, batches.outcome(at + timedelta(days=number, seconds=2), **whose)]
    request = urllib.request.Request(
        f"{web.url}/api/v1/events",
        data=batches.encoded(batches.batch(*events)),
        headers={
            "Authorization": f"Bearer {new_sender().token}",
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 200


def bar_colour(page: Page) -> str:
    bar = page.locator("#line-chart .bars .point path").first
    return bar.evaluate("bar => getComputedStyle(bar).fill")


def test_charts_are_drawn_without_breaking_the_policy(page: Page, web: WebProcess) -> None:
    a_week(web)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    builders.product_person("reader", Role.VIEWER)
    page.goto(f"{web.url}/log-in?next=/report")
    page.fill("#username", "reader")
    page.fill("#password", builders.PASSWORD)
    page.click("text=Log in")
    expect(page.locator("h1")).to_contain_text(f"Week {last_week().number}")
    # Plotly is some megabytes to read: give a busy machine time.
    expect(page.locator("#line-chart .bars .point")).to_have_count(2, timeout=2 * WAIT_MS)
    expect(page.locator("#day-chart .scatterlayer .trace")).to_have_count(2)
    expect(page.locator("table.lines tfoot")).to_contain_text("4")
    page.emulate_media(color_scheme="light")
    light = bar_colour(page)
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    page.wait_for_function(
        "light => getComputedStyle(document.querySelector"
        "('#line-chart .bars .point path')).fill !== light",
        arg=light,
    )
    page.click("text=tenant")
    expect(page.locator("table.lines")).to_contain_text("acme")
    with page.expect_download() as download:
        page.click("text=CSV")
    assert download.value.suggested_filename == f"switchgear-{last_week()}-by-tenant.csv"
    assert said == []
