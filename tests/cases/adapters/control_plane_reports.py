"""Control-plane cases about weeks, money, ratios and spreadsheets.

Invariant: every answer is the product's own, from the functions that its reports call.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from controlplane.api.door import answer
from controlplane.domain.calendar import Week, hour_label, hour_of, zone_named
from controlplane.domain.pricing import EXACT, PriceBook, PriceRow, RateRow
from controlplane.reports.figures import Figures, Known
from controlplane.reports.spreadsheet import cell
from controlplane.wire.events import Tokens
from dashboard import present, reporting


def _utc(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def dst_week(case: dict[str, Any], request: Any) -> dict[str, Any]:
    """A week's bounds, an instant's week, or hours told apart."""
    given = case["input"]
    zone = zone_named(given["timezone"])
    if monday := given.get("week_starting_local"):
        week = Week.of_day(date.fromisoformat(monday))
        assert week.monday().isoformat() == monday
        start, end = week.bounds(zone)
        return {"start_utc": _utc(start), "end_utc": _utc(end), "hours": week.hours(zone)}
    if event := given.get("event_utc"):
        at = datetime.fromisoformat(event)
        return {
            "local_date": at.astimezone(zone).date().isoformat(),
            "iso_week": str(Week.of(at, zone)),
        }
    hours = sorted({hour_of(datetime.fromisoformat(at)) for at in given["events_utc"]})
    return {"buckets": len(hours), "local_labels": [hour_label(hour, zone) for hour in hours]}


def iso_week(case: dict[str, Any], request: Any) -> dict[str, Any]:
    """The ISO week of a calendar day."""
    return {"iso_week": str(Week.of_day(date.fromisoformat(case["input"]["local_date"])))}


def zero_division(case: dict[str, Any], request: Any) -> dict[str, Any]:
    """Ratios of nothing, as figures, as JSON and as a verdict on screen."""
    given = case["input"]
    figures = Figures(
        firsts=given["requests"],
        retries=given["retries"],
        tasks_succeeded=given["successes"],
        tasks_failed=given["requests"] - given["successes"],
        cost=Known(Decimal(given["cost"])),
    )
    ratios = {
        "retry_ratio": figures.retry_ratio,
        "success_rate": figures.task_success_ratio,
        "cost_per_successful_task": figures.cost_per_successful_task,
    }
    sent = answer(ratios).content
    return ratios | {
        "json_is_strict": json.loads(sent, parse_constant=_refuse) == ratios,
        "severity": reporting.change(figures.retry_ratio, figures.retry_ratio).tone,
    }


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def money(case: dict[str, Any], request: Any) -> dict[str, Any]:
    """A total of unrounded rows, or one small amount as shown."""
    given = case["input"]
    if "amount_gbp" in given:
        return {"display": present.money(Decimal(given["amount_gbp"])), "not": present.money(
            Decimal(given["amount_gbp"])
        )}  # fmt: skip
    total = Known()
    for row in given["rows_gbp"]:
        total += Known(Decimal(row))
    assert total.gbp is not None
    return {
        "stored_total": total.gbp,
        "total_display": reporting.pounds(total.gbp, given["display_places"]),
    }


def fx_date(case: dict[str, Any], request: Any) -> dict[str, Any]:
    """Amounts in dollars, each told in pounds by the rate of its own day."""
    given = case["input"]
    rates = [
        RateRow(number, "USD", date.fromisoformat(day), Decimal(rate))
        for number, (day, rate) in enumerate(given["rates_gbp"].items(), 1)
    ]
    found = []
    for row in given["rows"]:
        at = datetime.fromisoformat(row["date"]).replace(tzinfo=UTC)
        # One token whose price is the row's amount, so that the whole way of a cost is taken.
        price = PriceRow(1, "p", "m", "", "input", "USD", Decimal(row["usd"]) * 10**6, at)
        cost = PriceBook([price], rates).cost(
            Tokens(input=1, output=0), provider="p", model="m", served_model=None, tier="", at=at,
            billing="billed",
        )  # fmt: skip
        found.append(cost.gbp)
    total = Decimal(0)
    for gbp in found:
        assert gbp is not None
        total = EXACT.add(total, gbp)
    return {"row_gbp": found, "total_gbp": total}


def csv_injection(case: dict[str, Any], request: Any) -> dict[str, Any]:
    """One cell of a CSV file."""
    given = case["input"]
    kinds: dict[str, Callable[[str], str | Decimal]] = {"text": str, "decimal": Decimal}
    written = cell(kinds[given["type"]](given["value"]))
    return {
        "cell": written,
        "neutralised": written != given["value"],
        "must_not_start_with": written,
    }


KINDS: dict[str, Callable[[dict[str, Any], Any], dict[str, Any]]] = {
    "dst_week": dst_week,
    "iso_week": iso_week,
    "zero_division": zero_division,
    "money": money,
    "fx_date": fx_date,
    "csv_injection": csv_injection,
}
