"""Gateways and their credentials: made by an admin, the secret shown once.

Invariant: only a token's SHA-256 is stored; a new gateway has a compiled snapshot before its first
instance asks for one. Several tokens may be valid at once, so that rotation overlaps.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from controlplane.actions._commit import Change, desired_change, recorded_change
from controlplane.actions._fields import Faults
from controlplane.actions.actor import Actor
from controlplane.actions.targets import nearest
from controlplane.errors import Conflict, NotFound
from controlplane.models import ConfigGeneration, Gateway, GatewayConfig, GatewayToken, Role

_PREFIX = "sgg_"


class Issued(NamedTuple):
    """A gateway and the one sight of its token."""

    gateway: Gateway
    token: str
    token_id: int


def create(
    *, actor: Actor, name: str, now: datetime, labels: Mapping[str, str] | None = None
) -> Issued:
    """Make a gateway, its first snapshot and its first token. Needs admin."""
    actor.must_be(Role.ADMIN, "create a gateway")
    faults = Faults()
    written = faults.gateway_name("name", name)
    read = faults.labels(labels or {})
    faults.raise_any("The gateway was not created")
    with desired_change(actor, now) as change:
        if Gateway.objects.filter(name=written).exists():
            raise Conflict(
                f"A gateway is named {written} already; a further token of it:"
                f" switchgear rotate gateway {written}"
            )
        gateway = Gateway.objects.create(
            name=written,
            labels=read,
            resource_version=change.revision,
            created_at=now,
            created_by=actor.name,
        )
        issued = _issue(change, gateway, None)
        change.audit("create", "Gateway", written, after={"name": written, "labels": read})
    return issued


def relabel(
    *, actor: Actor, name: str, labels: Mapping[str, str], now: datetime, expected_version: int
) -> Gateway:
    """Replace a gateway's labels; what selectors give it changes with them. Needs admin."""
    actor.must_be(Role.ADMIN, "label a gateway")
    faults = Faults()
    read = faults.labels(labels)
    faults.raise_any("The labels were not changed")
    with desired_change(actor, now) as change:
        gateway = _locked(name)
        if gateway.resource_version != expected_version:
            raise Conflict(
                f"{name} was changed since you read it; read it again.",
                current={"name": name, "labels": gateway.labels},
            )
        before = {"name": name, "labels": gateway.labels}
        gateway.labels = read
        gateway.resource_version = change.revision
        gateway.save(update_fields=["labels", "resource_version"])
        after = {"name": name, "labels": read}
        change.audit("label", "Gateway", name, before=before, after=after)
    return gateway


def issue_token(
    *, actor: Actor, name: str, now: datetime, expires_at: datetime | None = None
) -> Issued:
    """A further token of a gateway; the older ones stay valid until revoked. Needs admin."""
    actor.must_be(Role.ADMIN, "issue a gateway's token")
    faults = Faults()
    faults.still_to_come("expires_at", expires_at, now)
    faults.raise_any("The token was not issued")
    with recorded_change(actor, now) as change:
        gateway = _locked(name)
        issued = _issue(change, gateway, expires_at)
        ends = expires_at.isoformat() if expires_at else None
        after = {"token": issued.token_id, "expires_at": ends}
        change.audit("issue_token", "Gateway", name, after=after)
    return issued


def revoke_token(*, actor: Actor, name: str, token_id: int, now: datetime) -> None:
    """Make one token invalid (within 5 s at every web process). Needs admin."""
    actor.must_be(Role.ADMIN, "revoke a gateway's token")
    with recorded_change(actor, now) as change:
        token = (
            GatewayToken.objects.select_for_update().filter(id=token_id, gateway__name=name).first()
        )
        if token is None:
            raise NotFound(f"Gateway {name} has no token {token_id}.")
        if token.revoked_at is None:
            token.revoked_at = now
            token.save(update_fields=["revoked_at"])
            change.audit("revoke_token", "Gateway", name, after={"token": token_id})


def allow_shrink(*, actor: Actor, name: str, reason: str, now: datetime) -> Gateway:
    """Say that a gateway's present configuration is meant to hold so little. Needs admin.

    Its instances refused it because another database told them much more. It becomes a new
    generation that says so; the next change takes the word back.
    """
    actor.must_be(Role.ADMIN, "let a configuration shrink")
    faults = Faults()
    why = faults.text("reason", reason, required=True)
    faults.raise_any("Nothing was changed")
    with desired_change(actor, now) as change:
        gateway = _locked(name)
        config = GatewayConfig.objects.select_for_update().get(gateway=gateway)
        before = {"generation": config.generation, "items": config.items}
        config.generation += 1
        config.may_shrink = True
        config.revision, config.compiled_at = change.revision, now
        config.save()
        ConfigGeneration.objects.create(
            gateway=gateway,
            generation=config.generation,
            hash=config.hash,
            revision=config.revision,
            compiled_at=now,
        )
        after = {"generation": config.generation, "items": config.items}
        change.audit("allow_shrink", "Gateway", name, reason=why, before=before, after=after)
    return gateway


def new_token(prefix: str) -> str:
    """256 random bits with a prefix that secret scanners can know."""
    return prefix + secrets.token_urlsafe(32)


def digest(token: str) -> bytes:
    """What is stored of a token."""
    return hashlib.sha256(token.encode()).digest()


def _issue(change: Change, gateway: Gateway, expires_at: datetime | None) -> Issued:
    token = new_token(_PREFIX)
    row = GatewayToken.objects.create(
        gateway=gateway,
        sha256=digest(token),
        created_at=change.now,
        created_by=change.actor.name,
        expires_at=expires_at,
    )
    return Issued(gateway, token, row.pk)


def _locked(name: str) -> Gateway:
    gateway = Gateway.objects.select_for_update().filter(name=name).first()
    if gateway is None:
        known = Gateway.objects.order_by("name").values_list("name", flat=True)
        raise NotFound(f"No gateway is named {name!r}{nearest(name, known)}.")
    return gateway
