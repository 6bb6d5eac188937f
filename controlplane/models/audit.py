"""Who did what, when and why, with the object before and after.

Invariant: append-only; a trigger refuses UPDATE, DELETE and TRUNCATE (migration 0002), and the role
that runs the product has no privilege for them (``models.privileges``).
"""

from __future__ import annotations

from django.db import models


class AuditEntry(models.Model):
    """One write by a person, a service token, or the control plane itself (``system``)."""

    at = models.DateTimeField()
    actor = models.CharField(max_length=200)
    actor_kind = models.CharField(max_length=16)
    action = models.CharField(max_length=64)
    object_kind = models.CharField(max_length=64)
    object_name = models.CharField(max_length=600)
    reason = models.CharField(max_length=1000, default="", blank=True)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    address = models.CharField(max_length=64, default="", blank=True)
    request_id = models.CharField(max_length=64, default="", blank=True)
    resource_version = models.BigIntegerField(null=True)

    class Meta:
        db_table = "audit_entry"
        indexes = [
            models.Index(fields=["-at"], name="audit_newest"),
            models.Index(fields=["object_kind", "object_name", "-at"], name="audit_of_object"),
        ]


class AuditLink(models.Model):
    """One link of the chain over the audit; a trigger makes it with its entry (migration 0007).

    ``entry_id`` is a number and no foreign key: a link must outlive an entry that is taken out.
    """

    seq = models.BigIntegerField(primary_key=True)
    entry_id = models.BigIntegerField(unique=True)
    hash = models.BinaryField(max_length=32)

    class Meta:
        db_table = "audit_link"
