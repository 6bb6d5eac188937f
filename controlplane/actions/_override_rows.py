"""Override rows: how one is made, named, and written down for the audit.

Invariant: a row takes its version from the change that writes it; its name is new each time, so
what the audit says of a name is always about one hand.
"""

from __future__ import annotations

import re
import secrets
from datetime import datetime
from typing import Any

from controlplane.actions._commit import Change
from controlplane.domain.overrides import OverrideMode
from controlplane.domain.precedence import Selection
from controlplane.errors import Conflict
from controlplane.models import Override

_MATCH = ("gateway", "selector", "provider", "model", "region")


def insert(
    change: Change,
    mode: OverrideMode,
    selection: Selection,
    *,
    name: str,
    reason: str,
    ticket: str,
    expires_at: datetime,
    allow_last_healthy: bool,
    by: str,
    break_glass: bool,
) -> Override:
    """A new active row of ``by``. Raises ``Conflict`` if the name was ever given to another."""
    if name and Override.objects.filter(name=name).exists():
        raise Conflict(
            f"An override was named {name} before, and each name stands for one: write another, "
            "or none and one is made.",
            code="name_taken",
        )
    row = Override(
        name=name or new_name(mode, selection),
        mode=mode.value,
        reason=reason,
        ticket=ticket,
        expires_at=expires_at,
        allow_last_healthy=allow_last_healthy,
        resource_version=change.revision,
        created_at=change.now,
        created_by=by,
        break_glass=break_glass,
        updated_at=change.now,
        updated_by=change.actor.name,
        **columns(selection),
    )
    row.save(force_insert=True)
    return row


def columns(selection: Selection) -> dict[str, str]:
    """The match as columns."""
    return {part: getattr(selection, part) for part in _MATCH}


def described(row: Override) -> dict[str, Any]:
    """The override as the audit and a conflict show it."""
    return {
        "name": row.name,
        "uid": str(row.uid),
        "generation": row.generation,
        "resource_version": row.resource_version,
        "mode": row.mode,
        **{part: getattr(row, part) for part in _MATCH},
        "reason": row.reason,
        "ticket": row.ticket,
        "allow_last_healthy": row.allow_last_healthy,
        "break_glass": row.break_glass,
        "created_at": row.created_at.isoformat(),
        "created_by": row.created_by,
        "expires_at": row.expires_at.isoformat(),
        "updated_by": row.updated_by,
        "ended_at": row.ended_at.isoformat() if row.ended_at else None,
        "ended_by": row.ended_by,
        "end_cause": row.end_cause,
    }


def new_name(mode: OverrideMode, selection: Selection) -> str:
    """A readable name that is new: ``force-open-openai-gpt-4o-3f9a1c``."""
    words = re.sub(r"(?<!^)(?=[A-Z])", "-", mode.value)
    about = "-".join(filter(None, (selection.provider, selection.model, selection.region)))
    slug = re.sub(r"[^a-z0-9]+", "-", f"{words}-{about or 'all'}".lower()).strip("-")
    return f"{slug[:80].rstrip('-')}-{secrets.token_hex(3)}"
