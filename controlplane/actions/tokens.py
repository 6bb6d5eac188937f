"""Service tokens: how a machine or a command line gets in, with a role and an end.

Invariant: only the SHA-256 is stored; an expired or revoked token is nobody.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django.db.models import Q

from controlplane.actions._commit import recorded_change
from controlplane.actions._fields import Faults
from controlplane.actions.actor import Actor
from controlplane.actions.gateways import digest, new_token
from controlplane.errors import Conflict, NotFound
from controlplane.models import Role, ServiceToken

_PREFIX = "sgs_"


class IssuedToken(NamedTuple):
    """A service token and the one sight of its secret."""

    row: ServiceToken
    token: str


def issue(
    *, actor: Actor, name: str, role: str, now: datetime, expires_at: datetime | None = None
) -> IssuedToken:
    """Make a service token. Needs admin."""
    actor.must_be(Role.ADMIN, "issue a service token")
    faults = Faults()
    written = faults.object_name("name", name)
    if role not in Role.values:
        faults.add("role", f"write one of {', '.join(Role.values)}")
    faults.still_to_come("expires_at", expires_at, now)
    faults.raise_any("The token was not issued")
    with recorded_change(actor, now) as change:
        if ServiceToken.objects.filter(name=written).exists():
            raise Conflict(
                f"A service token is named {written} already, and a name stays taken:"
                f" choose another (the old one ends with: switchgear revoke token {written})."
            )
        token = new_token(_PREFIX)
        ends = expires_at.isoformat() if expires_at else None
        row = ServiceToken.objects.create(
            name=written,
            role=role,
            sha256=digest(token),
            created_at=now,
            created_by=actor.name,
            expires_at=expires_at,
        )
        change.audit(
            "issue_token", "ServiceToken", written, after={"role": role, "expires_at": ends}
        )
    return IssuedToken(row, token)


def revoke(*, actor: Actor, name: str, now: datetime) -> ServiceToken:
    """Make a service token invalid at once. Needs admin."""
    actor.must_be(Role.ADMIN, "revoke a service token")
    with recorded_change(actor, now) as change:
        row = ServiceToken.objects.select_for_update().filter(name=name).first()
        if row is None:
            raise NotFound(f"No service token is named {name!r}.")
        if row.revoked_at is None:
            row.revoked_at = now
            row.save(update_fields=["revoked_at"])
            change.audit("revoke_token", "ServiceToken", name)
    return row


def valid(token: str, now: datetime) -> ServiceToken | None:
    """The row of a token that may be used now."""
    alive = Q(expires_at=None) | Q(expires_at__gt=now)
    return ServiceToken.objects.filter(alive, sha256=digest(token), revoked_at=None).first()
