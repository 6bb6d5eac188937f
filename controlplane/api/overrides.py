"""``/overrides``: force, look, extend, release.

Invariant: HTTP shape only; what is allowed and what it means is in ``actions.overrides``.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router
from ninja.constants import NOT_SET

from controlplane.actions import approvals, overrides
from controlplane.actions.actor import Actor
from controlplane.api import objects, override_objects
from controlplane.api.bodies import ExtendIn, OverrideIn, ReasonIn, ReleaseIn, version_of
from controlplane.api.door import answer
from controlplane.api.idempotency import once
from controlplane.domain.precedence import Selection
from controlplane.errors import NotFound
from controlplane.models import Override, PendingOverride, Revision
from controlplane.reports import circuits, effect, fleet, progress

router = Router(tags=["overrides"])


@router.get("", summary="List overrides")
def list_overrides(
    request: HttpRequest,
    active: bool | None = None,
    limit: int = Query(100, ge=1, le=1000),
) -> HttpResponse:
    """Newest first; ``active=1`` only those in force, ``active=0`` only those that ended.

    With ``active=1`` also ``local``: what people made on gateways' hosts, which is not ours; and
    ``pending``: what waits for a second person, and is in force nowhere.
    """
    now = datetime.now(UTC)
    revision = Revision.objects.get(id=1).value
    rows = Override.objects.order_by("-id")
    in_force = rows.filter(ended_at=None, expires_at__gt=now)
    if active is not None:
        rows = in_force if active else rows.exclude(pk__in=in_force.values("pk"))
    among = fleet.instances(now)
    held = list(rows[:limit])
    far = progress.of_items(held, now, among)
    found = [objects.override(row, one, now) for row, one in zip(held, far, strict=True)]
    local = [objects.local_override(o) for o in fleet.local_overrides(now)] if active else []
    waits = approvals.waiting(now).order_by("-id") if active else []
    pending = [override_objects.pending(row, now) for row in waits]
    more = {"local": local, "pending": pending}
    return answer(objects.many("Override", found, revision) | more)


# Before ``/{name}``, which would take it for a name.
@router.post("/release-mine", summary="End everything that I forced")
def release_mine(request: HttpRequest, payload: ReleaseIn | None = None) -> HttpResponse:
    """Every active override that the caller recorded, in one change."""
    actor, now = actor_of(request), datetime.now(UTC)
    reason = payload.reason if payload else ""

    def act() -> tuple[int, Any]:
        rows = overrides.release_mine(actor=actor, now=now, reason=reason)
        found = [objects.override(row, None, now) for row in rows]
        return 200, objects.many("Override", found, Revision.objects.get(id=1).value)

    return once(request, actor, now, act)


@router.get("/{name}", summary="One override, with each instance's progress")
def get_override(request: HttpRequest, name: str) -> HttpResponse:
    """Recorded, delivered and enforced at each instance, in ms since it was recorded.

    ``landing``: the state that each breaker under it goes to when it ends, and of how many.
    """
    now = datetime.now(UTC)
    row = Override.objects.filter(name=name).first()
    if row is None:
        asked = PendingOverride.objects.filter(name=name).first()
        if asked is not None:
            return answer(override_objects.pending(asked, now))
        raise NotFound(f"No override is named {name!r}.")
    return _answer(row, now)


@router.post("", summary="Force circuits open, closed, or only observe")
def create_override(
    request: HttpRequest,
    payload: OverrideIn,
    dry_run: bool = Query(False, alias="dryRun"),
) -> HttpResponse:
    """Needs operator, a reason and an expiry. ``dryRun=1`` says what it would touch now.

    Under the two-person rule what is fleet-wide is answered 202, ``status.phase`` Pending, unless
    it says ``breakGlass``.
    """
    actor, now = actor_of(request), datetime.now(UTC)

    def act() -> tuple[int, Any]:
        spec, parts = payload.spec, payload.spec.parts()
        wish: dict[str, Any] = {
            "name": payload.metadata.name or "",
            "mode": spec.mode,
            "reason": spec.reason,
            **spec.until(),
            **parts,
            "allow_last_healthy": spec.allow_last_healthy,
            "ticket": spec.ticket,
            "replace": spec.replace,
        }
        if not dry_run and approvals.needed(parts, break_glass=spec.break_glass):
            asked = approvals.ask(actor=actor, now=now, **wish)
            return 202, override_objects.pending(asked, now)
        glass = spec.break_glass
        row = overrides.force(actor=actor, now=now, **wish, break_glass=glass, dry_run=dry_run)
        body = objects.override(row, progress.of_item(row, now), now)
        if dry_run:
            body["dryRun"] = _dry_run(row, now)
        return (200 if dry_run else 201), body

    return once(request, actor, now, act) if not dry_run else answer(act()[1])


@router.post("/{name}/extend", summary="Move the end of an active override")
def extend_override(request: HttpRequest, name: str, payload: ExtendIn) -> HttpResponse:
    """Counted from now, bound as a new one's; a new generation that is followed on its own."""
    actor, now = actor_of(request), datetime.now(UTC)
    expected = _expected(request, payload.metadata.version())

    def act() -> tuple[int, Any]:
        row = overrides.extend(
            actor=actor,
            name=name,
            now=now,
            reason=payload.spec.reason,
            expected_version=expected,
            **payload.spec.until(),  # type: ignore[arg-type]
        )
        return 200, objects.override(row, progress.of_item(row, now), now)

    return once(request, actor, now, act)


