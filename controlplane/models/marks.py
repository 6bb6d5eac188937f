"""What people write beside the figures: marks on the time axis, and who has the incident.

Invariant: at most one claim is open; whether it still stands is always computed from
``expires_at``, so nobody holds an incident in their sleep.
"""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import F, Q


class Annotation(models.Model):
    """One mark: something happened ``at`` that the telemetry does not say."""

    uid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    at = models.DateTimeField()
    text = models.CharField(max_length=200)
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=200)

    class Meta:
        db_table = "annotation"
        indexes = [models.Index(fields=["at"], name="annotation_by_time")]
        constraints = [models.CheckConstraint(condition=~Q(text=""), name="annotation_has_a_text")]


class Claim(models.Model):
    """Somebody has the incident, until they give it up, another takes it, or its time passes."""

    holder = models.CharField(max_length=200)
    note = models.CharField(max_length=200, default="", blank=True)
    claimed_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "claim"
        constraints = [
            models.UniqueConstraint(
                models.Value(1), condition=Q(ended_at=None), name="claim_one_open"
            ),
            models.CheckConstraint(
                condition=Q(expires_at__gt=F("claimed_at")), name="claim_ends_after_it_began"
            ),
        ]
