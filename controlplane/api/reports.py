"""``/reports``: figures of a week, as JSON and as CSV.

Invariant: reading only; what cannot be read of the question is a 422 that names the field.
"""

from __future__ import annotations

from datetime import UTC, datetime

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router

from controlplane.api.door import answer
from controlplane.reports import weekly
from controlplane.reports.weekly_document import as_csv, as_json

router = Router(tags=["reports"])
_WEEK = Query("", description="ISO week, such as 2026-W48; default: the last finished one")
_ZONE = Query("", description="IANA time zone of the week; default: the installation's")
_BY = Query("", description="circuit (default), route, tenant or gateway")


def _report(week: str, zone: str, by: str) -> weekly.Report:
    now = datetime.now(UTC)
    return weekly.report(weekly.question(week, zone, by, now), now)


@router.get("/weekly", summary="A week's cost per successful task and retries")
def get_weekly(
    request: HttpRequest, week: str = _WEEK, zone: str = _ZONE, by: str = _BY
) -> HttpResponse:
    """With the week before beside it. Money is exact decimal text in pounds."""
    return answer(as_json(_report(week, zone, by)))


@router.get("/weekly.csv", summary="The same as CSV")
def get_weekly_csv(
    request: HttpRequest, week: str = _WEEK, zone: str = _ZONE, by: str = _BY
) -> HttpResponse:
    """Safe to open in a spreadsheet: names are text and numbers are numbers."""
    return csv_answer(_report(week, zone, by))


def csv_answer(report: weekly.Report) -> HttpResponse:
    """The CSV as a download."""
    asked = report.this.question
    response = HttpResponse(as_csv(report), content_type="text/csv; charset=utf-8; header=present")
    name = f"switchgear-{asked.week}-by-{asked.by}.csv"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["Cache-Control"] = "no-store"
    return response
