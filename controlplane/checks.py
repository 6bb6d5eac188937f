"""What ``manage.py check --database default`` says of how the product is set up.

Invariant: a warning only, never an error: a plain database with one role must still run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Tags, Warning, register
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connections

from controlplane.models.privileges import weakness


@register(Tags.database)
def audit_privilege(*, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Could the role that runs the product change the audit?"""
    if DEFAULT_DB_ALIAS not in (databases or ()):
        return []
    try:
        with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
            why = weakness(cursor)
    except DatabaseError:
        return []
    if not why:
        return []
    said = f"The audit is guarded by triggers and its chain, not by privilege: {why}."
    hint = "Give the product a role of its own with DATABASE_OWNER_URL; see docs/operating.md."
    return [Warning(said, hint=hint, id="switchgear.W001")]
