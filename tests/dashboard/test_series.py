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
    figure = figure_of(oncall.get(page).content.decode())
    failed = trace(figure, "failed, %")["y"]
    assert max(value for value in failed if value is not None) > 75
    figure = figure_of(oncall.get("/budgets/system").content.decode())
    assert max(value or 0 for value in trace(figure, "refused/s")["y"]) > 30
