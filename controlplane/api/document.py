"""The OpenAPI document of everything: the people's routes and the gateways' hot paths beside them.

Invariant: the hot paths' schemas are generated from the wire's own types, and every route of
``hot.routes`` is described here (a test compares the two).
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

import msgspec
from django.http import HttpRequest, HttpResponse
from ninja import NinjaAPI
from ninja.openapi.schema import OpenAPISchema

from controlplane.errors import InvalidInput
from controlplane.wire.desired import Snapshot
from controlplane.wire.events import Batch, Receipt
from controlplane.wire.status import InstanceStatus, StatusReceipt

_TYPES = (Batch, Receipt, Snapshot, InstanceStatus, StatusReceipt)
_REF = "#/components/schemas/{name}"
_JSON = "application/json"


class Api(NinjaAPI):
    """Ninja's API whose document also describes the hot paths."""

    def get_openapi_schema(self, **options: Any) -> OpenAPISchema:
        """The merged document."""
        document = super().get_openapi_schema(**options)
        schemas, components = msgspec.json.schema_components(_TYPES, ref_template=_REF)
        refs = {kind.__name__: schema for kind, schema in zip(_TYPES, schemas, strict=True)}
        document["paths"] |= hot_paths(refs)
        document["components"].setdefault("schemas", {}).update(components)
        document["components"].setdefault("securitySchemes", {}).update(_SECURITY)
        return document

    @cached_property
    def _queries(self) -> dict[tuple[str, str], set[str]]:
        return {
            (path, method.upper()): {
                one["name"] for one in said.get("parameters", []) if one["in"] == "query"
            }
            for path, methods in self.get_openapi_schema()["paths"].items()
            for method, said in methods.items()
        }

    def create_temporal_response(self, request: HttpRequest) -> HttpResponse:
        """Ninja's step between who is calling and what was sent, of every operation."""
        self._refuse_unknown_query(request)
        return super().create_temporal_response(request)

    def _refuse_unknown_query(self, request: HttpRequest) -> None:
        """A parameter that the route does not have: ``?dryrun=1`` forced, ``?activ=1`` listed all.

        Raises ``InvalidInput``.
        """
        if not request.GET or request.resolver_match is None:
            return
        path = "/" + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", request.resolver_match.route)
        known = self._queries.get((path, str(request.method)), set())
        said = f"unknown parameter; known: {', '.join(sorted(known)) or 'none'}"
        if unknown := [name for name in request.GET if name not in known]:
            raise InvalidInput(
                f"{unknown[0]}: {said}. Nothing was done.",
                errors=[{"field": f"query.{name}", "message": said} for name in unknown],
            )


_SECURITY = {
    "gatewayToken": {"type": "http", "scheme": "bearer", "description": "A gateway's own token"},
    "serviceToken": {"type": "http", "scheme": "bearer", "description": "A service token"},
}
_BUSY = {"description": "Busy; wait at least Retry-After"}
_PROBLEM = {"description": "A problem document that names the field"}


def hot_paths(refs: dict[str, Any]) -> dict[str, Any]:
    """The paths that plain ASGI functions answer; ``refs`` are the schemas of the wire's types."""
    gateway = "/api/v1/gateways/{name}"
    return {
        "/healthz": {"get": _plain("This process answers")},
        "/readyz": {"get": _plain("This process reaches Postgres")},
        "/api/v1/events": {
            "post": _hot("Take a batch of events", refs["Receipt"], body=refs["Batch"])
        },
        f"{gateway}/config": {
            "get": _hot(
                "The gateway's desired state; watch=1 streams it",
                refs["Snapshot"],
                parameters=[
                    _path("name"),
                    _query("watch", "integer"),
                    _query("generation", "integer"),
                    _query("hash", "string"),
                    _query("epoch", "string"),
                ],
            )
        },
        f"{gateway}/instances/{{boot}}/status": {
            "patch": _hot(
                "What an instance enforces",
                refs["StatusReceipt"],
                body=refs["InstanceStatus"],
                parameters=[_path("name"), _path("boot")],
            )
        },
    }


def _plain(summary: str) -> dict[str, Any]:
    return {"summary": summary, "tags": ["health"], "responses": {"200": {"description": "OK"}}}


def _hot(
    summary: str,
    answer: Any,
    *,
    body: Any = None,
    parameters: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": summary,
        "tags": ["gateway"],
        "security": [{"gatewayToken": []}],
        "parameters": parameters or [],
        "responses": {
            "200": {"description": "OK", "content": {_JSON: {"schema": answer}}},
            "422": _PROBLEM,
            "503": _BUSY,
        },
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {_JSON: {"schema": body}}}
    return operation


def _path(name: str) -> dict[str, Any]:
    return {"in": "path", "name": name, "required": True, "schema": {"type": "string"}}


def _query(name: str, kind: str) -> dict[str, Any]:
    return {"in": "query", "name": name, "required": False, "schema": {"type": kind}}
