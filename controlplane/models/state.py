"""Observed state: circuits, and what each instance's breakers and buckets were when last heard.

Invariant: a row only moves forward: a transition number, or a report's seq, that is not higher
changes nothing.
"""

from __future__ import annotations

from django.db import models

from controlplane.models.fleet import Gateway, Instance

STATES = ["Closed", "Open", "HalfOpen"]
MODES = ["Auto", "ForceOpen", "ForceClosed", "ObserveOnly"]


class Circuit(models.Model):
    """A target known to the control plane. ``region`` may be empty."""

    provider = models.CharField(max_length=200)
    model = models.CharField(max_length=200)
    region = models.CharField(max_length=200, default="", blank=True)
    first_seen_at = models.DateTimeField()

    class Meta:
        db_table = "circuit"
        constraints = [
            models.UniqueConstraint(fields=["provider", "model", "region"], name="circuit_once"),
        ]


class CircuitState(models.Model):
    """One breaker of one instance, as last reported."""

    gateway = models.ForeignKey(Gateway, on_delete=models.CASCADE, related_name="+")
    instance = models.ForeignKey(Instance, on_delete=models.CASCADE, related_name="circuit_states")
    circuit = models.ForeignKey(Circuit, on_delete=models.CASCADE, related_name="states")
    number = models.BigIntegerField(default=0)
    state = models.CharField(max_length=16)
    since = models.DateTimeField()
    cause = models.CharField(max_length=200, default="")
    counters = models.JSONField(default=dict)
    next_probe_at = models.DateTimeField(null=True)
    mode = models.CharField(max_length=16, default="Auto")
    override_uid = models.CharField(max_length=200, default="", blank=True)
    would_be = models.CharField(max_length=16, default="", blank=True)
    ramp_percent = models.SmallIntegerField(default=100)
    stuck = models.BooleanField(default=False)
    keys_ready = models.IntegerField(null=True)
    keys_total = models.IntegerField(null=True)
    keys_note = models.CharField(max_length=200, default="", blank=True)
    reported_at = models.DateTimeField()

    class Meta:
        db_table = "circuit_state"
        constraints = [
            models.UniqueConstraint(
                fields=["gateway", "instance", "circuit"], name="circuit_state_once"
            ),
            models.CheckConstraint(
                condition=models.Q(state__in=STATES), name="circuit_state_known"
            ),
            models.CheckConstraint(
                condition=models.Q(mode__in=MODES), name="circuit_state_mode_known"
            ),
        ]


class BudgetState(models.Model):
    """One bucket of one instance, as last reported."""

    gateway = models.ForeignKey(Gateway, on_delete=models.CASCADE, related_name="+")
    instance = models.ForeignKey(Instance, on_delete=models.CASCADE, related_name="budget_states")
    scope = models.CharField(max_length=450)
    balance = models.BigIntegerField()
    earned = models.BigIntegerField(default=0)
    spent = models.BigIntegerField(default=0)
    refused = models.BigIntegerField(default=0)
    window_s = models.FloatField(default=60)
    reported_at = models.DateTimeField()

    class Meta:
        db_table = "budget_state"
        constraints = [
            models.UniqueConstraint(
                fields=["gateway", "instance", "scope"], name="budget_state_once"
            ),
        ]


class Delivery(models.Model):
    """What became of one generation of one item of desired state at one instance.

    All times are the control plane's own (the arrival of the report that said so), so that no
    clock of a gateway matters; ``applied_at`` and ``first_effect_at`` are the instance's word.
    Kept after the item has left the snapshot: it is the record that it was enforced.
    """

    gateway = models.ForeignKey(Gateway, on_delete=models.CASCADE, related_name="+")
    instance = models.ForeignKey(Instance, on_delete=models.CASCADE, related_name="deliveries")
    kind = models.CharField(max_length=16)
    name = models.CharField(max_length=200)
    uid = models.CharField(max_length=200)
    generation = models.BigIntegerField()
    delivered_at = models.DateTimeField()
    acknowledged_at = models.DateTimeField(null=True)
    verdict = models.CharField(max_length=16, default="", blank=True)
    reason = models.CharField(max_length=200, default="", blank=True)
    message = models.CharField(max_length=1000, default="", blank=True)
    field_path = models.CharField(max_length=200, default="", blank=True)
    applied_at = models.DateTimeField(null=True)
    first_effect_at = models.DateTimeField(null=True)
    lifted_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "delivery"
        constraints = [
            models.UniqueConstraint(
                fields=["gateway", "instance", "uid", "generation"], name="delivery_once"
            ),
        ]
        indexes = [models.Index(fields=["uid", "generation"], name="delivery_of_item")]


class LocalOverride(models.Model):
    """An override that somebody made on a gateway's host, as that gateway reported it.

    It is the gateway's word about itself: the control plane shows and audits it, and has no say.
    """

    gateway = models.ForeignKey(Gateway, on_delete=models.CASCADE, related_name="local_overrides")
    uid = models.CharField(max_length=200)
    host = models.CharField(max_length=200)
    mode = models.CharField(max_length=16)
    provider = models.CharField(max_length=200, default="", blank=True)
    model = models.CharField(max_length=200, default="", blank=True)
    region = models.CharField(max_length=200, default="", blank=True)
    reason = models.CharField(max_length=1000)
    made_by = models.CharField(max_length=200)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    first_heard_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    end_cause = models.CharField(max_length=200, default="", blank=True)

    class Meta:
        db_table = "local_override"
        constraints = [
            models.UniqueConstraint(fields=["gateway", "uid"], name="local_override_once"),
        ]
        indexes = [
            models.Index(
                fields=["expires_at"], condition=models.Q(ended_at=None), name="local_active"
            ),
        ]
