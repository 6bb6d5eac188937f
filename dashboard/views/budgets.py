"""Retry budgets: their list with every bucket, and each beside what it had to deal with.

Invariant: see ``views.settings``; the chart has whole minutes, and a gap where nothing was heard.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from csp.decorators import csp_update
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlplane.actions import budgets
from controlplane.domain.precedence import Selection
from controlplane.models import RetryBudget
from controlplane.reports import fleet, progress, wall
from controlplane.reports.budget_asked import asked
from controlplane.reports.budgets import Holding, Lately, buckets, holdings, lately, minutes, series
from controlplane.wire.desired import Bucket
from dashboard import present, series_figure, what_if
from dashboard.forms import Field, Group, read, shown
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
    end = timezone.now().replace(second=0, microsecond=0)
    span = (end - timedelta(minutes=75), end)
    zone = zone_of(person_of(request))
    if row.level != "tenant":
        return {"figure": _ratio(row, *span, zone)}
    scope, tenants = _tenant_scope(row)
    held = series(scope, *span, timedelta(minutes=1), _selection(row)) if scope else []
    return {
        "figure": series_figure.held(held, *span, zone) if held else None,
        "held_of": scope.partition("/")[2],
        "tenants": tenants,
    }


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
            described(row)
            | _now(row, recent)
            | {"progress": progress_shown(one, now), "held": _held(holding)}
            for row, recent, one, holding in zip(
                rows, lately(rows, now), far, holdings(rows, now), strict=True
            )
        ],
        "balances": balances[:200],
        "at_zero": sum(bool(b["empty"]) for b in balances),
    }
    return show(request, "budgets/list.html", context, at="budgets")


def _held(holding: Holding | None) -> dict[str, Any] | None:
    """A row's balance in words; its buckets are those of every instance and subject."""
    if holding is None:
        return None
    total = holding.balance + holding.spent
    note = f"least {holding.least:,}"
    if holding.at_zero:
        note = f"{holding.at_zero:,} of {present.count(holding.buckets, 'bucket')} at 0"
    return {
        "balance": holding.balance,
        "of": total,
        "note": note,
        "empty": holding.at_zero > 0,
    }


def _now(row: RetryBudget, recent: Lately) -> dict[str, Any]:
    """Words of its last minute and hour; over the limit is red."""
    limit = int(settings.spec_of(KIND, row.spec)["ratio_per_mille"]) / 1000
    return {
        "ratio": present.retry_percent(recent.ratio),
        "over": recent.ratio is not None and recent.ratio > limit,
        "refused": present.NOT_KNOWN if recent.refused is None else f"{recent.refused:,}",
        "by_tenant": row.level == "tenant",
    }


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
def replayed(request: HttpRequest, name: str) -> HttpResponse:
    """What the typed numbers would have done to the last hour. Nothing is written."""
    row = settings.row_of(KIND, name)
    assert isinstance(row, RetryBudget)
    recorded = settings.spec_of(KIND, row.spec)
    typed = {f.name: request.POST[f.name] for f in KIND.fields if f.name in request.POST}
    edited, faults = read(KIND.fields, typed)
    context: dict[str, Any] = {"level": row.level}
    if faults:
        context["what_if_fault"] = "What it would have done is shown once every number can be read."
    elif row.level != "tenant":
        now = timezone.now()
        end = now.replace(second=0, microsecond=0)
        minutes = asked(row, end - timedelta(hours=1), end, now)
        try:
            found = what_if.told(minutes, recorded, recorded | edited)
        except ValueError as error:
            context["what_if_fault"] = f"What it would have done is not known: {error}"
        else:
            context |= {"what_if": found, "counted": len(minutes)}
    return show(request, "budgets/what_if.html", context, at="budgets")


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


def _selection(row: RetryBudget) -> Selection:
    return Selection(row.gateway, row.selector, row.provider, row.model, row.region, row.tenant)


def _ratio(
    row: RetryBudget, begin: datetime, end: datetime, zone: ZoneInfo
) -> dict[str, Any] | None:
    """What was asked of the budget and what it let through; None when nothing was."""
    found = minutes(_selection(row), begin, end)
    limit = int(settings.spec_of(KIND, row.spec)["ratio_per_mille"])
    return series_figure.budget(found, begin, end, limit, zone) if found else None


def _tenant_scope(row: RetryBudget) -> tuple[str, int]:
    """Whose bucket is drawn, and of how many: the named tenant's, or the one in most trouble."""
    if row.tenant:
        return f"tenant/{row.tenant}", 1
    worst: dict[str, tuple[int, int]] = {}
    for bucket in buckets(row, timezone.now()):
        refused, balance = worst.get(bucket.scope, (0, 0))
        worst[bucket.scope] = refused - bucket.refused, balance + bucket.balance
    return min(worst, key=lambda scope: (*worst[scope], scope), default=""), len(worst)


def described(row: RetryBudget) -> dict[str, Any]:
    """A budget's row of the list."""
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