@router.post("/{name}/approve", summary="Approve what another operator asked for")
def approve_override(request: HttpRequest, name: str) -> HttpResponse:
    """In force from now; 403 for who asked, 409 when it was decided or has lapsed."""
    actor, now = actor_of(request), datetime.now(UTC)

    def act() -> tuple[int, Any]:
        row = approvals.approve(actor=actor, name=name, now=now)
        return 200, objects.override(row, progress.of_item(row, now), now)

    return once(request, actor, now, act)


@router.post("/{name}/withdraw", summary="Take back what waits for approval")
def withdraw_override(
    request: HttpRequest, name: str, payload: ReasonIn | None = None
) -> HttpResponse:
    """One's own request or another's; 409 when it was decided or has lapsed."""
    now = datetime.now(UTC)
    said = payload.reason if payload else ""
    row = approvals.withdraw(actor=actor_of(request), name=name, now=now, reason=said)
    return answer(override_objects.pending(row, now))


@router.post("/{name}/acknowledge", summary="Say that a broken glass was seen")
def acknowledge_override(request: HttpRequest, name: str) -> HttpResponse:
    """By another than who broke it."""
    now = datetime.now(UTC)
    return _answer(approvals.acknowledge(actor=actor_of(request), name=name, now=now), now)


@router.post("/{name}/release", summary="End an override now")
def release_override(
    request: HttpRequest, name: str, payload: ReleaseIn | None = None
) -> HttpResponse:
    """The circuits go to HalfOpen, not Closed; one that has ended already is given back."""
    said = payload or ReleaseIn.model_validate({})
    version = said.resource_version
    given = version_of(str(version), "resourceVersion") if version is not None else None
    return _release(request, name, said.reason, given)


@router.delete("/{name}", summary="End an override now")
def delete_override(request: HttpRequest, name: str, reason: str = "") -> HttpResponse:
    """The same as release; the record stays."""
    return _release(request, name, reason, None)


def _release(request: HttpRequest, name: str, reason: str, given: int | None) -> HttpResponse:
    now = datetime.now(UTC)
    row = overrides.release(
        actor=actor_of(request),
        name=name,
        now=now,
        reason=reason,
        expected_version=_expected(request, given),
    )
    return _answer(row, now)


def _answer(row: Override, now: datetime) -> HttpResponse:
    body = override_objects.alone(row, progress.of_item(row, now), now)
    return answer(body, ETag=f'"{row.resource_version}"')


def _dry_run(row: Override, now: datetime) -> dict[str, Any]:
    selection = Selection(row.gateway, row.selector, row.provider, row.model, row.region)
    targets = progress.of_item(row, now).steps
    found = objects.effect(effect.read(selection, now)) | {
        "instances": [f"{step.gateway}/{step.slot}" for step in targets],
        "needsApproval": overrides.needs_second(selection),
    }
    if row.mode != "ForceOpen":
        # It takes no target away from any route.
        return found | {"routes": [], "lastHealthy": []}
    return found | {"lastHealthy": circuits.left_without_healthy(selection, now)}


def actor_of(request: HttpRequest) -> Actor:
    """The actor that the door found."""
    actor = getattr(request, "auth", NOT_SET)
    assert isinstance(actor, Actor)
    return actor


def _expected(request: HttpRequest, given: int | None) -> int | None:
    header = request.headers.get("If-Match")
    return version_of(header, "If-Match") if header not in (None, "*") else given  # type: ignore[arg-type]
