"""What people know of a provider that no gateway reports: where it says how it is.

Invariant: a status address is http or https, so that following it never runs anything here.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class Provider(models.Model):
    """The record of one provider. ``version`` counts its changes, for ``If-Match``."""

    name = models.CharField(max_length=200, unique=True)
    status_url = models.CharField(max_length=500, default="", blank=True)
    version = models.BigIntegerField(default=1)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    updated_by = models.CharField(max_length=200)

    class Meta:
        db_table = "provider"
        constraints = [
            models.CheckConstraint(condition=~Q(name=""), name="provider_named"),
            models.CheckConstraint(
                condition=Q(status_url="") | Q(status_url__regex=r"^https?://[^\s]+$"),
                name="provider_status_url_is_http",
            ),
        ]
