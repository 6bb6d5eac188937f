"""Control-plane cases about weeks, money, ratios and spreadsheets.

Invariant: every answer is the product's own, from the functions that its reports call.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from controlplane.api.door import answer
from controlplane.domain.calendar import CalendarError, Week, hour_label, hour_of, zone_named
from controlplane.domain.histogram import Histogram, bins_of, bucket_of
from controlplane.domain.pricing import EXACT, PriceBook, PriceRow, RateRow
from controlplane.reports.figures import Figures, Known
from controlplane.reports.spreadsheet import Cell, cell, document, plain
from controlplane.wire.events import Tokens
from dashboard import present, reporting
from dashboard.views.incident import moment

HOUR, MILLION = timedelta(hours=1), Decimal(10**6)


def _utc(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def dst_week(case: dict[str, Any], request: Any) -> dict[str, Any]:
    """A week's bounds, a day's, an instant's week, a local time, or instants told apart."""
    given = case["input"]
    try:
        zone = zone_named(given["timezone"])
    except CalendarError as error:
        return {"valid": False, "message": str(error)}
    if "events_utc" in given:
        return {"valid": True} | _bucketed(given, zone)
    if "local_time" in given:
        found = moment(given["local_time"], "at", zone)
        return {"valid": found is not None, "utc": None if found is None else _utc(found)}
    if "event_utc" in given:
        at = datetime.fromisoformat(given["event_utc"])
        return {
            "valid": True,
            "local_date": at.astimezone(zone).date().isoformat(),
            "iso_week": str(Week.of(at, zone)),
            "local_label": hour_label(at, zone),
        }
    if "local_date" in given:
        day = date.fromisoformat(given["local_date"])
        start, end = Week.of_day(day).midnights(zone)[day.weekday() : day.weekday() + 2]
        return {"start_utc": _utc(start), "end_utc": _utc(end), "hours": (end - start) / HOUR}
    if "week_starting_local" in given:
        monday = date.fromisoformat(given["week_starting_local"])
        week = Week.of_day(monday)
        assert week.monday() == monday
    else:
        week = Week.parse(given["iso_week"])
    start, end = week.bounds(zone)
    return {
        "valid": True,
        "iso_week": str(week),
        "start_utc": _utc(start),
        "end_utc": _utc(end),
        "hours": week.hours(zone),
    }


def _bucketed(given: dict[str, Any], zone: ZoneInfo) -> dict[str, Any]:
    """Instants by hour, day or week of the zone, each told by its own name."""
    instants = [datetime.fromisoformat(at) for at in given["events_utc"]]
    match given.get("bucket", "hour"):
        case "hour":
            labels = [hour_label(hour, zone) for hour in sorted({hour_of(at) for at in instants})]
        case "day":
            labels = sorted({at.astimezone(zone).date().isoformat() for at in instants})
        case "week":
            labels = [str(week) for week in sorted({Week.of(at, zone) for at in instants})]
        case other:
            raise LookupError(f"no part tells instants apart by {other!r} yet")
    return {"buckets": len(labels), "local_labels": labels}


def iso_week(case: dict[str, Any], request: Any) -> dict[str, Any]:
    """The ISO week of a calendar day or of a date and time, or whether a written one exists."""
    given = case["input"]
    written = given.get("iso_week") or given.get("week")
    if written is not None:
        try:
            week = Week.parse(written)
        except CalendarError as error:
            return {"valid": False, "message": str(error), "monday": None}
    else:
        week = Week.of_day(date.fromisoformat(given["local_date"][:10]))
    monday = week.monday()
    return {
        "valid": True,
        "iso_week": str(week),
        "monday": monday.isoformat(),
        "sunday": (monday + timedelta(days=6)).isoformat(),
    }


def zero_division(case: dict[str, Any], request: Any) -> dict[str, Any]:
    """Ratios of nothing, as figures, as JSON and as a verdict on screen."""
    given = case["input"]
    if "latencies_ms" in given:
        found = Histogram(bins_of(Counter(bucket_of(ms) for ms in given["latencies_ms"])))
        sent = {f"p{q}": found.quantile(q / 100) for q in (50, 95, 99)}
        return sent | {"json_is_strict": _is_strict(sent)}
    figures, before = _figures(given), _figures(given.get("previous") or given)
    ratios = {
        "retry_ratio": figures.retry_ratio,
        "success_rate": figures.task_success_ratio,
        "cost_per_successful_task": figures.cost_per_successful_task,
        "amplification": figures.amplification,
        "failure_ratio": figures.failed_ratio,
        "wasted_share": figures.wasted_share,
    }
    change = reporting.change(figures.retry_ratio, before.retry_ratio)
    money = ratios["cost_per_successful_task"]
    # As the reports write an amount: exact, as text.
    sent = ratios | {"cost_per_successful_task": None if money is None else plain(money)}
    return ratios | {
        "json_is_strict": _is_strict(sent),
        "change": change.words or None,
        "severity": change.tone,
    }


