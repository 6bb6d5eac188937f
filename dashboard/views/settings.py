"""The pages of one policy or budget: made, edited, rolled back, removed.

Invariant: every write names the version that it was made from; when another person was quicker,
nothing is written and both changes stand side by side. Saved is never called in force: the page
follows each instance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone

from controlplane.actions import revisions
from controlplane.actions._settings import Settings
from controlplane.api.setting_objects import alone
from controlplane.errors import Conflict, Problem
from controlplane.models import BreakerPolicy, Circuit, Gateway, RetryBudget
from controlplane.reports import progress
from dashboard import events, forms, objects, present
from dashboard.progress import shown as progress_shown
from dashboard.views.page import actor_of, problem_fields, show

Row = BreakerPolicy | RetryBudget
_PARTS = ("gateway", "selector", "provider", "model", "region", "tenant")


@dataclass(frozen=True, slots=True)
class Kind:
    """What the two kinds of setting do not share. ``beside``: what stands left of the form."""

    path: str
    one: str
    words: str
    rows: Callable[[], Any]
    settings: Settings[Any]
    create: Callable[..., Row]
    update: Callable[..., Row]
    remove: Callable[..., None]
    defaults: msgspec.Struct
    groups: tuple[forms.Group, ...]
    beside: Callable[[HttpRequest, Any], dict[str, Any]]

    @property
    def fields(self) -> list[forms.Field]:
        """Every field of the form."""
        return forms.fields_of(self.groups)


@dataclass(frozen=True, slots=True)
class Typed:
    """A form as it was sent: what was typed, from which version, and what came of it."""

    fields: dict[str, str]
    version: int
    problem: Problem | None = None
    faults: dict[str, str] | None = None

    @property
    def status(self) -> int:
        """The page's HTTP status."""
        if self.problem is not None:
            return self.problem.status
        return 422 if self.faults else 200


def row_of(kind: Kind, name: str) -> Row:
    """The row of a name, or a 404."""
    row: Row | None = kind.rows().filter(name=name).first()
    if row is None:
        raise Http404(f"No {kind.words} is named {name}")
    return row


def one(request: HttpRequest, kind: Kind, name: str) -> HttpResponse:
    """An object's page with its form; POST saves it."""
    row = row_of(kind, name)
    if request.method != "POST":
        return _page(request, kind, row, Typed(_shown(kind, row.spec), row.resource_version))
    typed = {f.name: request.POST[f.name].strip() for f in kind.fields if f.name in request.POST}
    typed = _shown(kind, row.spec) | typed
    known = _number(request.POST.get("version", ""))
    spec, faults = forms.read(kind.fields, typed)
    if faults:
        return _page(request, kind, row, Typed(typed, known, faults=faults))
    try:
        kind.update(
            actor=actor_of(request),
            name=name,
            spec=spec,
            now=timezone.now(),
            expected_version=known,
            reason=request.POST.get("reason", ""),
        )
    except Problem as problem:
        row.refresh_from_db()
        return _page(request, kind, row, Typed(typed, known, problem=problem))
    return HttpResponseRedirect(f"{reverse(kind.one, args=[name])}#status")


def new(request: HttpRequest, kind: Kind) -> HttpResponse:
    """The form of a new one; POST records it."""
    given = request.POST if request.method == "POST" else request.GET
    defaults = msgspec.to_builtins(kind.defaults)
    typed = _shown(kind, defaults)
    typed |= {f.name: given[f.name].strip() for f in kind.fields if f.name in given}
    if request.method != "POST":
        return _blank(request, kind, Typed(typed, -1))
    spec, faults = forms.read(kind.fields, typed)
    if faults:
        return _blank(request, kind, Typed(typed, -1, faults=faults))
    level = {"level": given.get("level", "")} if kind.path == "budgets" else {}
    try:
        row = kind.create(
            actor=actor_of(request),
            name=given.get("name", ""),
            # Only what differs from the built-in is the person's own.
            spec={name: value for name, value in spec.items() if value != defaults[name]},
            now=timezone.now(),
            match={part: given.get(part, "") for part in _PARTS},
            reason=given.get("reason", ""),
            **level,
        )
    except Problem as problem:
        return _blank(request, kind, Typed(typed, -1, problem=problem))
    return HttpResponseRedirect(f"{reverse(kind.one, args=[row.name])}#status")


