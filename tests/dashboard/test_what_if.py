"""Beside a budget's form: what an edit would have done; in the list: what each budget holds."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from django.test import Client
from playwright.sync_api import Browser, expect

from controlplane.models import Circuit, Gateway
from controlplane.reports import budgets
from controlplane.reports.budget_asked import asked
from tests import builders
from tests.browser import new_page
from tests.dashboard.server import WebProcess
from tests.dashboard.test_axe import complaints
from tests.dashboard.test_browser import log_in

MINUTE = timedelta(minutes=1)


def hot(gateway: Gateway, circuit: Circuit, **counts: int) -> None:
    """Ten minutes ago: 1,000 firsts, 100 retries sent, 200 refused."""
    at = builders.now().replace(second=0, microsecond=0) - 10 * MINUTE
    values = {"attempts": 1100, "firsts": 1000, "retries": 100, "refused_budget": 200} | counts
    builders.rollup(gateway, circuit, at, cost_gbp=Decimal(11), **values)


def said(client: Client, name: str, **typed: str) -> str:
    return " ".join(client.post(f"/budgets/{name}/what-if", typed).content.decode().split())


@pytest.mark.django_db
def test_an_edited_ratio_says_what_it_would_have_done(oncall: Client) -> None:
    hot(builders.gateway("chat"), builders.circuit())
    builders.retry_budget("system", "system")
    text = said(oncall, "system", ratio="20")
    assert "On the last hour, a ratio of 20% would have" in text
    assert '<b>100 retries</b> <span class="quiet">really 200</span>' in text
    assert '<b>100 more retries</b> <span class="quiet">9.1% of all calls</span>' in text
    assert "<b>£1.00 more</b>" in text
    text = said(oncall, "system", ratio="8", burst="5")
    assert "<b>20 fewer retries</b>" in text
    assert "<b>20p less</b>" in text
    assert "the burst as edited, bursts within a minute" in text


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ({"ratio": "10"}, "Edit the ratio, floor or ceiling"),
        ({"burst": "1"}, "Edit the ratio, floor or ceiling"),
        ({"ratio": "x"}, "once every number can be read"),
        ({"ratio": "-4"}, "ratio_per_mille must be 0 or more"),
        ({"ratio": "20"}, "<b>0 more retries</b> <span class=\"quiet\">no call</span>"),
    ],
)  # fmt: skip
def test_what_cannot_be_told_says_why(oncall: Client, typed: dict[str, str], words: str) -> None:
    builders.retry_budget("system", "system")
    assert words in said(oncall, "system", **typed)


@pytest.mark.django_db
def test_nothing_is_counted_by_tenant_and_that_is_said(oncall: Client) -> None:
    builders.retry_budget("tenants", "tenant")
    assert "nothing is counted by tenant" in said(oncall, "tenants", ratio="20")
    assert oncall.post("/budgets/nobody/what-if").status_code == 404


@pytest.mark.django_db
def test_only_where_its_numbers_ruled() -> None:
    chat, batch = builders.gateway("chat"), builders.gateway("batch")
    openai, mistral = builders.circuit(), builders.circuit("mistral", "small", "eu")
    for gateway in (chat, batch):
        for circuit in (openai, mistral):
            hot(gateway, circuit, attempts=gateway.pk * 100_000 + circuit.pk)
    every = builders.retry_budget("every", "circuit")
    builders.retry_budget("openai", "circuit", provider="openai", gateway="chat")
    builders.retry_budget("tenants", "tenant", gateway="chat")  # of another level: takes nothing
    for number in range(3):
        builders.instance(batch, f"b/{number}")
    now = builders.now()
    found = asked(every, now - timedelta(hours=1), now, now)
    assert sorted((row.attempts, row.instances) for row in found) == sorted(
        [
            (chat.pk * 100_000 + mistral.pk, 1),
            (batch.pk * 100_000 + openai.pk, 3),
            (batch.pk * 100_000 + mistral.pk, 3),
        ]
    )
    system = builders.retry_budget("system", "system")
    assert len(asked(system, now - timedelta(hours=1), now, now)) == 2  # a bucket a gateway


@pytest.mark.django_db
def test_each_budget_shows_what_its_buckets_hold(oncall: Client) -> None:
    chat, batch = builders.gateway("chat"), builders.gateway("batch")
    one, other, third = (
        builders.instance(g, f"{g.name}/{n}") for g, n in ((chat, 0), (chat, 1), (batch, 0))
    )
    builders.budget_state(one, "system/", balance=16, spent=4)
    builders.budget_state(other, "system/", balance=2, spent=10)
    builders.budget_state(third, "system/", balance=30, spent=0)
    builders.budget_state(one, "circuit/openai/gpt-4o@us-east", balance=0, spent=9)
    builders.budget_state(one, "circuit/mistral/small@eu", balance=5, spent=0)
    rows = [
        builders.retry_budget("system", "system", gateway="chat"),
        builders.retry_budget("circuits", "circuit"),
        builders.retry_budget("mistral", "circuit", provider="mistral"),
        builders.retry_budget("tenants", "tenant"),
    ]
    assert budgets.holdings(rows, builders.now()) == [
        budgets.Holding(2, 18, 14, 2, 0),
        budgets.Holding(2, 5, 9, 0, 1),
        budgets.Holding(1, 5, 0, 5, 0),
        None,
    ]
    text = " ".join(oncall.get("/budgets").content.decode().split())
    for words in ("18 of 32", "least 2", "1 of 2 buckets at 0", "none reported"):
        assert words in text, words


@pytest.mark.browser
def test_it_follows_what_is_typed(browser: Browser, web: WebProcess) -> None:
    hot(builders.gateway("chat"), builders.circuit())
    builders.retry_budget("system", "system")
    with new_page(browser) as page:
        log_in(page, web)
        page.goto(f"{web.url}/budgets/system")
        told = page.locator(".what-if")
        expect(told).to_contain_text("Edit the ratio")
        page.fill("#ratio", "20")
        expect(told).to_contain_text("100 more retries")
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
            assert complaints(page) == []
        page.fill("#ratio", "5")
        expect(told).to_contain_text("50 fewer retries")
        page.fill("#ratio", "10")
        expect(told).to_contain_text("Edit the ratio")
        # Where it cannot be asked, nothing comes between the person and the form.
        page.route("**/what-if", lambda route: route.abort())
        page.fill("#ratio", "30")
        expect(told).to_contain_text("cannot be asked now")
        expect(page.locator("#dialog")).not_to_be_visible()
        expect(page.locator("#ratio")).to_have_value("30")
