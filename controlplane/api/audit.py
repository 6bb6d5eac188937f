"""``/audit``: search in it, and take it out as CSV.

Invariant: reading only; the export is oldest first and bounded; what did not fit is named by the
id after which the next call goes on, so that nothing is left out in silence.
"""

from __future__ import annotations

import json
from typing import Any

from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Schema
from pydantic import Field

from controlplane.api import objects
from controlplane.api.bodies import Moment
from controlplane.api.door import answer
from controlplane.models import AuditEntry, Revision
from controlplane.reports.spreadsheet import document

router = Router(tags=["audit"])
export = Router(tags=["audit"])
MOST_EXPORTED = 20_000
_COLUMNS = (
    "id",
    "at",
    "actor",
    "actorKind",
    "action",
    "objectKind",
    "objectName",
    "reason",
    "before",
    "after",
    "address",
    "requestId",
    "resourceVersion",
)


class Search(Schema):
    """What to look for; parts that are left out match everything."""

    kind: str = Field("", description="of the object, such as Override")
    name: str = Field("", description="of the object")
    actor: str = ""
    action: str = ""
    q: str = Field("", max_length=200, description="a part of name, actor, action or reason")
    since: Moment | None = Field(None, alias="from")
    until: Moment | None = Field(None, alias="to", description="before this time")

    def rows(self) -> QuerySet[AuditEntry]:
        """The entries."""
        exact = {
            "object_kind": self.kind,
            "object_name": self.name,
            "actor": self.actor,
            "action": self.action,
            "at__gte": self.since,
            "at__lt": self.until,
        }
        rows = AuditEntry.objects.filter(**{k: v for k, v in exact.items() if v})
        if self.q:
            fields = ("object_name", "actor", "action", "reason")
            found = Q()
            for field in fields:
                found |= Q(**{f"{field}__icontains": self.q})
            rows = rows.filter(found)
        return rows


@router.get("", summary="Who did what, when and why")
def list_audit(
    request: HttpRequest,
    search: Query[Search],
    before: int | None = Query(None, ge=0, le=2**62, description="ids below this one"),
    limit: int = Query(100, ge=1, le=1000),
) -> HttpResponse:
    """Newest first."""
    rows = search.rows().order_by("-id")
    if before is not None:
        rows = rows.filter(id__lt=before)
    found = [objects.audit(entry) for entry in rows[:limit]]
    return answer(objects.many("AuditEntry", found, Revision.objects.get(id=1).value))


@export.get("/audit.csv", summary="The same as CSV")
def export_audit(
    request: HttpRequest,
    search: Query[Search],
    after: int = Query(0, ge=0, le=2**62, description="ids above this one"),
) -> HttpResponse:
    """Oldest first, safe to open in a spreadsheet.

    At most 20,000 entries; when there are more, ``X-Next-After`` says where to go on.
    """
    rows = search.rows().filter(id__gt=after).order_by("id")
    found = list(rows[: MOST_EXPORTED + 1])
    cells = (_cells(objects.audit(entry)) for entry in found[:MOST_EXPORTED])
    response = HttpResponse(
        document(_COLUMNS, cells), content_type="text/csv; charset=utf-8; header=present"
    )
    if len(found) > MOST_EXPORTED:
        response["X-Next-After"] = str(found[MOST_EXPORTED - 1].pk)
    response["Content-Disposition"] = 'attachment; filename="switchgear-audit.csv"'
    response["Cache-Control"] = "no-store"
    return response


def _cells(entry: dict[str, Any]) -> list[Any]:
    def cell(value: Any) -> Any:
        if isinstance(value, dict):
            return json.dumps(value, sort_keys=True, ensure_ascii=False)
        return value.isoformat() if hasattr(value, "isoformat") else value

    return [cell(entry[name]) for name in _COLUMNS]
