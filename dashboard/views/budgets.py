"""Retry budgets: what stands in their buckets, and changing their numbers.

Invariant: a form carries the version that it was made from; when somebody else has changed the
budget meanwhile nothing is saved, and both versions stand side by side.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

from csp.decorators import csp_update
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from controlplane.actions import budgets
from controlplane.domain.precedence import Selection
from controlplane.errors import Conflict, Problem
from controlplane.models import RetryBudget
from controlplane.reports import wall
from controlplane.reports.budgets import minutes
from controlplane.wire.desired import Bucket
from dashboard import present, series_figure
from dashboard.views.page import (
    PLOTLY_STYLES,
    actor_of,
    person_of,
    problem_fields,
    room,
    show,
    zone_of,
)

# field of the form -> (field of Bucket, how the form's number becomes the Bucket's)
_FIELDS = {"ratio": "ratio_per_mille", "min": "min_per_second", "max": "max_per_second"}


@require_safe
@room
def listing(request: HttpRequest) -> HttpResponse:
    """Every budget with its numbers, and every bucket as last reported."""
    now = wall.read_present()
    balances = [
        {"row": row, "of": max(row.balance, 0) + row.spent, "empty": row.balance <= 0}
        for row in sorted(now.balances, key=lambda row: (row.balance > 0, row.scope))
    ]
    rows = RetryBudget.objects.order_by("level", "name")
    context = {
        "budgets": [_described(row) for row in rows],
        "balances": balances[:200],
        "at_zero": sum(bool(b["empty"]) for b in balances),
    }
    return show(request, "budgets/list.html", context, at="budgets")


@require_http_methods(["GET", "HEAD", "POST"])
@room
@csp_update(PLOTLY_STYLES)  # type: ignore[untyped-decorator]
def one(request: HttpRequest, name: str) -> HttpResponse:
    """The form of one budget; POST saves it."""
    row = RetryBudget.objects.filter(name=name).first()
    if row is None:
        raise Http404(f"No retry budget is named {name}")
    if request.method != "POST":
        return _form(request, row, _shown(row), row.resource_version, {})
    typed = {
        field: request.POST.get(field, "").strip() for field in ("ratio", "min", "max", "burst")
    }
    version = request.POST.get("version", "")
    known = int(version) if version.isascii() and version.isdigit() and len(version) < 19 else -1
    spec, faults = _spec(typed)
    if faults:
        return _form(request, row, typed, known, faults, status=422)
    try:
        budgets.update(
            actor=actor_of(request),
            name=name,
            spec=spec,
            now=timezone.now(),
            expected_version=known,
            reason=request.POST.get("reason", ""),
        )
    except Conflict as conflict:
        row.refresh_from_db()
        return _form(request, row, typed, known, {"": conflict.detail}, conflict=True, status=409)
    except Problem as problem:
        return _form(request, row, typed, known, _by_field(problem), status=problem.status)
    return HttpResponseRedirect(f"{reverse('budgets')}#{row.name}")


def _figure(request: HttpRequest, row: RetryBudget) -> dict[str, Any] | None:
    """The last hour of what the budget is about; None for a tenant's: minutes have no tenant."""
    if row.level == "tenant" or row.tenant:
        return None
    end = timezone.now().replace(second=0, microsecond=0)
    begin = end - timedelta(minutes=75)
    selection = Selection(row.gateway, row.selector, row.provider, row.model, row.region)
    found = minutes(selection, begin, end)
    limit = int(_spec_of(row)["ratio_per_mille"])
    if not found:
        return None
    return series_figure.budget(found, begin, end, limit, zone_of(person_of(request)))


def _described(row: RetryBudget) -> dict[str, Any]:
    return {
        "row": row,
        "about": present.match_words(row.provider, row.model, row.region),
        "gateways": present.gateways_words(row.gateway, row.selector),
        "shown": _shown(row),
        "limit": present.limit(int(_spec_of(row)["ratio_per_mille"])),
    }


def _spec_of(row: RetryBudget) -> dict[str, Any]:
    defaults = {name: getattr(Bucket(), name) for name in Bucket.__struct_fields__}
    return defaults | row.spec


def _shown(row: RetryBudget) -> dict[str, str]:
    spec = _spec_of(row)
    most = spec["max_per_second"]
    return {
        "ratio": f"{spec['ratio_per_mille'] / 10:g}",
        "min": f"{spec['min_per_second']:g}",
        "max": "" if most is None else f"{most:g}",
        "burst": f"{spec['burst']}",
    }


def _spec(typed: dict[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The numbers of the form as a Bucket's, and what cannot be read."""
    spec: dict[str, Any] = {}
    faults: dict[str, str] = {}
    for field, text in typed.items():
        if field == "max" and not text:
            spec["max_per_second"] = None
            continue
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            faults[field] = "write a number"
        elif field == "ratio":
            spec["ratio_per_mille"] = round(value * 10)
            if abs(spec["ratio_per_mille"] - value * 10) > 1e-6:
                faults[field] = "at most one decimal"
        elif field == "burst":
            spec["burst"] = int(value)
            if int(value) != value:
                faults[field] = "write a whole number"
        else:
            spec[_FIELDS[field]] = value
    return spec, faults


def _by_field(problem: Problem) -> dict[str, str]:
    """Faults under the form's names."""
    back = {name: field for field, name in _FIELDS.items()}
    faults = {}
    for field, message in problem_fields(problem).items():
        short = field.removeprefix("spec.")
        faults[back.get(short, short)] = message
    return faults


def _form(
    request: HttpRequest,
    row: RetryBudget,
    typed: dict[str, str],
    version: int,
    faults: dict[str, str],
    *,
    conflict: bool = False,
    status: int = 200,
) -> HttpResponse:
    known = {"ratio", "min", "max", "burst", "reason", ""}
    context = _described(row) | {
        "typed": typed,
        "version": version,
        "faults": faults,
        "other_faults": {k: v for k, v in faults.items() if k not in known},
        "conflict": conflict,
        "figure": _figure(request, row),
        "reason": request.POST.get("reason", ""),
    }
    return show(request, "budgets/one.html", context, at="budgets", status=status)
