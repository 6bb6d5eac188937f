"""Answers kept for a repeated request: the same ``Idempotency-Key`` is done once.

Invariant: an answer is stored in the transaction of the write that it answers, so there is never
one without the other.
"""

from __future__ import annotations

from django.db import models


class IdempotentAnswer(models.Model):
    """What was answered to an actor's request with that key; kept for 24 hours."""

    actor = models.CharField(max_length=200)
    key = models.CharField(max_length=200)
    request_sha256 = models.BinaryField(max_length=32)
    status = models.SmallIntegerField(default=0)
    body = models.JSONField(null=True)
    created_at = models.DateTimeField()

    class Meta:
        db_table = "idempotent_answer"
        constraints = [
            models.UniqueConstraint(fields=["actor", "key"], name="idempotent_answer_once"),
        ]
        indexes = [models.Index(fields=["created_at"], name="idempotent_answer_by_age")]
