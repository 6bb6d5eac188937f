"""A report in words: money, ratios, changes, and what must be said about them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

import plotly.graph_objects as go
import pytest

from controlplane.domain.calendar import Week
from controlplane.reports.figures import Figures, Known
from controlplane.reports.weekly import Day, Line, Question, Rate, Report, Weekly
from dashboard import charts, reporting

WEEK = Week(2026, 48)
ZONE = ZoneInfo("Europe/London")


def figures(cost: str = "1.25", missing: int = 0, tasks: int = 500, retries: int = 3) -> Figures:
    return Figures(
        attempts=510 + missing,
        firsts=505,
        retries=retries,
        cost=Known(Decimal(cost), missing),
        wasted=Known(Decimal("0.01")),
        wasted_finally=Known(Decimal("0.05")),
        tasks_succeeded=tasks,
        tasks_failed=7,
    )


def week(of: Week, lines: list[Line], days: Figures | None = None) -> Weekly:
    start, end = of.bounds(ZONE)
    total = lines[0].figures if lines else Figures()
    for line in lines[1:]:
        total += line.figures
    return Weekly(
        question=Question(of, ZONE, "circuit"),
        start=start,
        end=end,
        total=total,
        lines=lines,
        days=[Day(date(2026, 11, 23 + n), days or Figures()) for n in range(7)],
        simulated=[],
        rates=[],
        incomplete=False,
        running=False,
    )


def report(lines: list[Line], before: list[Line] | None = None) -> Report:
    return Report(week(WEEK, lines, figures()), week(WEEK.shifted(-1), before or []))


@pytest.mark.parametrize(
    ("gbp", "words"),
    [
        (None, "–"),
        ("0", "0p"),
        ("0.00000001", "<0.001p"),
        ("0.00209", "0.209p"),
        ("0.613", "61.300p"),
        ("1.0449", "£1.045"),
        ("1234.5", "£1,234.500"),
    ],
)
def test_a_cost_of_one_task(gbp: str | None, words: str) -> None:
    assert reporting.per_task(None if gbp is None else Decimal(gbp)) == words


@pytest.mark.parametrize(
    ("ratio", "words"), [(None, "–"), (0, "0%"), (0.00001, "<0.01%"), (0.00911, "0.91%")]
)
def test_a_weekly_ratio(ratio: float | None, words: str) -> None:
    assert reporting.share(ratio) == words


def test_rows_that_round_to_nothing_have_a_total_that_does_not() -> None:
    total = sum((Known(Decimal("0.004")) for _ in range(3)), Known())
    assert total.gbp == Decimal("0.012")
    assert reporting.pounds(Decimal("0.012"), 2) == "£0.01"
    assert reporting.pounds(Decimal("0.004"), 2) == "<£0.01"
    assert reporting.pounds(Decimal("-0.02"), 2) == "-£0.02"


@pytest.mark.parametrize(
    ("now", "before", "expected"),
    [
        (1.028, 1.0, ("▲ 2.8%", "worse")),
        (0.9, 1.0, ("▼ 10.0%", "better")),
        (1.0, 1.0, ("= 0.0%", "none")),
        (41.0, 1.0, ("▲ ×41", "worse")),
        (None, 1.0, ("", "none")),
        (1.0, None, ("", "none")),
        (1.0, 0, ("", "none")),
    ],
)
def test_a_change_is_red_only_in_the_worse_direction(
    now: float | None, before: float | None, expected: tuple[str, str]
) -> None:
    found = reporting.change(now, before)
    assert (found.words, found.tone) == expected


def test_more_success_is_better() -> None:
    assert reporting.change(1.1, 1.0, more_is_worse=False).tone == "better"


def test_what_is_not_known_says_why() -> None:
    lines = [
        Line("1", "a/free", figures(cost="0", missing=510)),
        Line("2", "b/none", figures(tasks=0)),
        Line("", "", Figures(tasks_succeeded=3)),
    ]
    rows = {row.name: row for row in reporting.rows(report(lines))}
    assert (rows["a/free"].cost, rows["a/free"].cost_note) == ("–", "+ 510 unpriced")
    assert (rows["a/free"].per_task, rows["a/free"].per_task_note) == ("–", "cost not known")
    assert rows["b/none"].per_task_note == "no successful task"
    assert (rows["(none)"].cost, rows["(none)"].retry) == ("0p", "–")
    assert list(rows)[-1] == "(none)"


def test_a_long_tail_is_folded_and_still_adds_up() -> None:
    lines = [Line(str(n), f"p/m{n}", figures(tasks=1)) for n in range(reporting.LINES + 7)]
    rows = reporting.rows(report(lines))
    assert len(rows) == reporting.LINES + 1
    assert (rows[-1].name, rows[-1].succeeded) == ("7 other circuits", "7")
    assert reporting.total(report(lines)).succeeded == str(reporting.LINES + 7)


def test_an_old_rate_says_so() -> None:
    rate = Rate("USD", date(2026, 11, 22), Decimal("0.7571786161"), "source")
    assert not rate.is_old(datetime(2026, 11, 29, tzinfo=UTC))
    assert rate.is_old(datetime(2026, 11, 30, tzinfo=UTC))


@pytest.mark.parametrize(
    ("of", "words"),
    [
        ("2026-W48", "Week 48, Mon 23 to Sun 29 Nov 2026"),
        ("2026-W49", "Week 49, Mon 30 Nov to Sun 6 Dec 2026"),
        ("2026-W53", "Week 53, Mon 28 Dec 2026 to Sun 3 Jan 2027"),
    ],
)
def test_a_week_has_a_title(of: str, words: str) -> None:
    assert reporting.title(Week.parse(of)) == words


def without_tokens(value: object) -> object:
    """The figure as the page draws it: each token has become a colour."""
    if isinstance(value, str):
        return "rgb(1, 2, 3)" if value.startswith("--") else value
    if isinstance(value, dict):
        return {name: without_tokens(part) for name, part in value.items()}
    return [without_tokens(part) for part in value] if isinstance(value, list) else value


def test_charts_are_what_plotly_accepts() -> None:
    lines = [Line("1", "a/b", figures()), Line("", "", Figures(tasks_succeeded=1))]
    for made in (charts.by_line(report(lines, lines)), charts.by_day(report(lines, lines))):
        go.Figure(without_tokens(made))  # raises for a property or a value that is not Plotly's
        assert json.loads(json.dumps(made, allow_nan=False)) == made


def test_a_chart_has_a_gap_where_nothing_is_known() -> None:
    lines = [Line("1", "a/b", figures(cost="0", missing=5)), Line("2", "c/d", figures(tasks=0))]
    cost, retry = charts.by_line(report(lines))["data"]
    assert cost["x"] == [None, None]
    assert retry["x"] == [pytest.approx(300 / 505)] * 2
    before, this, *_ = charts.by_day(report(lines))["data"]
    assert before["y"] == [None] * 7
    assert this["y"] == [pytest.approx(0.25)] * 7


def test_a_name_with_tags_in_it_is_drawn_as_it_is() -> None:
    hostile = '<a href="https://evil.example">acme</a>'
    drawn = charts.by_line(report([Line("1", hostile, figures())]))
    [shown] = drawn["layout"]["yaxis"]["ticktext"]
    assert "&lt;a href" in shown
    for bars in drawn["data"]:
        assert "<a" not in bars["customdata"][0]
        assert "%{y}" not in bars["hovertemplate"]


@pytest.mark.parametrize(
    ("gbp", "places", "words"),
    [
        ("-0.004", 2, "-<£0.01"),
        ("-1234.5", 2, "-£1,234.50"),
        ("0", 2, "£0.00"),
        ("99999999999999999999999999.015", 2, "£99,999,999,999,999,999,999,999,999.02"),
    ],
)
def test_pounds_keep_their_sign_and_every_digit(gbp: str, places: int, words: str) -> None:
    assert reporting.pounds(Decimal(gbp), places) == words
