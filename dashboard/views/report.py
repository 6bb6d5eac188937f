"""The weekly report: a page with charts, and its CSV.

Invariant: the page and its file answer the same question, and a question that cannot be read is
answered in words beside the form, with 422; a week that takes too long to read, with 503.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from csp.decorators import csp_update
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from controlplane.api.door import problem_answer
from controlplane.api.reports import csv_answer
from controlplane.errors import InvalidInput, TooSlow
from controlplane.reports import weekly
from dashboard import charts, reporting
from dashboard.views.page import problem_fields, room, show

# Plotly sizes its parts with style attributes; no other page allows them.
_STYLES = {"style-src": ["'unsafe-inline'"]}


@require_safe
@room
@csp_update(_STYLES)  # type: ignore[untyped-decorator]
def page(request: HttpRequest) -> HttpResponse:
    """One week beside the one before it."""
    try:
        report = _report(request)
    except InvalidInput as problem:
        faults = list(problem_fields(problem).values())
        return show(request, "report/fault.html", {"faults": faults}, at="report", status=422)
    except TooSlow as problem:
        told = {"faults": [problem.detail]}
        return show(request, "report/fault.html", told, at="report", status=problem.status)
    return show(request, "report/week.html", _context(report), at="report")


@require_safe
@room
def file(request: HttpRequest) -> HttpResponse:
    """The same as CSV."""
    try:
        return csv_answer(_report(request))
    except InvalidInput as problem:
        return HttpResponse(problem.detail, status=422, content_type="text/plain; charset=utf-8")
    except TooSlow as problem:
        return problem_answer(problem)


def _report(request: HttpRequest) -> weekly.Report:
    now = timezone.now()
    asked = [request.GET.get(name, "").strip() for name in ("week", "zone", "by")]
    return weekly.report(weekly.question(*asked, now), now)


def _context(report: weekly.Report) -> dict[str, Any]:
    this = report.this
    asked, now = this.question, timezone.now()
    after = asked.week.shifted(1)
    return {
        "report": report,
        "this": this,
        "asked": asked,
        "title": reporting.title(asked.week),
        "hours": f"{asked.week.hours(asked.zone):g}",
        "headlines": reporting.headlines(report),
        "rows": reporting.rows(report),
        "total": reporting.total(report),
        "cautions": reporting.cautions(report),
        "rates": reporting.rates(report),
        "refused": [
            (gate, f"{calls:,}")
            for gate, calls in sorted(this.total.refused.items(), key=lambda item: -item[1])
        ],
        "has_openings": asked.by in ("circuit", "gateway"),
        "earlier": _link(asked, week=asked.week.shifted(-1)),
        "later": _link(asked, week=after) if after.bounds(asked.zone)[0] <= now else "",
        "later_number": after.number,
        "splits": [(by, _link(asked, by=by)) for by in weekly.SPLITS],
        "csv": _link(asked, page="report-file"),
        "charts": {"line-chart": charts.by_line(report), "day-chart": charts.by_day(report)},
        "empty": not this.lines,
    }


def _link(asked: weekly.Question, page: str = "report", **changed: Any) -> str:
    values = {"week": asked.week, "zone": asked.zone.key, "by": asked.by} | changed
    return f"{reverse(page)}?{urlencode(values)}"
