"""What policies, budgets and routes have in common: create, change under a version, remove.

Invariant: a change names the version it was made from; if the row has moved on, nothing is written
and the answer holds the present object and who changed it. So nobody's edit is lost in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from controlplane.actions._commit import Change, desired_change
from controlplane.actions._fields import Faults
from controlplane.actions.actor import Actor
from controlplane.actions.targets import check_targets, nearest
from controlplane.domain.ownership import edited
from controlplane.domain.precedence import Selection
from controlplane.errors import Conflict, NotFound
from controlplane.models import BreakerPolicy, RetryBudget, Role, Route

Row = TypeVar("Row", BreakerPolicy, RetryBudget, Route)
_ReadSpec = Callable[[Mapping[str, Any], Mapping[str, Any], Faults], dict[str, Any]]
LEVELS = ("system", "tenant", "circuit")
_MATCH = ("gateway", "selector", "provider", "model", "region", "tenant")


@dataclass(frozen=True, slots=True)
class Settings(Generic[Row]):
    """One kind of setting: its model, its name in the audit, and how its spec is read."""

    model: type[Row]
    kind: str
    read_spec: _ReadSpec
    role: Role = Role.OPERATOR
    most: int = 500

    def create(
        self,
        *,
        actor: Actor,
        name: str,
        spec: Mapping[str, Any],
        now: datetime,
        match: Mapping[str, object],
        reason: str,
        extra: Mapping[str, str],
        faults: Faults,
        manager: str | None = None,
        dry_run: bool = False,
    ) -> Row:
        """Record a new one. ``Conflict`` when the name is taken.

        The fields that were given are ``manager``'s (the actor's, when none is named; what the
        control plane makes itself is nobody's).
        """
        actor.must_be(self.role, f"write a {self.kind}")
        written = faults.object_name("name", name)
        why = faults.text("reason", reason)
        selection = faults.selection(match)
        check_targets(selection, faults)
        if "level" in extra and extra["level"] not in LEVELS:
            faults.add("level", f"write one of {', '.join(LEVELS)}")
        _check_tenant(selection, extra.get("level", ""), faults)
        values: dict[str, Any] = self.read_spec(spec, {}, faults)
        faults.raise_any(f"The {self.kind} was not recorded")
        owner = manager or ("" if actor.kind == "system" else actor.name)
        given = [*(n for n in spec if n in values), *(["match"] if any(match.values()) else [])]
        with desired_change(actor, now, dry_run=dry_run) as change:
            if self.model.objects.count() >= self.most:
                raise Conflict(f"There are {self.most} already; remove one first.", code="too_many")
            taken = self.model.objects.filter(name=written).first()
            if taken is not None:
                raise Conflict(f"{self.kind} {written} exists already.", current=described(taken))
            row = self.model(
                name=written,
                spec=values,
                managers=dict.fromkeys(given, owner) if owner else {},
                created_at=now,
                created_by=actor.name,
                **self._columns(selection),
                **extra,
            )
            self.save(change, row)
            change.audit("create", self.kind, written, reason=why, after=described(row))
        return row

    def update(
        self,
        *,
        actor: Actor,
        name: str,
        spec: Mapping[str, Any],
        now: datetime,
        expected_version: int,
        merge: bool,
        reason: str,
        match: Mapping[str, object] | None,
        faults: Faults,
    ) -> Row:
        """Change one; without an effective change nothing is written and the row comes back."""
        actor.must_be(self.role, f"change a {self.kind}")
        why = faults.text("reason", reason)
        selection = faults.selection(match) if match is not None else None
        if selection is not None:
            check_targets(selection, faults)
        with desired_change(actor, now) as change:
            row = self.locked(name)
            self.must_be_at(row, expected_version)
            _check_tenant(selection, getattr(row, "level", ""), faults)
            values = self.read_spec(spec, row.spec if merge else {}, faults)
            faults.raise_any(f"The {self.kind} was not changed")
            self.change(change, row, values, selection, "update", why)
        return row

    def change(
        self,
        change: Change,
        row: Row,
        values: dict[str, Any],
        selection: Selection | None,
        action: str,
        reason: str,
        managers: Mapping[str, str] | None = None,
    ) -> None:
        """Write a new generation of a locked row, unless nothing in it would be different.

        ``managers``: whose the fields are afterwards; by default what changed is the actor's.
        """
        before, old = described(row), fields_of(row)
        row.spec = values
        for column, value in self._columns(selection).items():
            setattr(row, column, value)
        owners = edited(row.managers, old, fields_of(row), change.actor.name)
        row.managers = dict(owners if managers is None else managers)
        if described(row) == before:
            # Who would write the same from now on is worth keeping; no gateway has to hear of it.
            row.save(update_fields=["managers"])
            return
        row.generation += 1
        self.save(change, row)
        change.audit(
            action, self.kind, row.name, reason=reason, before=before, after=described(row)
        )

    def remove(
        self, *, actor: Actor, name: str, now: datetime, expected_version: int, reason: str
    ) -> None:
        """Take one away; what it matched falls to the next in precedence, or the built-in."""
        actor.must_be(self.role, f"remove a {self.kind}")
        faults = Faults()
        why = faults.text("reason", reason)
        faults.raise_any(f"The {self.kind} was not removed")
        with desired_change(actor, now) as change:
            row = self.locked(name)
            self.must_be_at(row, expected_version)
            change.audit("delete", self.kind, name, reason=why, before=described(row))
            row.delete()

    def _columns(self, selection: Selection | None) -> dict[str, str]:
        if selection is None:
            return {}
        columns = {field.name for field in self.model._meta.get_fields()}
        return {part: getattr(selection, part) for part in _MATCH if part in columns}

    def save(self, change: Change, row: Row) -> None:
        """Save a row under the change's revision and hand."""
        row.resource_version = change.revision
        row.updated_at, row.updated_by = change.now, change.actor.name
        row.save()

    def locked(self, name: str) -> Row:
        """The row, held until commit. ``NotFound`` with the nearest names."""
        row = self.model.objects.select_for_update().filter(name=name).first()
        if row is None:
            known = self.model.objects.order_by("name").values_list("name", flat=True)
            raise NotFound(f"No {self.kind} is named {name!r}{nearest(name, known)}.")
        return row

    def must_be_at(self, row: Row, expected: int) -> None:
        """``Conflict`` with the present object when the row has moved on."""
        if row.resource_version != expected:
            raise Conflict(
                f"{row.name} was changed by {row.updated_by} at {row.updated_at:%H:%M:%S} UTC"
                " since you read it; read it again.",
                current=described(row),
            )


def _check_tenant(selection: Selection | None, level: str, faults: Faults) -> None:
    """A tenant named where none is looked at would never match, and nobody would see why."""
    if selection is not None and selection.tenant and level != "tenant":
        faults.add("tenant", "only a budget of level tenant can name one")


def fields_of(row: BreakerPolicy | RetryBudget | Route) -> dict[str, Any]:
    """What has managers: each field of the spec, and the match as one."""
    match = {part: getattr(row, part) for part in _MATCH if hasattr(row, part)}
    return {**row.spec, "match": match}


def described(row: BreakerPolicy | RetryBudget | Route) -> dict[str, Any]:
    """The setting as the audit and a conflict show it."""
    level = {"level": row.level} if isinstance(row, RetryBudget) else {}
    return {
        "name": row.name,
        "uid": str(row.uid),
        "generation": row.generation,
        "resource_version": row.resource_version,
        **level,
        **{part: getattr(row, part) for part in _MATCH if hasattr(row, part)},
        "spec": dict(row.spec),
        "updated_by": row.updated_by,
        "updated_at": row.updated_at.isoformat() if row.updated_at else None,
    }
