"""``/policies``, ``/budgets`` and ``/routes``: the kinds of setting share their HTTP shape.

Invariant: a change names the resourceVersion that it was made from (``metadata``, ``If-Match``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router
from ninja.constants import NOT_SET
from pydantic import ValidationError

from controlplane.actions import budgets, policies, revisions, routes
from controlplane.actions._settings import Settings
from controlplane.actions.targets import nearest
from controlplane.api import objects, setting_objects
from controlplane.api.bodies import RollbackIn, SettingHead, SettingIn, version_of
from controlplane.api.door import admin, answer, snake
from controlplane.api.overrides import actor_of
from controlplane.errors import InvalidInput, NotFound
from controlplane.models import BreakerPolicy, RetryBudget, Revision, Role, Route
from controlplane.reports import fleet, progress

_Row = BreakerPolicy | RetryBudget | Route


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    rows: Callable[[], Any]
    create: Callable[..., _Row]
    update: Callable[..., _Row]
    remove: Callable[..., None]
    settings: Settings[Any]


_KINDS = {
    "policies": _Kind(
        "BreakerPolicy",
        lambda: BreakerPolicy.objects,
        policies.create,
        policies.update,
        policies.remove,
        policies.POLICIES,
    ),
    "budgets": _Kind(
        "RetryBudget",
        lambda: RetryBudget.objects,
        budgets.create,
        budgets.update,
        budgets.remove,
        budgets.BUDGETS,
    ),
    "routes": _Kind(
        "Route",
        lambda: Route.objects,
        routes.create,
        routes.update,
        routes.remove,
        routes.ROUTES,
    ),
}


def router_of(path: str) -> Router:
    """The routes of one kind of setting."""
    kind = _KINDS[path]
    router = Router(tags=[path])
    writer = _writer(kind)

    @router.get("", summary=f"List {path}", operation_id=f"list_{path}")
    def list_settings(request: HttpRequest) -> HttpResponse:
        now = datetime.now(UTC)
        revision = Revision.objects.get(id=1).value
        among = fleet.instances(now)
        rows = kind.rows().order_by("name")
        far = progress.of_items(rows, now, among)
        found = [setting_objects.setting(row, one) for row, one in zip(rows, far, strict=True)]
        return answer(objects.many(kind.name, found, revision))

    @router.get("/{name}", summary=f"One of {path}", operation_id=f"get_{path}")
    def get_setting(request: HttpRequest, name: str) -> HttpResponse:
        return _answer(_found(kind, name))

    @router.put("/{name}", summary="Create or replace", operation_id=f"put_{path}", auth=writer)
    def put_setting(request: HttpRequest, name: str, payload: SettingIn) -> HttpResponse:
        return _write(request, kind, name, payload, merge=False)

    @router.patch(
        "/{name}", summary="Change some numbers", operation_id=f"patch_{path}", auth=writer
    )
    def patch_setting(request: HttpRequest, name: str, payload: SettingIn) -> HttpResponse:
        return _write(request, kind, name, payload, merge=True)

    @router.delete("/{name}", summary="Remove", operation_id=f"delete_{path}", auth=writer)
    def delete_setting(request: HttpRequest, name: str, reason: str = "") -> HttpResponse:
        version = _version(request, None)
        if version is None:
            raise _needs_version()
        kind.remove(
            actor=actor_of(request),
            name=name,
            now=datetime.now(UTC),
            expected_version=version,
            reason=reason,
        )
        return HttpResponse(status=204)

    _add_revisions(router, path, kind)
    return router


def _writer(kind: _Kind) -> Any:
    """Who may write a kind: an admin, or whom the door lets write anyway."""
    return admin if kind.settings.role is Role.ADMIN else NOT_SET


def _add_revisions(router: Router, path: str, kind: _Kind) -> None:
    """History, rollback and apply."""
    writer = _writer(kind)

    @router.get("/{name}/history", summary="Every generation", operation_id=f"history_{path}")
    def get_history(request: HttpRequest, name: str) -> HttpResponse:
        found = [
            setting_objects.earlier(kind.name, e) for e in revisions.history(kind.settings, name)
        ]
        return answer(objects.many(kind.name, found, Revision.objects.get(id=1).value))

    @router.post(
        "/{name}/rollback",
        summary="Write an earlier form again",
        operation_id=f"rollback_{path}",
        auth=writer,
    )
    def post_rollback(request: HttpRequest, name: str, payload: RollbackIn) -> HttpResponse:
        row = revisions.rollback(
            kind.settings,
            actor=actor_of(request),
            name=name,
            to_generation=payload.to_generation,
            now=datetime.now(UTC),
            reason=payload.reason,
            expected_version=_version(request, None),
        )
        return _answer(row)

    @router.post(
        "/{name}/apply",
        summary="Lay a file over it",
        operation_id=f"apply_{path}",
        auth=writer,
    )
    def post_apply(
        request: HttpRequest,
        name: str,
        payload: SettingIn,
        field_manager: str = Query("file", alias="fieldManager"),
        force: bool = False,
        dry_run: bool = Query(False, alias="dryRun"),
    ) -> HttpResponse:
        actor, now = actor_of(request), datetime.now(UTC)
        head, spec = _split(payload.spec)
        _must_say_something(kind, head, spec)
        if kind.name == "Route":
            spec = routes.signed(name, spec, actor, now)
        row = revisions.apply(
            kind.settings,
            actor=actor,
            name=name,
            spec=spec,
            match=head.match.parts() if head.match is not None else None,
            extra={"level": head.level or ""} if kind.name == "RetryBudget" else {},
            manager=field_manager,
            force=force,
            now=now,
            reason=head.reason,
            dry_run=dry_run,
        )
        return _answer(row)


def _write(
    request: HttpRequest, kind: _Kind, name: str, payload: SettingIn, *, merge: bool
) -> HttpResponse:
    actor, now = actor_of(request), datetime.now(UTC)
    head, spec = _split(payload.spec)
    match = head.match.parts() if head.match is not None else None
    version = _version(request, payload.metadata.version())
    if not merge:
        _must_say_something(kind, head, spec)
    exists = kind.rows().filter(name=name).exists()
    if not exists and not merge and version is None:
        level = {"level": head.level or ""} if kind.name == "RetryBudget" else {}
        row = kind.create(
            actor=actor, name=name, spec=spec, now=now, match=match, reason=head.reason, **level
        )
        return _answer(row, 201)
    if exists and version is None:
        raise _needs_version()
    if exists and head.level is not None and head.level != getattr(_found(kind, name), "level", ""):
        fault = {"field": "level", "message": "a level cannot be changed; make another budget"}
        raise InvalidInput("level: it cannot be changed", errors=[fault])
    row = kind.update(
        actor=actor,
        name=name,
        spec=spec,
        now=now,
        expected_version=version or 0,
        merge=merge,
        reason=head.reason,
        match=match,
    )
    return _answer(row)


def _must_say_something(kind: _Kind, head: SettingHead, spec: dict[str, Any]) -> None:
    """An empty policy would be in force for every circuit that has none, with every default."""
    if kind.name == "BreakerPolicy" and not spec and head.match is None:
        said = "required when no number is set: name what it is for, or write {} for every circuit"
        raise InvalidInput(f"match: {said}", errors=[{"field": "match", "message": said}])


def _split(spec: dict[str, Any]) -> tuple[SettingHead, dict[str, Any]]:
    """What stands beside the numbers, and the numbers under their stored names."""
    beside = {name: value for name, value in spec.items() if name in SettingHead.model_fields}
    try:
        head = SettingHead.model_validate(beside)
    except ValidationError as error:
        faults = [
            {"field": "spec." + ".".join(map(str, e["loc"])), "message": e["msg"]}
            for e in error.errors()
        ]
        raise InvalidInput(faults[0]["message"], errors=faults) from error
    return head, {snake(name): value for name, value in spec.items() if name not in beside}


def _answer(row: _Row, status: int = 200) -> HttpResponse:
    now = datetime.now(UTC)
    body = setting_objects.alone(row, progress.of_item(row, now), now)
    return answer(body, status, ETag=f'"{row.resource_version}"')


def _found(kind: _Kind, name: str) -> _Row:
    row: _Row | None = kind.rows().filter(name=name).first()
    if row is None:
        known = kind.rows().order_by("name").values_list("name", flat=True)
        raise NotFound(f"No {kind.name} is named {name!r}{nearest(name, known)}.")
    return row


def _version(request: HttpRequest, given: int | None) -> int | None:
    header = request.headers.get("If-Match")
    return version_of(header, "If-Match") if header is not None else given


def _needs_version() -> InvalidInput:
    fault = {"field": "metadata.resourceVersion", "message": "write the one that you read"}
    return InvalidInput(
        "metadata.resourceVersion: required, so that nobody's change is lost", errors=[fault]
    )
