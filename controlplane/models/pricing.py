"""Prices and exchange rates: dated rows, never overwritten in meaning.

Invariant: amounts are exact decimals per million tokens in the currency quoted; a price or a rate
is valid from its date until the next row of the same key.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q

TOKEN_KINDS = ["input", "cached_read", "cache_write", "output", "request"]


class Price(models.Model):
    """One dated price of one token kind of a served model, at a service tier ('' = any)."""

    provider = models.CharField(max_length=200)
    model = models.CharField(max_length=200)
    tier = models.CharField(max_length=64, default="", blank=True)
    token_kind = models.CharField(max_length=16)
    currency = models.CharField(max_length=3)
    per_million = models.DecimalField(max_digits=24, decimal_places=12)
    valid_from = models.DateTimeField()
    source = models.CharField(max_length=400)
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=200)

    class Meta:
        db_table = "price"
        constraints = [
            models.UniqueConstraint(
                fields=["provider", "model", "tier", "token_kind", "valid_from"], name="price_once"
            ),
            models.CheckConstraint(
                condition=Q(token_kind__in=TOKEN_KINDS), name="price_token_kind_known"
            ),
            models.CheckConstraint(condition=Q(per_million__gte=0), name="price_not_negative"),
        ]


class FxRate(models.Model):
    """GBP for one unit of ``currency`` on ``day``, with its official source."""

    currency = models.CharField(max_length=3)
    day = models.DateField()
    gbp = models.DecimalField(max_digits=20, decimal_places=10)
    source = models.CharField(max_length=400)
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=200)

    class Meta:
        db_table = "fx_rate"
        constraints = [
            models.UniqueConstraint(fields=["currency", "day"], name="fx_rate_once"),
            models.CheckConstraint(condition=Q(gbp__gt=0), name="fx_rate_positive"),
        ]
