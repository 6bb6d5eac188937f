"""``manage.py create_token NAME --role admin``: a service token, by whoever holds the database.

The first admin's token has to come from somewhere: the API gives tokens to admins alone. The
secret is printed once, alone on standard output, and is nowhere else; the audit has the rest.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.actions import tokens
from controlplane.actions.actor import SYSTEM
from controlplane.errors import Conflict, InvalidInput
from controlplane.models import Role


class Command(BaseCommand):
    """Issue a service token, as ``switchgear create token`` does for an admin."""

    help = "Make a service token; its secret alone is printed, once."

    def add_arguments(self, parser: CommandParser) -> None:
        """A name, a role, and an end in days."""
        parser.add_argument("name")
        parser.add_argument("--role", choices=Role.values, required=True)
        parser.add_argument("--days", type=int, help="it ends by itself after so many days")

    def handle(self, *args: Any, **options: Any) -> None:
        """Issue and print."""
        now = datetime.now(UTC)
        try:
            ends = None if options["days"] is None else now + timedelta(days=options["days"])
            issued = tokens.issue(
                actor=SYSTEM, name=options["name"], role=options["role"], now=now, expires_at=ends
            )
        except OverflowError as error:
            raise CommandError(f"--days: {options['days']} is too many") from error
        except (Conflict, InvalidInput) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(issued.token)
