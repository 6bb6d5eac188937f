"""How every write of a person becomes permanent: one transaction with its audit entries.

Invariant: this is the only writer of ``AuditEntry`` and ``Revision``, but for what gateways report
of themselves (``watch.local_overrides``, ``models.epochs``). A change of desired state
holds the revision's one row until commit, so revisions are in the order of commits and a reader
that has seen revision n has seen all that n contains; the compiled snapshots and the wake-up are
part of the same transaction.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import OperationalError, transaction
from psycopg.errors import DeadlockDetected, LockNotAvailable, QueryCanceled

from controlplane.actions._compile import recompile
from controlplane.actions.actor import Actor
from controlplane.errors import Busy
from controlplane.models import AuditEntry, Revision
from controlplane.notify import desired_changed


@dataclass(slots=True)
class Change:
    """One write while it is being made. ``revision`` is what changed rows must carry."""

    actor: Actor
    now: datetime
    revision: int | None
    entries: list[AuditEntry] = field(default_factory=list)

    def audit(
        self,
        action: str,
        kind: str,
        name: str,
        *,
        reason: str = "",
        before: dict[str, Any] | None = None,
        after: dict[str, Any] | None = None,
        actor: Actor | None = None,
    ) -> None:
        """Add the audit entry of one object; ``actor`` only when it is another than the caller."""
        who = actor or self.actor
        self.entries.append(
            AuditEntry(
                at=self.now,
                actor=who.name,
                actor_kind=who.kind,
                action=action,
                object_kind=kind,
                object_name=name,
                reason=reason,
                before=before,
                after=after,
                address=who.address,
                request_id=who.request_id,
                resource_version=self.revision,
            )
        )


@contextlib.contextmanager
def desired_change(actor: Actor, now: datetime, *, dry_run: bool = False) -> Iterator[Change]:
    """The transaction of a change of desired state. Nothing audited means nothing changed.

    A dry run does all of it, conflicts and constraints included, and then rolls back. Raises
    ``Busy`` when another change holds the revision for longer than the lock limit.
    """
    with _busy_when_locked(), transaction.atomic():
        head = Revision.objects.select_for_update().get(id=1)
        change = Change(actor, now, head.value + 1)
        yield change
        if dry_run:
            transaction.set_rollback(True)
        elif change.entries:
            head.value += 1
            head.save(update_fields=["value"])
            recompile(head.value, now)
            AuditEntry.objects.bulk_create(change.entries)
            desired_changed()


@contextlib.contextmanager
def recorded_change(actor: Actor, now: datetime) -> Iterator[Change]:
    """The transaction of a write that no gateway needs to hear of (credentials, people)."""
    with _busy_when_locked(), transaction.atomic():
        change = Change(actor, now, None)
        yield change
        AuditEntry.objects.bulk_create(change.entries)


@contextlib.contextmanager
def _busy_when_locked() -> Iterator[None]:
    try:
        yield
    except OperationalError as error:
        if isinstance(error.__cause__, LockNotAvailable | DeadlockDetected | QueryCanceled):
            raise Busy("Another change is being committed; try again.", retry_after_s=1) from error
        raise
