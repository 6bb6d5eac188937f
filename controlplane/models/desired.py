"""Desired state: overrides, policies, budgets, routes, and what was compiled of them.

Invariant: every change of a row here takes its ``resource_version`` from ``Revision``, whose one
row is locked until commit, so revisions are in the order of commits. "Any" is the empty string.
"""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import F, Q

from controlplane.models.fleet import Gateway


class Revision(models.Model):
    """The one-row counter of desired-state changes, and the database's epoch."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    value = models.BigIntegerField(default=0)
    epoch = models.UUIDField(default=uuid.uuid4)

    class Meta:
        db_table = "revision"
        constraints = [models.CheckConstraint(condition=Q(id=1), name="revision_one_row")]


class Selecting(models.Model):
    """Which gateways and circuits an object is about (design 4.5)."""

    uid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    gateway = models.CharField(max_length=200, default="", blank=True)
    selector = models.CharField(max_length=400, default="", blank=True)
    provider = models.CharField(max_length=200, default="", blank=True)
    model = models.CharField(max_length=200, default="", blank=True)
    region = models.CharField(max_length=200, default="", blank=True)
    generation = models.BigIntegerField(default=1)
    resource_version = models.BigIntegerField()
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=200)
    # When the present generation was recorded: what "enforced after n ms" is measured from.
    updated_at = models.DateTimeField()
    updated_by = models.CharField(max_length=200)

    class Meta:
        abstract = True


class Override(Selecting):
    """A person's hand on circuits. Whether it is in force is computed from ``expires_at``."""

    name = models.CharField(max_length=200, unique=True)
    mode = models.CharField(max_length=16)
    reason = models.CharField(max_length=1000)
    ticket = models.CharField(max_length=200, default="", blank=True)
    expires_at = models.DateTimeField()
    allow_last_healthy = models.BooleanField(default=False)
    ended_at = models.DateTimeField(null=True)
    ended_by = models.CharField(max_length=200, default="", blank=True)
    end_cause = models.CharField(max_length=32, default="", blank=True)
    # Fleet-wide and past the second person: told on every page until another has seen it.
    break_glass = models.BooleanField(default=False, db_default=False)
    acknowledged_at = models.DateTimeField(null=True)
    acknowledged_by = models.CharField(max_length=200, default="", db_default="", blank=True)

    class Meta:
        db_table = "override"
        constraints = [
            models.UniqueConstraint(
                fields=["gateway", "selector", "provider", "model", "region"],
                condition=Q(ended_at=None),
                name="override_one_active_a_match",
            ),
            models.CheckConstraint(
                condition=Q(mode__in=["ForceOpen", "ForceClosed", "ObserveOnly"]),
                name="override_mode_known",
            ),
            models.CheckConstraint(condition=~Q(reason=""), name="override_has_a_reason"),
            models.CheckConstraint(
                condition=Q(expires_at__gt=F("created_at")), name="override_ends_after_it_began"
            ),
            models.CheckConstraint(
                condition=Q(gateway="") | Q(selector=""), name="override_gateway_or_selector"
            ),
        ]
        indexes = [
            # The expiry task and every compile ask for the rows that have not ended.
            models.Index(fields=["expires_at"], condition=Q(ended_at=None), name="override_active"),
        ]


class Probe(Selecting):
    """A person's wish that open breakers try again now. It is a command, not a state.

    It stands in the snapshot until ``expires_at``, so that an instance which is away for a moment
    still hears it, and does nothing a second time.
    """

    name = models.CharField(max_length=200, unique=True)
    reason = models.CharField(max_length=1000)
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "probe"
        constraints = [
            models.CheckConstraint(condition=~Q(reason=""), name="probe_has_a_reason"),
            models.CheckConstraint(
                condition=Q(expires_at__gt=F("created_at")), name="probe_ends_after_it_began"
            ),
        ]
        indexes = [
            models.Index(fields=["expires_at"], condition=Q(ended_at=None), name="probe_active"),
        ]


class BreakerPolicy(Selecting):
    """Thresholds for the circuits that it matches. ``spec`` is ``wire.desired.Breaker``.

    ``managers``: who wrote each field of a setting last, for the next ``apply`` (design 7).
    """

    name = models.CharField(max_length=200, unique=True)
    spec = models.JSONField(default=dict)
    managers = models.JSONField(default=dict)

    class Meta:
        db_table = "breaker_policy"


class RetryBudget(Selecting):
    """Retry budget of a level. ``spec`` is ``wire.desired.Bucket``."""

    name = models.CharField(max_length=200, unique=True)
    level = models.CharField(max_length=16)
    tenant = models.CharField(max_length=200, default="", blank=True)
    spec = models.JSONField(default=dict)
    managers = models.JSONField(default=dict)

    class Meta:
        db_table = "retry_budget"
        constraints = [
            models.CheckConstraint(
                condition=Q(level__in=["system", "tenant", "circuit"]),
                name="retry_budget_level_known",
            ),
        ]


class Route(Selecting):
    """A model name that callers use. ``spec``: ``wire.desired.RouteItem`` without identity."""

    name = models.CharField(max_length=200, unique=True)
    spec = models.JSONField(default=dict)
    managers = models.JSONField(default=dict)

    class Meta:
        db_table = "route"


class GatewayConfig(models.Model):
    """The compiled snapshot of one gateway. ``spec`` holds the canonical bytes that were hashed.

    ``may_shrink``: a person has said that this generation is meant to hold so little.
    """

    gateway = models.OneToOneField(
        Gateway, on_delete=models.CASCADE, primary_key=True, related_name="config"
    )
    generation = models.BigIntegerField()
    hash = models.CharField(max_length=64)
    revision = models.BigIntegerField()
    items = models.IntegerField()
    spec = models.TextField()
    may_shrink = models.BooleanField(default=False)
    compiled_at = models.DateTimeField()

    class Meta:
        db_table = "gateway_config"


class ConfigGeneration(models.Model):
    """When each generation of a gateway's snapshot was compiled, and from which revision.

    An object's change reached a gateway with the first generation whose ``revision`` is not below
    the object's ``resource_version``.
    """

    gateway = models.ForeignKey(Gateway, on_delete=models.CASCADE, related_name="generations")
    generation = models.BigIntegerField()
    hash = models.CharField(max_length=64)
    revision = models.BigIntegerField()
    compiled_at = models.DateTimeField()

    class Meta:
        db_table = "config_generation"
        constraints = [
            models.UniqueConstraint(
                fields=["gateway", "generation"], name="config_generation_once"
            ),
        ]