def _figures(given: dict[str, Any]) -> Figures:
    cost, failed = given.get("cost"), given.get("failures", 0)
    successes, requests = given.get("successes", 0), given.get("requests", 0)
    retries = given.get("retries", 0)
    return Figures(
        attempts=given.get("attempts", requests + retries),
        firsts=requests,
        retries=retries,
        failed=failed,
        tasks_succeeded=successes,
        tasks_failed=max(requests - successes, 0),
        cost=Known(missing=1) if cost is None else Known(Decimal(cost)),
        wasted_finally=Known(Decimal(given.get("wasted", "0"))),
    )


def _is_strict(sent: dict[str, Any]) -> bool:
    """The answer is JSON that a strict reader reads as what was sent."""
    return bool(json.loads(answer(sent).content, parse_constant=_refuse) == sent)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def money(case: dict[str, Any], request: Any) -> dict[str, Any]:
    """A total of unrounded rows, or one small amount as shown."""
    given = case["input"]
    if "amount_gbp" in given:
        said = given["amount_gbp"]
        amount = None if said is None else Decimal(said)
        shown = present.money(amount)
        if amount is not None and "display_places" in given:
            shown = reporting.pounds(amount, given["display_places"])
        return {"display": shown, "not": shown, "per_task": reporting.per_task(amount)}
    places = given.get("display_places", 2)
    rows = [Known(missing=1) if r is None else Known(Decimal(r)) for r in given["rows_gbp"]]
    total = sum(rows, start=Known())
    return {
        "stored_total": total.gbp,
        "unpriced": total.missing,
        "total_display": present.NOT_KNOWN
        if total.gbp is None
        else reporting.pounds(total.gbp, places),
        "row_displays": [
            present.NOT_KNOWN if row.gbp is None else reporting.pounds(row.gbp, places)
            for row in rows
        ],
    }


def fx_date(case: dict[str, Any], request: Any) -> dict[str, Any]:
    """Amounts in other money, each told in pounds by the rate of its own day."""
    given = case["input"]
    rows = [_amount(row) for row in given["rows"]]
    currency = next((c for _, c, _ in rows if c != "GBP"), "USD")
    rates = [
        RateRow(number, currency, date.fromisoformat(day), Decimal(rate))
        for number, (day, rate) in enumerate(given["rates_gbp"].items(), 1)
    ]
    found = []
    for at, quoted, amount in rows:
        # One token whose price is the row's amount, so that the whole way of a cost is taken.
        price = PriceRow(1, "p", "m", "", "input", quoted, EXACT.multiply(amount, MILLION), at)
        cost = PriceBook([price], rates).cost(
            Tokens(input=1, output=0), provider="p", model="m", served_model=None, tier="", at=at,
            billing="billed",
        )  # fmt: skip
        found.append(cost)
    total = sum((Known(c.gbp) if c.gbp is not None else Known(missing=1) for c in found), Known())
    return {
        "row_gbp": [cost.gbp for cost in found],
        "row_status": [cost.status.value for cost in found],
        "total_gbp": total.gbp,
        "unpriced": total.missing,
    }


def _amount(row: dict[str, Any]) -> tuple[datetime, str, Decimal]:
    """When, in which money and how much: ``{"usd": "10"}``, or ``currency`` and ``amount``."""
    at = datetime.fromisoformat(row["date"])
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    if "currency" in row:
        return at, row["currency"].upper(), Decimal(row["amount"])
    ((currency, amount),) = [(n, v) for n, v in row.items() if re.fullmatch("[a-z]{3}", n)]
    return at, currency.upper(), Decimal(amount)


def csv_injection(case: dict[str, Any], request: Any) -> dict[str, Any]:
    """One cell of a CSV file, and the file's line with only that cell."""
    given = case["input"]
    said = given["value"]
    value = None if said is None else READERS[given.get("type") or "text"](said)
    written = cell(value)
    return {
        "cell": written,
        "neutralised": written != str(said if said is not None else ""),
        "must_not_start_with": written,
        "line": document(["x"], [[value]]).removeprefix("x\r\n").removesuffix("\r\n"),
    }


READERS: dict[str, Callable[[Any], Cell]] = {
    "text": str,
    "string": str,
    "decimal": Decimal,
    "money": Decimal,
    "number": lambda said: Decimal(str(said)),
    "float": float,
    "percent": float,
    "integer": int,
    "int": int,
}


KINDS: dict[str, Callable[[dict[str, Any], Any], dict[str, Any]]] = {
    "dst_week": dst_week,
    "iso_week": iso_week,
    "zero_division": zero_division,
    "money": money,
    "fx_date": fx_date,
    "csv_injection": csv_injection,
}
