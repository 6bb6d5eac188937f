"""Who may come in: service tokens, gateways' tokens, people.

Invariant: nothing here is a secret or leads to one; what was revoked or has expired stays listed.
"""

from __future__ import annotations

from datetime import datetime

from controlplane.models import Gateway, GatewayToken, Person, ServiceToken


def service_tokens() -> list[ServiceToken]:
    """By name."""
    return list(ServiceToken.objects.order_by("name"))


def gateway_tokens(gateway: str) -> list[GatewayToken] | None:
    """The oldest first; None when there is no such gateway."""
    if not Gateway.objects.filter(name=gateway).exists():
        return None
    return list(GatewayToken.objects.filter(gateway__name=gateway).order_by("id"))


def people() -> list[Person]:
    """By name."""
    return list(Person.objects.order_by("username"))


def state_of(token: ServiceToken | GatewayToken, now: datetime) -> str:
    """Valid, Expired or Revoked."""
    if token.revoked_at is not None:
        return "Revoked"
    return "Expired" if token.expires_at is not None and token.expires_at <= now else "Valid"
