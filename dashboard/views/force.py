"""The force dialog: what is chosen, what it would stop now, and the write.

Invariant: the form says what it would do before it does it; a fault brings it back with everything
that was typed, and nothing was written. An empty choice is no choice: every circuit is forced only
where somebody has said so.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.actions import approvals, overrides
from controlplane.domain.overrides import LIFETIMES, OverrideMode
from controlplane.domain.precedence import Selection
from controlplane.domain.selectors import parse_selector
from controlplane.errors import Conflict, InvalidInput, Problem
from controlplane.models import Circuit, Gateway, Override
from dashboard import force_effect, present, spelled
from dashboard.views.overrides import (
    PRESETS,
    dialog,
    is_htmx,
    minutes_of,
    pending_answer,
    progress_answer,
)
from dashboard.views.page import actor_of, problem_fields, room, show
from dashboard.views.providers import status_page

_PARTS = ("gateway", "selector", "provider", "model", "region")
# What the list of providers says for "any"; its empty line is the question.
_EVERY = "*"
_UNCHOSEN = "choose a provider, or every provider"


@require_http_methods(["GET", "HEAD", "POST"])
@room
def new(request: HttpRequest) -> HttpResponse:
    """GET: the dialog. POST: force, then the propagation strip; faults come back in the form."""
    if request.method != "POST":
        return _form(request, request.GET, {})
    fields = request.POST
    mode = fields.get("mode", "")
    try:
        if not _is_chosen(fields):
            raise InvalidInput(_UNCHOSEN, errors=[{"field": "provider", "message": _UNCHOSEN}])
        wish: dict[str, Any] = {
            "actor": actor_of(request),
            "mode": mode,
            "reason": fields.get("reason", ""),
            "expires_in": minutes_of(fields.get("minutes", "")),
            "allow_last_healthy": fields.get("allow_last_healthy") == "on",
            "replace": fields.get("replace", ""),
            "now": timezone.now(),
            **_scope(fields)[0],
        }
        glass = fields.get("break_glass") == "on"
        if approvals.needed(_scope(fields)[0], break_glass=glass):
            return pending_answer(request, approvals.ask(**wish))
        row = overrides.force(**wish, break_glass=glass)
    except Problem as problem:
        return _form(request, fields, problem_fields(problem), problem)
    if request.htmx:  # type: ignore[attr-defined]
        return progress_answer(request, row)
    return HttpResponseRedirect(reverse("override", args=[row.name]))


@require_POST
@room
def preview(request: HttpRequest) -> HttpResponse:
    """The dialog again, with the effect of what is now chosen. Nothing is written."""
    return _form(request, request.POST, {})


def _form(
    request: HttpRequest,
    fields: QueryDict,
    faults: dict[str, str],
    problem: Problem | None = None,
) -> HttpResponse:
    mode = _mode(fields.get("mode", ""))
    chosen, selection, unreadable = _scope(fields)
    is_chosen = _is_chosen(fields)
    minutes = _minutes(fields, mode)
    now = timezone.now()
    context = {
        "mode": mode,
        "modes": list(OverrideMode),
        "chosen": chosen,
        "is_chosen": is_chosen,
        "every": _EVERY,
        "title": present.match_words(selection.provider, selection.model, selection.region)
        if is_chosen
        else "…",
        "options": _options(selection),
        "reason": fields.get("reason", ""),
        "presets": [(m, present.lasting(m * 60)) for m in PRESETS[mode]],
        "longest": present.lasting(LIFETIMES[mode].longest.total_seconds()),
        "minutes": minutes,
        "ends_at": now + timedelta(minutes=minutes),
        "allow_last_healthy": fields.get("allow_last_healthy") == "on",
        "needs_second": is_chosen and overrides.needs_second(selection),
        "break_glass": fields.get("break_glass") == "on",
        "faults": faults | unreadable,
        "status_url": status_page(selection.provider) if selection.provider else "",
        "held": problem.data.get("current") if isinstance(problem, Conflict) else None,
        "asked_at": now,
    }
    if is_chosen:
        context |= force_effect.words(selection, mode, now)
    context |= _spelled(request, fields)
    status = problem.status if problem is not None and not is_htmx(request) else 200
    return dialog(request, "overrides/force.html", context, status=status)


def _scope(fields: QueryDict) -> tuple[dict[str, str], Selection, dict[str, str]]:
    """What is chosen, as a selection that can be matched; a selector that cannot is a fault."""
    chosen = {part: fields.get(part, "").replace("\x00", "") for part in _PARTS}
    if chosen["provider"] == _EVERY:
        chosen["provider"] = ""
    where = fields.get("where", "")
    kind, _, value = where.replace("\x00", "").partition(":")
    if kind in ("gateway", "selector"):
        chosen |= {"gateway": "", "selector": "", kind: value}
    elif "where" in fields:
        chosen |= {"gateway": "", "selector": ""}
    if not chosen["selector"] or _readable(chosen["selector"]):
        return chosen, Selection(**chosen), {}
    fault = {"selector": "write key=value pairs, separated by commas"}
    return chosen, Selection(**(chosen | {"selector": ""})), fault


def _is_chosen(fields: QueryDict) -> bool:
    """True when somebody has named circuits, be it all of them; a gateway alone names none."""
    return any(fields.get(part, "").strip("\x00") for part in ("provider", "model", "region"))


def _minutes(fields: QueryDict, mode: OverrideMode) -> int:
    wanted = minutes_of(fields.get("minutes", ""))
    minutes = int(wanted.total_seconds() // 60) if wanted else 0
    default = int(LIFETIMES[mode].default.total_seconds() // 60)
    return minutes if minutes in PRESETS[mode] else default


@require_POST
@room
def typed(request: HttpRequest) -> HttpResponse:
    """What the dialog would do, as commands, with what is typed by now. Nothing is written."""
    return show(request, "overrides/typed.html", _spelled(request, request.POST))


def _spelled(request: HttpRequest, fields: QueryDict) -> dict[str, str]:
    if not _is_chosen(fields):
        return {}
    chosen, selection, _ = _scope(fields)
    mode = _mode(fields.get("mode", ""))
    now = timezone.now()
    row = Override(
        name="",
        mode=mode.value,
        reason=fields.get("reason", "").replace("\x00", "").strip() or "why",
        updated_at=now,
        expires_at=now + timedelta(minutes=_minutes(fields, mode)),
        allow_last_healthy=fields.get("allow_last_healthy") == "on",
        break_glass=fields.get("break_glass") == "on" and overrides.needs_second(selection),
        **chosen,
    )
    site = request.build_absolute_uri("/").rstrip("/")
    return {
        "cli": spelled.as_cli(row),
        "yaml": spelled.as_yaml(row),
        "curl": spelled.as_curl(row, site),
    }


def _readable(selector: str) -> bool:
    try:
        parse_selector(selector)
    except ValueError:
        return False
    return True


def _mode(text: str) -> OverrideMode:
    try:
        return OverrideMode(text)
    except ValueError:
        return OverrideMode.FORCE_OPEN


def _options(selection: Selection) -> dict[str, list[str]]:
    """What each list offers: what exists under the choice before it."""
    rows = Circuit.objects.all()
    options = {"provider": rows}
    if selection.provider:
        rows = rows.filter(provider=selection.provider)
    options["model"] = rows
    if selection.model:
        rows = rows.filter(model=selection.model)
    options["region"] = rows
    found = {
        part: sorted(set(some.order_by().values_list(part, flat=True)) - {""})
        for part, some in options.items()
    }
    gateways = list(Gateway.objects.order_by("name").values_list("name", "labels"))
    found["gateway"] = [name for name, _ in gateways]
    labels = {f"{key}={value}" for _, all_of_it in gateways for key, value in all_of_it.items()}
    found["selector"] = sorted(labels | ({selection.selector} - {""}))
    for part in ("provider", "model", "region", "gateway"):
        # A name that is no longer known stays chosen, and the write says what is wrong with it.
        value = getattr(selection, part)
        if value and value not in found[part] and value != "-":
            found[part].insert(0, value)
    return found
