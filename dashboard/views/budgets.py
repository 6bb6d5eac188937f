"""Retry budgets: their list with every bucket, and each beside what it had to deal with.

Invariant: see ``views.settings``; the chart has whole minutes, and a gap where nothing was heard.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from csp.decorators import csp_update
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlplane.actions import budgets
from controlplane.domain.precedence import Selection
from controlplane.models import RetryBudget
from controlplane.reports import fleet, progress, wall
from controlplane.reports.budgets import minutes
from controlplane.wire.desired import Bucket
from dashboard import present, series_figure
from dashboard.forms import Field, Group, shown
from dashboard.progress import shown as progress_shown
from dashboard.views import settings
from dashboard.views.page import PLOTLY_STYLES, person_of, room, show, zone_of

GROUPS = (
    Group(
        "Retries",
        (
            Field("ratio", "ratio_per_mille", "Ratio", "% of first attempts", "per_mille"),
            Field("min", "min_per_second", "Floor", "retries/s always"),
            Field("max", "max_per_second", "Ceiling", "retries/s", optional=True),
            Field("burst", "burst", "Burst", "retries in one second", "whole"),
            Field("window", "window_seconds", "Window", "s, above the p99"),
        ),
    ),
    Group(
        "Attempts at most",
        (
            Field("attempts", "max_attempts", "A request", "attempts", "whole"),
            Field("task", "max_attempts_per_task", "A task", "attempts", "whole"),
        ),
    ),
    Group(
        "Cost ceilings",
        (
            Field("cost", "max_cost_gbp", "In a window", "£ at one gateway", "pounds", True),
            Field("cost_window", "cost_window_seconds", "Window", "s (86400: a day)"),
            Field("cost_request", "max_cost_gbp_per_request", "Request", "£", "pounds", True),
            Field("cost_task", "max_cost_gbp_per_task", "Task", "£", "pounds", True),
        ),
    ),
)


def _beside(request: HttpRequest, row: RetryBudget) -> dict[str, Any]:
    return {"figure": _figure(request, row)}


KIND = settings.Kind(
    path="budgets",
    one="budget",
    words="retry budget",
    rows=lambda: RetryBudget.objects,
    settings=budgets.BUDGETS,
    create=budgets.create,
    update=budgets.update,
    remove=budgets.remove,
    defaults=Bucket(),
    groups=GROUPS,
    beside=_beside,
)


@require_safe
@room
def listing(request: HttpRequest) -> HttpResponse:
    """Every budget with its numbers, and every bucket as last reported."""
    now = timezone.now()
    read = wall.read_present()
    balances = [
        {"row": row, "of": max(row.balance, 0) + row.spent, "empty": row.balance <= 0}
        for row in sorted(read.balances, key=lambda row: (row.balance > 0, row.scope))
    ]
    rows = list(RetryBudget.objects.order_by("level", "name"))
    far = progress.of_items(rows, now, fleet.instances(now))
    context = {
        "budgets": [
            described(row) | {"progress": progress_shown(one, now)}
            for row, one in zip(rows, far, strict=True)
        ],
        "balances": balances[:200],
        "at_zero": sum(bool(b["empty"]) for b in balances),
    }
    return show(request, "budgets/list.html", context, at="budgets")


@require_http_methods(["GET", "HEAD", "POST"])
@room
@csp_update(PLOTLY_STYLES)  # type: ignore[untyped-decorator]
def one(request: HttpRequest, name: str) -> HttpResponse:
    """One budget; POST saves it."""
    return settings.one(request, KIND, name)


@require_http_methods(["GET", "HEAD", "POST"])
@room
def new(request: HttpRequest) -> HttpResponse:
    """A new budget."""
    return settings.new(request, KIND)


@require_POST
@room
@csp_update(PLOTLY_STYLES)  # type: ignore[untyped-decorator]
def rollback(request: HttpRequest, name: str) -> HttpResponse:
    """An earlier generation again."""
    return settings.rollback(request, KIND, name)


@require_POST
@room
@csp_update(PLOTLY_STYLES)  # type: ignore[untyped-decorator]
def remove(request: HttpRequest, name: str) -> HttpResponse:
    """Take a budget away."""
    return settings.remove(request, KIND, name)


def _figure(request: HttpRequest, row: RetryBudget) -> dict[str, Any] | None:
    """The last hour of what the budget is about; None for a tenant's: minutes have no tenant."""
    if row.level == "tenant" or row.tenant:
        return None
    end = timezone.now().replace(second=0, microsecond=0)
    begin = end - timedelta(minutes=75)
    selection = Selection(row.gateway, row.selector, row.provider, row.model, row.region)
    found = minutes(selection, begin, end)
    limit = int(settings.spec_of(KIND, row.spec)["ratio_per_mille"])
    if not found:
        return None
    return series_figure.budget(found, begin, end, limit, zone_of(person_of(request)))


def described(row: RetryBudget) -> dict[str, Any]:
    spec = settings.spec_of(KIND, row.spec)
    ceilings = [
        f"£{spec[field]} {words}"
        for field, words in (
            ("max_cost_gbp", f"in {present.lasting(spec['cost_window_seconds'])}"),
            ("max_cost_gbp_per_request", "a request"),
            ("max_cost_gbp_per_task", "a task"),
        )
        if spec[field] is not None
    ]
    return {
        "row": row,
        "about": present.match_words(row.provider, row.model, row.region),
        "gateways": present.gateways_words(row.gateway, row.selector),
        "shown": {field.name: shown(field, spec) for field in KIND.fields},
        "limit": present.limit(int(spec["ratio_per_mille"])),
        "ceilings": ceilings,
    }
