"""Asking open breakers to try again now, before their open period is over.

Invariant: a probe is a command that each instance obeys at most once; it ends by itself after
``LASTS``, so an instance that comes back later is not surprised by it. Needs operator and a reason.
"""

from __future__ import annotations

import re
import secrets
from datetime import datetime, timedelta
from typing import Any, Final

from controlplane.actions._commit import desired_change
from controlplane.actions._fields import Faults
from controlplane.actions.actor import SYSTEM, Actor
from controlplane.actions.targets import check_targets
from controlplane.domain.precedence import Selection
from controlplane.errors import Conflict
from controlplane.models import Probe, Role

KIND = "Probe"
LASTS: Final = timedelta(seconds=60)
MOST_ACTIVE: Final = 100
_MATCH = ("gateway", "selector", "provider", "model", "region")


def probe_now(
    *,
    actor: Actor,
    reason: str,
    now: datetime,
    gateway: str = "",
    selector: str = "",
    provider: str = "",
    model: str = "",
    region: str = "",
) -> Probe:
    """Let every open breaker that matches go to HalfOpen at once. Needs operator.

    A breaker that an override holds open stays so. Raises ``InvalidInput``, ``Conflict`` (too many
    are on their way), ``Forbidden``, ``Busy``.
    """
    actor.must_be(Role.OPERATOR, "ask for a probe")
    faults = Faults()
    parts = {"gateway": gateway, "selector": selector, "provider": provider}
    selection = faults.selection(parts | {"model": model, "region": region})
    written = faults.text("reason", reason, required=True)
    check_targets(selection, faults)
    faults.raise_any("The probe was not recorded")
    with desired_change(actor, now) as change:
        if Probe.objects.filter(ended_at=None, expires_at__gt=now).count() >= MOST_ACTIVE:
            raise Conflict(
                f"{MOST_ACTIVE} probes are on their way; each ends after {LASTS.seconds} s.",
                code="too_many_probes",
            )
        row = Probe.objects.create(
            name=_name(selection),
            reason=written,
            expires_at=now + LASTS,
            resource_version=change.revision,
            created_at=now,
            created_by=actor.name,
            updated_at=now,
            updated_by=actor.name,
            **{part: getattr(selection, part) for part in _MATCH},
        )
        change.audit("probe", KIND, row.name, reason=row.reason, after=described(row))
    return row


def end_expired(now: datetime) -> list[str]:
    """Take the probes whose time is over out of the snapshots. For the workers' schedule."""
    passed = {"ended_at": None, "expires_at__lte": now}
    if not Probe.objects.filter(**passed).exists():
        return []
    with desired_change(SYSTEM, now) as change:
        rows = list(Probe.objects.select_for_update().filter(**passed).order_by("id"))
        for row in rows:
            row.ended_at, row.resource_version = now, change.revision
            row.save(update_fields=["ended_at", "resource_version"])
            change.audit("probe_ended", KIND, row.name, after=described(row))
    return [row.name for row in rows]


def described(row: Probe) -> dict[str, Any]:
    """The probe as the audit shows it."""
    return {
        "name": row.name,
        "uid": str(row.uid),
        **{part: getattr(row, part) for part in _MATCH},
        "reason": row.reason,
        "created_by": row.created_by,
        "expires_at": row.expires_at.isoformat(),
        "ended_at": row.ended_at.isoformat() if row.ended_at else None,
    }


def _name(selection: Selection) -> str:
    about = "-".join(filter(None, (selection.provider, selection.model, selection.region)))
    slug = re.sub(r"[^a-z0-9]+", "-", f"probe-{about or 'all'}".lower()).strip("-")
    return f"{slug[:80].rstrip('-')}-{secrets.token_hex(3)}"
