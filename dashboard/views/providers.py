"""Providers: where each says how it is, written by admins.

Invariant: an address becomes a link only through the ``outside`` tag, which lets http and https
through and nothing else, whatever the row holds.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from controlplane.actions import providers
from controlplane.actions.targets import known_circuits
from controlplane.errors import Conflict, Problem
from controlplane.models import Provider
from dashboard.views.page import actor_of, problem_fields, room, show


@require_safe
@room
def listing(request: HttpRequest) -> HttpResponse:
    """Every provider that a circuit has, with its record."""
    circuits = known_circuits()
    rows = {row.name: row for row in Provider.objects.all()}
    names = sorted({c.provider for c in circuits} | set(rows))
    found = [
        {"name": name, "row": rows.get(name), "circuits": sum(c.provider == name for c in circuits)}
        for name in names
    ]
    return show(request, "providers/list.html", {"providers": found}, at="providers")


@require_http_methods(["GET", "HEAD", "POST"])
@room
def one(request: HttpRequest, name: str) -> HttpResponse:
    """The form of one provider's record; POST saves it."""
    row = Provider.objects.filter(name=name).first()
    if row is None:
        try:
            providers.must_be_known(name)
        except Problem as problem:
            return show(
                request, "providers/none.html", {"problem": problem}, at="providers", status=404
            )
    if request.method != "POST":
        return _form(request, name, row, row.status_url if row else "", _version(row))
    typed = request.POST.get("status_url", "")
    known = request.POST.get("version", "")
    try:
        providers.describe(
            actor=actor_of(request),
            name=name,
            status_url=typed,
            reason=request.POST.get("reason", ""),
            expected_version=int(known) if known.isascii() and known.isdigit() else None,
            now=timezone.now(),
        )
    except Problem as problem:
        now = Provider.objects.filter(name=name).first()
        version = _version(now) if isinstance(problem, Conflict) else known
        return _form(request, name, now, typed, version, problem)
    return HttpResponseRedirect(reverse("providers"))


def status_page(name: str) -> str:
    """The address of a provider's own status page; empty when none is recorded."""
    found = Provider.objects.filter(name=name).values_list("status_url", flat=True).first()
    return found or ""


def _version(row: Provider | None) -> str:
    return str(row.version) if row else ""


def _form(
    request: HttpRequest,
    name: str,
    row: Provider | None,
    typed: str,
    version: str,
    problem: Problem | None = None,
) -> HttpResponse:
    context = {
        "name": name,
        "row": row,
        "typed": typed,
        "version": version,
        "reason": request.POST.get("reason", ""),
        "faults": problem_fields(problem) if problem else {},
        "conflict": isinstance(problem, Conflict),
    }
    status = problem.status if problem else 200
    return show(request, "providers/one.html", context, at="providers", status=status)
