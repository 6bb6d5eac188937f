"""The first admin, gateway, tokens and defaults of an installation.

Invariant: idempotent; what a person changed since is never changed back. The secrets are the
caller's (kept in a file that only the operator reads), so a second run finds the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from django.db import connection, transaction

from controlplane.actions import budgets, policies, prices, routes
from controlplane.actions._commit import desired_change, recorded_change
from controlplane.actions.actor import SYSTEM
from controlplane.actions.gateways import digest
from controlplane.models import (
    BreakerPolicy,
    Gateway,
    GatewayToken,
    Person,
    RetryBudget,
    Role,
    ServiceToken,
)
from controlplane.wire.desired import Breaker, Bucket


@dataclass(frozen=True, slots=True)
class Secrets:
    """The names and secrets that are to be valid."""

    admin_user: str
    admin_password: str
    operator_token: str
    viewer_token: str
    gateway_name: str
    gateway_token: str


def bootstrap(
    secrets: Secrets,
    *,
    fresh: bool,
    now: datetime,
    first_routes: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[str]:
    """Make what is missing; returns what was made, in words without secrets.

    ``first_routes`` (name to spec) are recorded only together with the gateway: a route that a
    person has removed since stays removed.

    ``fresh``: these secrets were minted just now because the file with the old ones is gone, so
    the admin's password is set to the new one and the old bootstrap tokens are revoked.
    """
    with transaction.atomic():
        with connection.cursor() as cursor:
            # Replicas may start together; the second one finds everything made.
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext('switchgear_bootstrap'))")
        new = not Gateway.objects.filter(name=secrets.gateway_name).exists()
        made = [
            *_admin(secrets, fresh, now),
            *_gateway(secrets, fresh, now),
            *(_routes(first_routes or {}, now) if new else ()),
            *_service_token("bootstrap-operator", Role.OPERATOR, secrets.operator_token, now),
            *_service_token("bootstrap-viewer", Role.VIEWER, secrets.viewer_token, now),
            *_defaults(now),
            *prices.seed(now),
        ]
        with desired_change(SYSTEM, now) as change:
            # What is audited is compiled: no gateway is left without a snapshot.
            if made or Gateway.objects.filter(config=None).exists():
                change.audit("bootstrap", "Installation", "switchgear", after={"made": made})
    return made


def _admin(secrets: Secrets, fresh: bool, now: datetime) -> list[str]:
    person = Person.objects.filter(username=secrets.admin_user).first()
    if person is not None and not fresh:
        return []
    with recorded_change(SYSTEM, now) as change:
        if person is None:
            person = Person(username=secrets.admin_user, role=Role.ADMIN, is_active=True)
            action = "create"
        else:
            action = "reset_password"
        person.set_password(secrets.admin_password)
        person.save()
        change.audit(action, "Person", secrets.admin_user, after={"role": person.role})
    return [f"admin {secrets.admin_user}"]


def _gateway(secrets: Secrets, fresh: bool, now: datetime) -> list[str]:
    with desired_change(SYSTEM, now) as change:
        gateway, created = Gateway.objects.get_or_create(
            name=secrets.gateway_name,
            defaults={
                "resource_version": change.revision,
                "created_at": now,
                "created_by": SYSTEM.name,
            },
        )
        if created:
            change.audit("create", "Gateway", gateway.name, after={"name": gateway.name})
    if GatewayToken.objects.filter(sha256=digest(secrets.gateway_token)).exists():
        return []
    with recorded_change(SYSTEM, now) as change:
        if fresh:
            GatewayToken.objects.filter(
                gateway=gateway, created_by=SYSTEM.name, revoked_at=None
            ).update(revoked_at=now)
        GatewayToken.objects.create(
            gateway=gateway,
            sha256=digest(secrets.gateway_token),
            created_at=now,
            created_by=SYSTEM.name,
        )
        change.audit("issue_token", "Gateway", gateway.name)
    return [f"gateway {gateway.name}" if created else f"token of gateway {gateway.name}"]


def _routes(wanted: Mapping[str, Mapping[str, Any]], now: datetime) -> list[str]:
    for name, spec in wanted.items():
        routes.create(actor=SYSTEM, name=name, spec=spec, now=now)
    return [f"route {name}" for name in wanted]


def _service_token(name: str, role: Role, token: str, now: datetime) -> list[str]:
    row = ServiceToken.objects.filter(name=name).first()
    if row is not None and bytes(row.sha256) == digest(token):
        return []
    with recorded_change(SYSTEM, now) as change:
        ServiceToken.objects.update_or_create(
            name=name,
            defaults={
                "role": role,
                "sha256": digest(token),
                "created_at": now,
                "created_by": SYSTEM.name,
                "expires_at": None,
                "revoked_at": None,
            },
        )
        change.audit("issue_token", "ServiceToken", name, after={"role": role.value})
    return [f"service token {name}"]


def _defaults(now: datetime) -> list[str]:
    made = []
    bucket = msgspec.to_builtins(Bucket())
    for level in budgets.LEVELS:
        if not RetryBudget.objects.filter(level=level).exists():
            budgets.create(actor=SYSTEM, name=level, level=level, spec=bucket, now=now)
            made.append(f"retry budget {level}")
    if not BreakerPolicy.objects.exists():
        spec = msgspec.to_builtins(Breaker())
        policies.create(actor=SYSTEM, name="default", spec=spec, now=now)
        made.append("breaker policy default")
    return made
