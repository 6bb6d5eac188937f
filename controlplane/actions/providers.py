"""What is recorded of a provider: the address of its own status page.

Invariant: an address is one that may be linked to (``domain.links``); only a provider that some
circuit has can be written of, so a typing error never makes a second one. No gateway hears of it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from controlplane.actions._commit import recorded_change
from controlplane.actions._fields import Faults
from controlplane.actions.actor import Actor
from controlplane.actions.targets import known_circuits, nearest
from controlplane.domain.links import web_address
from controlplane.errors import Conflict, NotFound
from controlplane.models import Provider, Role


def describe(
    *,
    actor: Actor,
    name: str,
    status_url: object,
    now: datetime,
    expected_version: int | None,
    reason: str = "",
) -> Provider:
    """Record a provider's status page; an empty address takes it away. Needs admin.

    ``expected_version``: the one that was read, None when there was no record. ``Conflict`` with
    ``current`` when it is another by now.
    """
    actor.must_be(Role.ADMIN, "write a provider's record")
    must_be_known(name)
    faults = Faults()
    why = faults.text("reason", reason)
    address = ""
    if not isinstance(status_url, str):
        faults.add("status_url", "write a text")
    elif status_url.strip():
        with faults.of("status_url"):
            address = web_address(status_url)
    faults.raise_any("The provider's record was not changed")
    with recorded_change(actor, now) as change:
        row = Provider.objects.select_for_update().filter(name=name).first()
        if (row.version if row else None) != expected_version:
            raise Conflict(
                f"The record of {name} was changed since you read it; read it again.",
                current=described(row) if row else None,
            )
        before = described(row) if row else None
        if row is None:
            row = Provider(name=name, version=0, created_at=now)
        elif row.status_url == address:
            return row
        row.status_url, row.updated_at, row.updated_by = address, now, actor.name
        row.version += 1
        try:
            with transaction.atomic():
                row.save()
        except IntegrityError as error:  # another person recorded the first one a moment ago
            raise Conflict(f"The record of {name} was made just now; read it again.") from error
        change.audit(
            "update" if before else "create", "Provider", name,
            reason=why, before=before, after=described(row),
        )  # fmt: skip
    return row


def must_be_known(name: str) -> None:
    """``NotFound`` with the nearest names, unless a circuit has this provider."""
    known = {circuit.provider for circuit in known_circuits()}
    if name not in known:
        raise NotFound(f"No circuit has the provider {name!r}{nearest(name, sorted(known))}.")


def described(row: Provider) -> dict[str, Any]:
    """A record as the audit and a conflict show it."""
    return {
        "name": row.name,
        "version": row.version,
        "status_url": row.status_url,
        "updated_by": row.updated_by,
    }
