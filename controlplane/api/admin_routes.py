"""What admins write: gateways and their tokens, service tokens, people.

Invariant: a secret is in one answer only, the one that made it. The role is checked before the body
is looked at, so that no shape of a body says more than "not yours".
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Router
from pydantic import Field

from controlplane.actions import gateways, people, tokens
from controlplane.api.bodies import Moment, ReasonIn, Strict
from controlplane.api.door import admin, answer
from controlplane.api.fleet_routes import gateways as gateways_router
from controlplane.api.overrides import actor_of
from controlplane.errors import NotFound
from controlplane.models import GatewayToken, Person, ServiceToken
from controlplane.reports import credentials

token_routes = Router(tags=["tokens"], auth=admin)
people_routes = Router(tags=["people"], auth=admin)


class GatewayIn(Strict):
    """A new gateway."""

    name: str = ""
    labels: dict[str, str] = Field(default_factory=dict)


class ExpiryIn(Strict):
    """When a token ends; null: never."""

    expires_at: Moment | None = None


class TokenIn(ExpiryIn):
    """A new service token."""

    name: str = ""
    role: str = ""


class PersonIn(Strict):
    """A new account."""

    name: str = ""
    password: str = ""
    role: str = ""


class PersonChange(Strict):
    """What is not named stays."""

    role: str | None = None
    active: bool | None = None
    password: str | None = None


@gateways_router.post("", summary="Create a gateway; its token is shown once", auth=admin)
def create_gateway(request: HttpRequest, payload: GatewayIn) -> HttpResponse:
    """Needs admin."""
    made = gateways.create(
        actor=actor_of(request), name=payload.name, labels=payload.labels, now=datetime.now(UTC)
    )
    return answer({"kind": "Gateway", "metadata": _named(made.gateway.name), **_secret(made)}, 201)


@gateways_router.get("/{name}/tokens", summary="A gateway's tokens, without secrets", auth=admin)
def list_gateway_tokens(request: HttpRequest, name: str) -> HttpResponse:
    """Needs admin. The id is what a token is revoked by; those that are not valid stay listed."""
    rows, now = credentials.gateway_tokens(name), datetime.now(UTC)
    if rows is None:
        raise NotFound(f"No gateway is named {name!r}.")
    found = [_token("GatewayToken", {"id": row.pk, "gateway": name}, row, now) for row in rows]
    return answer({"kind": "GatewayTokenList", "items": found})


@gateways_router.post(
    "/{name}/tokens", summary="A further token; the others stay valid", auth=admin
)
def issue_gateway_token(request: HttpRequest, name: str, payload: ExpiryIn) -> HttpResponse:
    """Needs admin. The older tokens stay valid until revoked."""
    made = gateways.issue_token(
        actor=actor_of(request), name=name, expires_at=payload.expires_at, now=datetime.now(UTC)
    )
    named = _named(name) | {"id": made.token_id}
    return answer({"kind": "GatewayToken", "metadata": named, **_secret(made)}, 201)


@gateways_router.post(
    "/{name}/allow-shrink", summary="Its configuration is meant to hold so little", auth=admin
)
def allow_shrink(request: HttpRequest, name: str, payload: ReasonIn) -> HttpResponse:
    """Needs admin and a reason. For instances that refuse what a restored database tells them."""
    row = gateways.allow_shrink(
        actor=actor_of(request), name=name, reason=payload.reason, now=datetime.now(UTC)
    )
    return answer({"kind": "Gateway", "metadata": _named(row.name)})


@gateways_router.delete("/{name}/tokens/{token_id}", summary="Revoke a token", auth=admin)
def revoke_gateway_token(request: HttpRequest, name: str, token_id: int) -> HttpResponse:
    """Needs admin. Valid for at most 5 s more."""
    gateways.revoke_token(
        actor=actor_of(request), name=name, token_id=token_id, now=datetime.now(UTC)
    )
    return HttpResponse(status=204)


@token_routes.get("", summary="List service tokens, without secrets")
def list_tokens(request: HttpRequest) -> HttpResponse:
    """Needs admin."""
    now = datetime.now(UTC)
    found = [
        _token("ServiceToken", {"name": row.name}, row, now, role=str(row.role))
        for row in credentials.service_tokens()
    ]
    return answer({"kind": "ServiceTokenList", "items": found})


@token_routes.post("", summary="Issue a service token; it is shown once")
def issue_token(request: HttpRequest, payload: TokenIn) -> HttpResponse:
    """Needs admin."""
    made = tokens.issue(
        actor=actor_of(request),
        name=payload.name,
        role=payload.role,
        expires_at=payload.expires_at,
        now=datetime.now(UTC),
    )
    body = {"kind": "ServiceToken", "metadata": _named(made.row.name), **_secret(made)}
    return answer(body, 201)


@token_routes.delete("/{name}", summary="Revoke a service token")
def revoke_token(request: HttpRequest, name: str) -> HttpResponse:
    """Needs admin. Invalid at once."""
    tokens.revoke(actor=actor_of(request), name=name, now=datetime.now(UTC))
    return HttpResponse(status=204)


@people_routes.get("", summary="List accounts")
def list_people(request: HttpRequest) -> HttpResponse:
    """Needs admin."""
    return answer({"kind": "PersonList", "items": [_person(row) for row in credentials.people()]})


@people_routes.post("", summary="Create an account")
def create_person(request: HttpRequest, payload: PersonIn) -> HttpResponse:
    """Needs admin."""
    made = people.create(
        actor=actor_of(request),
        name=payload.name,
        password=payload.password,
        role=payload.role,
        now=datetime.now(UTC),
    )
    return answer(_person(made), 201)


@people_routes.patch("/{name}", summary="Change a role, switch off, set a password")
def change_person(request: HttpRequest, name: str, payload: PersonChange) -> HttpResponse:
    """Needs admin, whatever is named in the body."""
    changed = people.update(
        actor=actor_of(request),
        name=name,
        role=payload.role,
        active=payload.active,
        password=payload.password,
        now=datetime.now(UTC),
    )
    return answer(_person(changed))


def _named(name: str) -> dict[str, str]:
    return {"name": name}


def _secret(made: gateways.Issued | tokens.IssuedToken) -> dict[str, Any]:
    return {"status": {"token": made.token}}


def _token(
    kind: str,
    named: dict[str, Any],
    row: ServiceToken | GatewayToken,
    now: datetime,
    **spec: str,
) -> dict[str, Any]:
    return {
        "kind": kind,
        "metadata": named | {"createdAt": row.created_at, "createdBy": row.created_by},
        "spec": spec | {"expiresAt": row.expires_at},
        "status": {"state": credentials.state_of(row, now), "revokedAt": row.revoked_at},
    }


def _person(row: Person) -> dict[str, Any]:
    return {
        "kind": "Person",
        "metadata": _named(row.get_username()),
        "spec": {"role": str(row.role), "active": row.is_active},
    }
