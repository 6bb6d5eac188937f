"""Who may do what: people with one role each, and service tokens with a role and an end.

Invariant: a role is a rank; viewer < operator < admin, and each may do all that a lower one may.
"""

from __future__ import annotations

from django.contrib.auth.models import AbstractUser
from django.db import models

from controlplane.models.choices import TextChoices


class Role(TextChoices):
    """The three roles of design 7."""

    VIEWER = "viewer", "viewer"
    OPERATOR = "operator", "operator"
    ADMIN = "admin", "admin"

    def includes(self, other: Role) -> bool:
        """True when this role may do all that ``other`` may."""
        ranks = list(Role)
        return ranks.index(self) >= ranks.index(other)


class Person(AbstractUser):
    """Somebody who logs in. ``zone`` is the person's time zone for the dashboard."""

    role = models.CharField(max_length=16, choices=Role.choices, default=Role.VIEWER)
    zone = models.CharField(max_length=64, default="Europe/London")

    class Meta:
        db_table = "person"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(role__in=[r.value for r in Role]), name="person_role_known"
            ),
        ]


class ServiceToken(models.Model):
    """A machine's way in. Only the SHA-256 of the secret is kept."""

    name = models.CharField(max_length=200, unique=True)
    role = models.CharField(max_length=16, choices=Role.choices)
    sha256 = models.BinaryField(max_length=32, unique=True)
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=200)
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "service_token"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(role__in=[r.value for r in Role]),
                name="service_token_role_known",
            ),
        ]


class SignInTries(models.Model):
    """Failed log-ins of one bucket (an account, an address, a known browser) in its window."""

    bucket = models.CharField(max_length=300, primary_key=True)
    tries = models.IntegerField()
    window_began_at = models.DateTimeField()

    class Meta:
        db_table = "sign_in_tries"
