"""Earlier forms of a setting, and how a file's form is laid over the present one.

Invariant: the history is the audit itself, so nothing that was in force can be missing from it; a
rollback and an apply are new generations like every other change. What a person wrote, an apply
changes only when it is told to (``domain.ownership``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.actions._commit import desired_change
from controlplane.actions._fields import Faults
from controlplane.actions._settings import Row, Settings, fields_of
from controlplane.actions.actor import Actor
from controlplane.actions.targets import check_targets, nearest
from controlplane.domain.ownership import Clash
from controlplane.domain.ownership import applied as laid_over
from controlplane.domain.precedence import Selection
from controlplane.errors import Conflict, NotFound
from controlplane.models import AuditEntry

_WROTE = ("create", "update", "apply", "rollback")
_PARTS = ("gateway", "selector", "provider", "model", "region", "tenant")


@dataclass(frozen=True, slots=True)
class Earlier:
    """One generation as it was recorded."""

    generation: int
    resource_version: int
    at: datetime
    by: str
    action: str
    reason: str
    spec: dict[str, Any]
    match: dict[str, str]


def history(settings: Settings[Row], name: str) -> list[Earlier]:
    """Every generation of a setting, newest first. ``NotFound`` when there is none of that name."""
    row = settings.model.objects.filter(name=name).first()
    if row is None:
        known = settings.model.objects.order_by("name").values_list("name", flat=True)
        raise NotFound(f"No {settings.kind} is named {name!r}{nearest(name, known)}.")
    entries = AuditEntry.objects.filter(
        object_kind=settings.kind, object_name=name, action__in=_WROTE, after__uid=str(row.uid)
    )
    return [_earlier(entry) for entry in entries.order_by("-id")]


def _earlier(entry: AuditEntry) -> Earlier:
    after: dict[str, Any] = entry.after or {}
    return Earlier(
        generation=after["generation"],
        resource_version=after["resource_version"],
        at=entry.at,
        by=entry.actor,
        action=entry.action,
        reason=entry.reason,
        spec=after["spec"],
        match={part: after[part] for part in _PARTS if part in after},
    )


def rollback(
    settings: Settings[Row],
    *,
    actor: Actor,
    name: str,
    to_generation: int,
    now: datetime,
    reason: str,
    expected_version: int | None = None,
) -> Row:
    """Write an earlier form again, as a new generation that is the actor's."""
    actor.must_be(settings.role, f"roll back a {settings.kind}")
    faults = Faults()
    why = faults.text("reason", reason, required=True)
    faults.raise_any(f"The {settings.kind} was not rolled back")
    with desired_change(actor, now) as change:
        row = settings.locked(name)
        if expected_version is not None:
            settings.must_be_at(row, expected_version)
        found = next((e for e in history(settings, name) if e.generation == to_generation), None)
        if found is None:
            known = sorted({e.generation for e in history(settings, name)})
            faults.add("to_generation", f"{name} has the generations {', '.join(map(str, known))}")
            faults.raise_any(f"The {settings.kind} was not rolled back")
        assert found is not None
        # What was in force is checked like everything else: bounds may have become narrower.
        values = settings.read_spec(found.spec, {}, faults)
        faults.raise_any(f"Generation {to_generation} cannot be written any more")
        settings.change(change, row, values, Selection(**found.match), "rollback", why)
    return row


def apply(
    settings: Settings[Row],
    *,
    actor: Actor,
    name: str,
    spec: Mapping[str, Any],
    match: Mapping[str, object] | None,
    extra: Mapping[str, str],
    manager: str,
    force: bool,
    now: datetime,
    reason: str,
    dry_run: bool,
) -> Row:
    """Bring a setting to what a file says of it; what the file does not name is left alone.

    Raises ``Conflict`` with the fields that are somebody else's, unless ``force``.
    """
    actor.must_be(settings.role, f"apply a {settings.kind}")
    faults = Faults()
    why = faults.text("reason", reason)
    by = f"apply:{faults.name('field_manager', manager, required=True)}"
    faults.raise_any(f"The {settings.kind} was not applied")
    if not settings.model.objects.filter(name=name).exists():
        return settings.create(
            actor=actor,
            name=name,
            spec=spec,
            now=now,
            match=match or {},
            reason=why,
            extra=extra,
            faults=faults,
            manager=by,
            dry_run=dry_run,
        )
    wanted: dict[str, Any] = dict(spec)
    with desired_change(actor, now, dry_run=dry_run) as change:
        row = settings.locked(name)
        if match is not None:
            selection = faults.selection(match)
            check_targets(selection, faults)
            parts = fields_of(row)["match"]
            wanted["match"] = {part: getattr(selection, part) for part in parts}
        defaults = settings.read_spec({}, {}, Faults()) | {
            "match": dict.fromkeys(fields_of(row)["match"], "")
        }
        found = laid_over(row.managers, fields_of(row), wanted, defaults, by, force=force)
        if found.clashes:
            raise _clash(settings.kind, name, found.clashes)
        fields = dict(found.fields)
        chosen = Selection(**fields.pop("match"))
        values = settings.read_spec(fields, {}, faults)
        faults.raise_any(f"The {settings.kind} was not applied")
        settings.change(change, row, values, chosen, "apply", why, managers=found.managers)
    return row


def _clash(kind: str, name: str, clashes: tuple[Clash, ...]) -> Conflict:
    said = "; ".join(f"{c.field} is {c.manager}'s ({c.current!r})" for c in clashes)
    return Conflict(
        f"{kind} {name} was not applied: {said}. Take the fields out, or apply with force.",
        code="field_conflict",
        errors=[{"field": c.field, "message": f"written by {c.manager}"} for c in clashes],
    )
