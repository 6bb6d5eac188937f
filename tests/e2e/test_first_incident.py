"""A newcomer's first five minutes, in a real browser, against all that `make up` starts.

A circuit opens by itself; another is forced open with a reason and five minutes; every instance
enforces it; the gateway answers by fallback; it is released, probes and closes.
"""

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser import chromium, new_page
from tests.product import Product

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

CIRCUIT = "groq/llama-3.1-8b-instant@eu"
ROUTE = "extraction"
FALLBACK = "mistral/mistral-small-latest"


def call(product: Product, route: str) -> tuple[int, dict[str, str], dict[str, Any]]:
    """One chat completion through the gateway, as an application makes it."""
    body = {"model": route, "messages": [{"role": "user", "content": "ping"}]}
    request = urllib.request.Request(
        f"{product.gateway}/v1/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=40) as response:
            return response.status, dict(response.headers), json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), json.load(error)


def api(product: Product, path: str) -> Any:
    """A GET of the people's API with the viewer's token."""
    request = urllib.request.Request(
        f"{product.web}/api/v1/{path}",
        headers={"authorization": f"Bearer {product.credentials['viewer_token']}"},
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.load(response)


def until(read: Callable[[], Any], wanted: Callable[[Any], bool], seconds: float) -> Any:
    """The first reading that is wanted; the last one is in the failure's text."""
    end = time.monotonic() + seconds
    while True:
        seen = read()
        if wanted(seen):
            return seen
        assert time.monotonic() < end, f"not within {seconds} s; last seen: {seen}"
        time.sleep(0.2)


@pytest.fixture
def product(tmp_path: Path) -> Iterator[Product]:
    with Product.running(tmp_path) as running:
        yield running


@pytest.fixture
def page() -> Iterator[Page]:
    with chromium() as browser, new_page(browser) as opened:
        yield opened


def test_newcomer_sees_forces_and_releases(product: Product, page: Page) -> None:
    ready_at = time.monotonic()
    page.goto(product.web)
    page.get_by_label("Name").fill(product.credentials["admin_user"])
    page.get_by_label("Password").fill(product.credentials["admin_password"])
    page.get_by_role("button", name="Log in").click()

    opened = page.locator("article.card .is b", has_text=re.compile("^Open$"))
    expect(opened.first).to_be_visible(timeout=60_000)
    assert time.monotonic() - ready_at < 60

    page.goto(f"{product.web}/overrides/new?provider=groq&model=llama-3.1-8b-instant&region=eu")
    page.get_by_label("Reason").fill("end-to-end test of the override")
    page.locator("label", has=page.locator("input[name=minutes][value='5']")).click()
    page.get_by_role("button", name=re.compile("Force open on 2 instances")).click()
    stages = page.locator(".stages")
    expect(stages).to_contain_text("2 of 2", timeout=10_000)
    expect(page.locator(".dots li[data-state=enforced]")).to_have_count(2, timeout=10_000)

    status, headers, body = call(product, ROUTE)
    if status == 200:
        assert headers["x-switchgear-circuit"] == FALLBACK, headers
    else:
        assert status == 503, (status, body)
        assert "error" in body
        assert "retry-after" in {name.lower() for name in headers}

    page.get_by_role("button", name="Release").click()
    expect(page.locator(".stages")).to_contain_text("Lifted", timeout=10_000)

    def states() -> set[str]:
        call(product, ROUTE)
        return {i["state"] for i in api(product, f"circuits/{CIRCUIT}")["status"]["instances"]}

    until(states, lambda seen: seen == {"Closed"}, 60)
    causes = until(
        lambda: transitions(product),
        lambda seen: {"OverrideReleased", "ProbeSucceeded"} <= {t[2] for t in seen},
        20,
    )
    assert ("Open", "HalfOpen", "OverrideReleased") in causes or any(
        to == "HalfOpen" and cause == "OverrideReleased" for _, to, cause in causes
    )


def transitions(product: Product) -> list[tuple[str, str, str]]:
    """The forced circuit's transitions as stored: from, to, cause."""
    provider, rest = CIRCUIT.split("/")
    model, region = rest.split("@")
    return product.query(
        "SELECT from_state, to_state, cause FROM transition t JOIN circuit c ON c.id = t.circuit_id"
        " WHERE provider = %s AND model = %s AND region = %s ORDER BY number",
        (provider, model, region),
    )
