"""The last hour of a circuit and of a budget: gaps stay gaps, ratios and limits are right."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from django.test import Client

from controlplane.domain.precedence import Selection
from controlplane.reports import budgets
from controlplane.reports.budgets import Minute
from dashboard import series_figure
from tests import builders
from tests.dashboard import stories
from tests.dashboard.test_incident import figure_of

LONDON = ZoneInfo("Europe/London")
SINCE = datetime(2026, 6, 1, 9, 0, tzinfo=UTC)


def trace(figure: dict, name: str) -> dict:  # type: ignore[type-arg]
    return next(found for found in figure["data"] if found["name"] == name)


def test_what_was_wanted_stands_over_what_was_spent() -> None:
    minutes = [Minute(SINCE, 100, 10, 20), Minute(SINCE + timedelta(minutes=2), 50, 1, 0)]
    until = SINCE + timedelta(minutes=4)
    figure = series_figure.budget(minutes, SINCE, until, 100, LONDON)
    assert trace(figure, "wanted, %")["y"] == [30, None, 2, None]
    assert trace(figure, "spent, %")["y"] == [10, None, 2, None]
    assert trace(figure, "refused/s")["y"] == [20 / 60, None, 0, None]
    assert trace(figure, "limit 10%, recorded")["y"] == [10, 10]


def test_times_are_the_readers() -> None:
    figure = series_figure.budget([], SINCE, SINCE + timedelta(minutes=1), 100, LONDON)
    assert figure["layout"]["xaxis"]["range"][0].startswith("2026-06-01T10:00")


def test_a_minute_without_firsts_has_no_ratio() -> None:
    minutes = [Minute(SINCE, 0, 3, 0)]
    figure = series_figure.budget(minutes, SINCE, SINCE + timedelta(minutes=1), 100, LONDON)
    assert trace(figure, "spent, %")["y"] == [None]


def test_a_minute_between_two_gaps_is_a_dot() -> None:
    """A line needs two points: a circuit with a call every few minutes had empty charts."""
    minutes = [Minute(SINCE + timedelta(minutes=m), 10, 1, 1) for m in (1, 3, 4)]
    until = SINCE + timedelta(minutes=6)
    figure = series_figure.budget(minutes, SINCE, until, 100, LONDON)
    for name in ("wanted, %", "spent, %"):
        found = trace(figure, name)
        assert found["mode"] == "lines+markers"
        assert found["marker"]["size"] == [0, 4, 0, 0, 0, 0]
        assert found["marker"]["color"].startswith("--")
    assert trace(figure, "refused/s")["marker"] == {"color": "--open-fill"}


def test_minutes_side_by_side_have_no_dots() -> None:
    minutes = [Minute(SINCE + timedelta(minutes=m), 10, 1, 1) for m in range(3)]
    figure = series_figure.budget(minutes, SINCE, SINCE + timedelta(minutes=3), 100, LONDON)
    assert trace(figure, "spent, %")["mode"] == "lines"
    assert "marker" not in trace(figure, "spent, %")


@pytest.mark.django_db
def test_a_budget_counts_only_what_it_is_about() -> None:
    chat, batch = builders.gateway("chat"), builders.gateway("batch")
    openai, mistral = builders.circuit(), builders.circuit("mistral", "mistral-large", "eu")
    at = builders.ago(300).replace(second=0, microsecond=0)
    for gateway, circuit, firsts in ((chat, openai, 100), (batch, openai, 10), (chat, mistral, 1)):
        builders.rollup(gateway, circuit, at, attempts=firsts, firsts=firsts, cost_gbp=Decimal(1))
    end = at + timedelta(minutes=1)

    def firsts_of(**parts: str) -> list[int]:
        return [row.firsts for row in budgets.minutes(Selection(**parts), at, end)]

    assert firsts_of() == [111]
    assert firsts_of(provider="openai") == [110]
    assert firsts_of(provider="openai", gateway="chat") == [100]
    assert firsts_of(provider="nobody") == []


@pytest.mark.django_db
def test_the_pages_draw_them(oncall: Client) -> None:
    [circuit, *_] = stories.brownout()
    page = f"/circuits/{circuit.provider}%2F{circuit.model}%40{circuit.region}"
    figures = figure_of(oncall.get(page).content.decode())
    failed = trace(figures[0], "failed, %")["y"]
    assert max(value for value in failed if value is not None) > 75
    assert trace(figures[0], "opens at 50% of 20 or more")["y"] == [50, 50]
    # One axis: the same beginning, end and margins for all four.
    axes = [(f["layout"]["xaxis"]["range"], f["layout"]["margin"]) for f in figures]
    assert len(axes) == 4
    assert all(axis == axes[0] for axis in axes)
    figure = figure_of(oncall.get("/budgets/system").content.decode())
    assert max(value or 0 for value in trace(figure, "refused/s")["y"]) > 30


@pytest.mark.django_db
def test_a_tenants_budget_draws_the_bucket_in_most_trouble(oncall: Client) -> None:
    one = builders.instance(builders.gateway("chat"))
    builders.retry_budget("each", "tenant")
    builders.retry_budget("acme", "tenant", tenant="acme")
    empty = oncall.get("/budgets/each").content.decode()
    assert "No tenant’s bucket was reported" in empty
    assert "of tenant acme" in oncall.get("/budgets/acme").content.decode()
    builders.budget_state(one, "tenant/acme", balance=9)
    builders.budget_state(one, "tenant/zeta</script>", balance=0, refused=4)
    at = builders.ago(240).replace(second=5)
    builders.budget_word(one, "tenant/zeta</script>", at, spent=30, refused=4)
    builders.budget_word(one, "tenant/acme", at, balance=9, earned=2)
    text = oncall.get("/budgets/each").content.decode()
    assert "tenant zeta&lt;/script&gt;, of 2 the one with the most refused" in text
    assert "data-limit" not in text  # a limit in per cent has no place on an axis of retries
    drawn = figure_of(text)
    assert [v for v in trace(drawn, "refused")["y"] if v is not None] == [4]
    assert trace(drawn, "balance")["y"].count(None) == 74
    drawn = figure_of(oncall.get("/budgets/acme").content.decode())
    assert [v for v in trace(drawn, "balance")["y"] if v is not None] == [9]


@pytest.mark.django_db
def test_the_list_says_what_each_budget_has_to_deal_with(oncall: Client) -> None:
    chat = builders.gateway("chat")
    openai, mistral = builders.circuit(), builders.circuit("mistral", "mistral-large", "eu")
    rows = [
        builders.retry_budget("all", "system"),
        builders.retry_budget("some", "circuit", provider="mistral"),
        builders.retry_budget("none", "circuit", provider="nobody"),
        builders.retry_budget("each", "tenant"),
    ]
    end = builders.now().replace(second=0, microsecond=0)
    last, before = end - timedelta(minutes=1), end - timedelta(minutes=50)
    builders.rollup(chat, openai, last, firsts=100, retries=30, refused_budget=5)
    builders.rollup(chat, mistral, last, firsts=100, retries=1)
    builders.rollup(chat, mistral, before, firsts=100, retries=90, refused_budget=1200)
    builders.rollup(chat, openai, end - timedelta(minutes=61), firsts=1, refused_budget=7)
    found = budgets.lately(rows, end + timedelta(seconds=30))
    assert [(one.ratio, one.refused) for one in found] == [
        (31 / 200, 1205),
        (1 / 100, 1200),
        (None, None),
        (None, None),
    ]
    text = oncall.get("/budgets").content.decode()
    assert "Retry ratio now" in text
    assert "by bucket, below" in text
