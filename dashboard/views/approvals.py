"""What waits for a second person, and the broken glass that another has to see.

Invariant: a request is shown as in force nowhere; who asked is offered no way to approve it.
"""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from controlplane.actions import approvals
from controlplane.errors import Problem
from dashboard import glass
from dashboard.views.overrides import dialog, is_htmx, progress_answer
from dashboard.views.page import actor_of, room, show


@require_POST
@room
def approve(request: HttpRequest, name: str) -> HttpResponse:
    """Put it in force, and follow it."""
    try:
        row = approvals.approve(actor=actor_of(request), name=name, now=timezone.now())
    except Problem as problem:
        return _refused(request, problem)
    if is_htmx(request):
        return progress_answer(request, row)
    return HttpResponseRedirect(reverse("override", args=[row.name]))


@require_POST
@room
def withdraw(request: HttpRequest, name: str) -> HttpResponse:
    """Take it back."""
    return _done(request, approvals.withdraw, name)


@require_POST
@room
def acknowledge(request: HttpRequest, name: str) -> HttpResponse:
    """Seen by another."""
    return _done(request, approvals.acknowledge, name)


@require_GET
@room
def broken(request: HttpRequest) -> HttpResponse:
    """The banner, for a page that asks again; 204 when it shows just that, so none is repeated."""
    found = glass.broken()
    if found is None or found["said"] == request.GET.get("said"):
        return HttpResponse(status=204)
    return show(request, "overrides/broken.html", {"glass": found}, at="overrides")


def _done(request: HttpRequest, act: Callable[..., object], name: str) -> HttpResponse:
    try:
        act(actor=actor_of(request), name=name, now=timezone.now())
    except Problem as problem:
        return _refused(request, problem)
    return HttpResponseRedirect(reverse("overrides"))


def _refused(request: HttpRequest, problem: Problem) -> HttpResponse:
    status = 200 if is_htmx(request) else problem.status
    context = {"problem": problem, "row": None}
    return dialog(request, "overrides/problem.html", context, status=status)
