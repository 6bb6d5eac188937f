"""Overrides that wait for a second person (two-person rule).

Invariant: a row here is in no snapshot and in force nowhere, whatever becomes of it; what was
approved is an ``Override`` of the same name. Whether it still waits is computed from
``approve_before`` each time, never from a flag that a worker would have to set.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class PendingOverride(models.Model):
    """What somebody asked for: for ``lasts_seconds`` from the approval, or until ``expires_at``."""

    name = models.CharField(max_length=200, unique=True)
    mode = models.CharField(max_length=16)
    reason = models.CharField(max_length=1000)
    ticket = models.CharField(max_length=200, default="", blank=True)
    gateway = models.CharField(max_length=200, default="", blank=True)
    selector = models.CharField(max_length=400, default="", blank=True)
    provider = models.CharField(max_length=200, default="", blank=True)
    model = models.CharField(max_length=200, default="", blank=True)
    region = models.CharField(max_length=200, default="", blank=True)
    lasts_seconds = models.FloatField(null=True)
    expires_at = models.DateTimeField(null=True)
    allow_last_healthy = models.BooleanField(default=False)
    replace = models.CharField(max_length=200, default="", blank=True)
    requested_at = models.DateTimeField()
    requested_by = models.CharField(max_length=200)
    approve_before = models.DateTimeField()
    decided_at = models.DateTimeField(null=True)
    decided_by = models.CharField(max_length=200, default="", blank=True)
    decision = models.CharField(max_length=16, default="", blank=True)

    class Meta:
        db_table = "pending_override"
        constraints = [
            models.CheckConstraint(condition=~Q(reason=""), name="pending_has_a_reason"),
            models.CheckConstraint(
                condition=Q(lasts_seconds=None, expires_at__isnull=False)
                | Q(lasts_seconds__isnull=False, expires_at=None),
                name="pending_has_one_end",
            ),
            # A second person is another one: no door and no bug can approve its own request.
            models.CheckConstraint(
                condition=~Q(decision="Approved") | ~Q(decided_by=models.F("requested_by")),
                name="pending_approved_by_another",
            ),
        ]
