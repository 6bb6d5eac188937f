"""Gateways, their credentials, and their running instances.

Invariant: an instance is one boot of one slot; it is never reused, and its last report stays
readable after it fell silent, with the time of its last word.
"""

from __future__ import annotations

from django.db import models


class Gateway(models.Model):
    """A named gateway with labels that selectors match."""

    name = models.CharField(max_length=200, unique=True)
    labels = models.JSONField(default=dict)
    resource_version = models.BigIntegerField()
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=200)

    class Meta:
        db_table = "gateway"
        constraints = [
            models.CheckConstraint(condition=~models.Q(name=""), name="gateway_named"),
        ]

    def __str__(self) -> str:
        return str(self.name)


class GatewayToken(models.Model):
    """A credential of one gateway. Rotation overlaps: several may be valid at once."""

    gateway = models.ForeignKey(Gateway, on_delete=models.CASCADE, related_name="tokens")
    sha256 = models.BinaryField(max_length=32, unique=True)
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=200)
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "gateway_token"


class Instance(models.Model):
    """One boot of one slot, with its newest report.

    ``status_seq`` orders reports; ``contiguous_seq`` is the highest batch seq without a hole and
    ``highest_seq`` the highest seen; what is missing between them is in ``MissingBatches``.
    """

    gateway = models.ForeignKey(Gateway, on_delete=models.CASCADE, related_name="instances")
    boot_id = models.UUIDField()
    slot = models.CharField(max_length=200)
    version = models.CharField(max_length=200, default="")
    started_at = models.DateTimeField(null=True)
    first_seen_at = models.DateTimeField()
    last_seen_at = models.DateTimeField()
    goodbye_at = models.DateTimeField(null=True)
    replaced_at = models.DateTimeField(null=True)
    status_seq = models.BigIntegerField(default=0)
    epoch = models.CharField(max_length=200, default="")
    received_generation = models.BigIntegerField(default=0)
    applied_generation = models.BigIntegerField(default=0)
    applied_hash = models.CharField(max_length=200, default="")
    applied_at = models.DateTimeField(null=True)
    # What a restart without us would begin with; NULL from those who do not say.
    checkpointed_generation = models.BigIntegerField(null=True)
    # A snapshot that this instance refused as a whole, and why. 0: none.
    refused_generation = models.BigIntegerField(db_default=0)
    refused_reason = models.CharField(max_length=1000, db_default="", blank=True)
    config_source = models.CharField(max_length=16, default="")
    items = models.JSONField(default=list)
    spool = models.JSONField(default=dict)
    clock = models.JSONField(default=dict)
    capabilities = models.JSONField(default=list)
    contiguous_seq = models.BigIntegerField(default=0)
    highest_seq = models.BigIntegerField(default=0)

    class Meta:
        db_table = "instance"
        constraints = [
            models.UniqueConstraint(fields=["gateway", "boot_id"], name="instance_one_row_a_boot"),
            # One current boot in a slot; a new boot replaces the old in its own transaction.
            models.UniqueConstraint(
                fields=["gateway", "slot"],
                condition=models.Q(replaced_at=None, goodbye_at=None),
                name="instance_one_current_in_a_slot",
            ),
        ]

    @property
    def lost_batches(self) -> int:
        """Batches that have not come although later ones have, for longer than any wait."""
        missing: MissingBatches | None = getattr(self, "missing", None)
        return missing.lost if missing else 0

    @property
    def awaited_batches(self) -> int:
        """Batches that have not come yet although later ones have."""
        missing: MissingBatches | None = getattr(self, "missing", None)
        return missing.awaited if missing else 0


class MissingBatches(models.Model):
    """What lacks in an instance's numbers (a view); no row for one that lacks nothing."""

    instance = models.OneToOneField(
        Instance, on_delete=models.DO_NOTHING, primary_key=True, related_name="missing"
    )
    lost = models.BigIntegerField()
    awaited = models.BigIntegerField()

    class Meta:
        db_table = "missing_batches"
        managed = False
