"""Routes: which targets serve a model name, in which order, and who approved each. Needs admin.

Invariant: see ``_settings``; an approval without a name on it becomes the name of whoever writes it
down, with the time, so no target is approved by nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from controlplane.actions._fields import Faults
from controlplane.actions._route_spec import route_spec
from controlplane.actions._settings import Settings
from controlplane.actions.actor import Actor
from controlplane.models import Role, Route

ROUTES = Settings(Route, "Route", route_spec, role=Role.ADMIN, most=200)


def create(
    *,
    actor: Actor,
    name: str,
    spec: Mapping[str, Any],
    now: datetime,
    match: Mapping[str, object] | None = None,
    reason: str = "",
) -> Route:
    """Record a route; it takes the place of the gateways' own of that name."""
    faults = Faults()
    _only_gateways(match, faults)
    return ROUTES.create(
        actor=actor,
        name=name,
        spec=signed(name, spec, actor, now),
        now=now,
        match=match or {},
        reason=reason,
        extra={},
        faults=faults,
    )


def update(
    *,
    actor: Actor,
    name: str,
    spec: Mapping[str, Any],
    now: datetime,
    expected_version: int,
    merge: bool = True,
    reason: str = "",
    match: Mapping[str, object] | None = None,
) -> Route:
    """Change a route. ``merge`` keeps what ``spec`` does not name; targets change as a whole."""
    faults = Faults()
    _only_gateways(match, faults)
    return ROUTES.update(
        actor=actor,
        name=name,
        spec=signed(name, spec, actor, now),
        now=now,
        expected_version=expected_version,
        merge=merge,
        reason=reason,
        match=match,
        faults=faults,
    )


def remove(
    *, actor: Actor, name: str, now: datetime, expected_version: int, reason: str = ""
) -> None:
    """Take a route away; the gateways' own of that name is in force again."""
    ROUTES.remove(actor=actor, name=name, now=now, expected_version=expected_version, reason=reason)


def signed(name: str, spec: Mapping[str, Any], actor: Actor, now: datetime) -> dict[str, Any]:
    """The spec with a name and a time on every approval.

    A target that was approved before and is written again without them keeps its record.
    """
    row = Route.objects.filter(name=name).first()
    before = {_circuit(t): t for t in row.spec.get("targets", [])} if row else {}
    targets = spec.get("targets")
    if not isinstance(targets, list):
        return dict(spec)
    return {**spec, "targets": [_signed(t, before, actor, now) for t in targets]}


def _signed(
    target: object, before: Mapping[tuple[str, ...], Mapping[str, Any]], actor: Actor, now: datetime
) -> object:
    if not isinstance(target, Mapping) or target.get("approved") is False:
        return target
    if target.get("approved_by") or target.get("approvedBy"):
        return target
    old = before.get(_circuit(target), {})
    by, at = actor.name, now.isoformat()
    if old.get("approved") and old.get("approved_by"):
        by, at = old["approved_by"], old["approved_at"]
    plain = {k: v for k, v in target.items() if k not in ("approvedAt", "approvedBy")}
    # A time that was written is read as any other field, not thrown away: it may be a wrong one.
    written = target.get("approved_at", target.get("approvedAt"))
    return {**plain, "approved_by": by, "approved_at": at if written is None else written}


def _circuit(target: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(target.get(part, "")) for part in ("provider", "model", "region"))


def _only_gateways(match: Mapping[str, object] | None, faults: Faults) -> None:
    for part in ("provider", "model", "region"):
        if match and match.get(part):
            faults.add(part, "a route is matched by gateway or selector only")