def rollback(request: HttpRequest, kind: Kind, name: str) -> HttpResponse:
    """Write an earlier generation again."""
    row = row_of(kind, name)
    known = _number(request.POST.get("version", ""))
    try:
        revisions.rollback(
            kind.settings,
            actor=actor_of(request),
            name=name,
            to_generation=_number(request.POST.get("generation", "")),
            now=timezone.now(),
            reason=request.POST.get("reason", ""),
            expected_version=known,
        )
    except Problem as problem:
        row.refresh_from_db()
        return _page(request, kind, row, Typed(_shown(kind, row.spec), known, problem=problem))
    return HttpResponseRedirect(f"{reverse(kind.one, args=[name])}#status")


def remove(request: HttpRequest, kind: Kind, name: str) -> HttpResponse:
    """Take it away: what it matched falls to the next in precedence, or to the built-in."""
    row = row_of(kind, name)
    known = _number(request.POST.get("version", ""))
    try:
        kind.remove(
            actor=actor_of(request),
            name=name,
            now=timezone.now(),
            expected_version=known,
            reason=request.POST.get("reason", ""),
        )
    except Problem as problem:
        row.refresh_from_db()
        return _page(request, kind, row, Typed(_shown(kind, row.spec), known, problem=problem))
    return HttpResponseRedirect(reverse(kind.path))


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1


def spec_of(kind: Kind, spec: dict[str, Any]) -> dict[str, Any]:
    """A recorded spec over the built-in numbers: older rows do not name newer fields."""
    return {**msgspec.to_builtins(kind.defaults), **spec}


def _shown(kind: Kind, spec: dict[str, Any]) -> dict[str, str]:
    whole = spec_of(kind, spec)
    return {field.name: forms.shown(field, whole) for field in kind.fields}


def _rows(
    kind: Kind, recorded: dict[str, str], typed: dict[str, str], faults: dict[str, str], row: Any
) -> list[dict[str, Any]]:
    managers = row.managers if row else {}
    return [
        {
            "title": group.title,
            "rows": [
                forms.Row(
                    field,
                    recorded[field.name],
                    typed[field.name],
                    faults.get(field.name, ""),
                    managers.get(field.spec, ""),
                )
                for field in group.fields
            ],
        }
        for group in kind.groups
    ]


def _faults(kind: Kind, sent: Typed) -> dict[str, str]:
    if sent.problem is not None:
        return forms.by_name(kind.fields, problem_fields(sent.problem))
    return sent.faults or {}


def _page(request: HttpRequest, kind: Kind, row: Row, sent: Typed) -> HttpResponse:
    now = timezone.now()
    far = progress.of_item(row, now)
    body = alone(row, far, now)
    site = request.build_absolute_uri("/").rstrip("/")
    happened = events.newest(
        events.written(kind.settings.kind, row.name),
        events.delivered(str(row.uid), row.updated_at, row.generation),
    )
    faults = _faults(kind, sent)
    conflict = isinstance(sent.problem, Conflict)
    named = {field.name for field in kind.fields} | {"reason"}
    context = {
        "kind": kind,
        "row": row,
        "about": present.match_words(row.provider, row.model, row.region),
        "gateways": present.gateways_words(row.gateway, row.selector),
        "tenant": getattr(row, "tenant", ""),
        "level": getattr(row, "level", ""),
        "object": objects.page(body, kind.path, happened, site),
        "groups": _rows(kind, _shown(kind, row.spec), sent.fields, faults, row),
        "version": row.resource_version if conflict else sent.version,
        "conflict": conflict,
        "faults": faults,
        "other_faults": {k: v for k, v in faults.items() if k not in named},
        "reason": request.POST.get("reason", ""),
        "progress": progress_shown(far, now),
        "history": revisions.history(kind.settings, row.name)[1:50],
    }
    context |= kind.beside(request, row)
    return show(request, f"{kind.path}/one.html", context, at="budgets", status=sent.status)


def _blank(request: HttpRequest, kind: Kind, sent: Typed) -> HttpResponse:
    given = request.POST if request.method == "POST" else request.GET
    faults = _faults(kind, sent)
    named = {field.name for field in kind.fields} | {"reason", "name", "level", *_PARTS}
    circuits = Circuit.objects.all()
    context = {
        "kind": kind,
        "groups": _rows(kind, _shown(kind, {}), sent.fields, faults, None),
        "given": {part: given.get(part, "") for part in (*_PARTS, "name", "level")},
        "faults": faults,
        "other_faults": {k: v for k, v in faults.items() if k not in named},
        "reason": given.get("reason", ""),
        "known": {
            part: sorted(set(circuits.values_list(part, flat=True)) - {""})
            for part in ("provider", "model", "region")
        },
        "known_gateways": list(Gateway.objects.order_by("name").values_list("name", flat=True)),
    }
    return show(request, "settings/new.html", context, at="budgets", status=sent.status)
