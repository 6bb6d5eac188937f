"""``manage.py migrate``: Django's, as the audit's owner where there is one; then the privileges.

Invariant: with ``DATABASE_OWNER_URL`` the role of ``DATABASE_URL`` never owns the audit, from the
first migration on; every run of this leaves the two roles divided as ``models.privileges`` says.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from django.core.management.commands import migrate
from django.db import connections, transaction

from controlplane.models.privileges import DivisionError, divide

OWNER = "owner"


class Command(migrate.Command):
    """Migrates as the owner by default."""

    def add_arguments(self, parser: CommandParser) -> None:
        """Django's, with another default for ``--database``."""
        super().add_arguments(parser)
        if OWNER in settings.DATABASES:
            parser.set_defaults(database=OWNER)

    def handle(self, *args: Any, **options: Any) -> None:
        """Migrate; then hand over what is not the audit's. Raises ``CommandError``."""
        super().handle(*args, **options)
        if options["database"] != OWNER or options["plan"] or options["check_unapplied"]:
            return
        runtime = settings.DATABASES["default"]
        with transaction.atomic(using=OWNER):
            connection = connections[OWNER]
            connection.ensure_connection()
            try:
                divide(connection.connection, str(runtime["USER"]), str(runtime["PASSWORD"]))
            except DivisionError as error:
                raise CommandError(str(error)) from error
