"""``/providers``: each provider that a circuit has, and where it says how it is.

Invariant: HTTP shape only; the rules are in ``actions.providers``.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Router
from pydantic import Field

from controlplane.actions import providers
from controlplane.actions.targets import known_circuits
from controlplane.api.bodies import Envelope, Strict, version_of
from controlplane.api.door import admin, answer
from controlplane.api.overrides import actor_of
from controlplane.models import Provider

router = Router(tags=["providers"])


class ProviderSpec(Strict):
    """``statusUrl``: http or https; empty takes it away."""

    status_url: str = Field("", examples=["https://status.example.com"])
    reason: str = ""


class ProviderIn(Envelope):
    """The body of a provider's record."""

    spec: ProviderSpec = Field(default_factory=ProviderSpec)


@router.get("", summary="List providers")
def list_providers(request: HttpRequest) -> HttpResponse:
    """Every provider that a circuit has, with its record if there is one."""
    rows = {row.name: row for row in Provider.objects.all()}
    names = sorted({circuit.provider for circuit in known_circuits()} | set(rows))
    found = [provider(name, rows.get(name)) for name in names]
    return answer({"kind": "ProviderList", "items": found})


@router.get("/{name}", summary="One provider")
def get_provider(request: HttpRequest, name: str) -> HttpResponse:
    """``resourceVersion`` is null while nothing was recorded of it."""
    row = Provider.objects.filter(name=name).first()
    if row is None:
        providers.must_be_known(name)
    return _answer(name, row)


@router.put("/{name}", summary="Record a provider's status page", auth=admin)
def put_provider(request: HttpRequest, name: str, payload: ProviderIn) -> HttpResponse:
    """Needs admin. A record that exists is changed only under its resourceVersion."""
    header = request.headers.get("If-Match")
    given = payload.metadata.version()
    row = providers.describe(
        actor=actor_of(request),
        name=name,
        status_url=payload.spec.status_url,
        reason=payload.spec.reason,
        expected_version=version_of(header, "If-Match") if header is not None else given,
        now=datetime.now(UTC),
    )
    return _answer(name, row)


def _answer(name: str, row: Provider | None) -> HttpResponse:
    tag = {"ETag": f'"{row.version}"'} if row else {}
    return answer(provider(name, row), **tag)


def provider(name: str, row: Provider | None) -> dict[str, Any]:
    """A provider as people read it."""
    return {
        "kind": "Provider",
        "metadata": {
            "name": name,
            "resourceVersion": str(row.version) if row else None,
            "updatedAt": row.updated_at if row else None,
            "updatedBy": row.updated_by if row else None,
        },
        "spec": {"statusUrl": (row.status_url or None) if row else None},
    }
