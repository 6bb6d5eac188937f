"""Who did what, when, why and from where.

Invariant: this page only reads; the database refuses to change an entry.
"""

from __future__ import annotations

import json
from typing import Any

from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from controlplane.models import AuditEntry
from dashboard.views.page import room, show

PAGE = 100


@require_safe
@room
def listing(request: HttpRequest) -> HttpResponse:
    """The newest entries; ``q`` narrows, ``before`` pages back."""
    q = request.GET.get("q", "").replace("\x00", "").strip()[:200]
    before = request.GET.get("before", "")
    rows = AuditEntry.objects.order_by("-id")
    if q:
        rows = rows.filter(
            Q(actor__icontains=q)
            | Q(object_name__icontains=q)
            | Q(reason__icontains=q)
            | Q(action__icontains=q)
            | Q(object_kind__icontains=q)
        )
    if before.isascii() and before.isdigit() and len(before) < 19:
        rows = rows.filter(id__lt=int(before))
    entries = list(rows[: PAGE + 1])
    context = {
        "needle": q,
        "entries": [
            {"row": row, "changes": changes(row.before, row.after)} for row in entries[:PAGE]
        ],
        "older": entries[PAGE - 1].pk if len(entries) > PAGE else None,
    }
    return show(request, "audit/list.html", context, at="audit")


def changes(before: Any, after: Any) -> list[tuple[str, str, str]]:
    """(sign, field, value) of each field that differs; a field on one side has one line."""
    old = before if isinstance(before, dict) else {}
    new = after if isinstance(after, dict) else {}
    lines = []
    for field in dict.fromkeys([*old, *new]):
        if old.get(field) == new.get(field):
            continue
        if field in old and old[field] not in (None, ""):
            lines.append(("-", field, _text(old[field])))
        if field in new and new[field] not in (None, ""):
            lines.append(("+", field, _text(new[field])))
    return lines


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
