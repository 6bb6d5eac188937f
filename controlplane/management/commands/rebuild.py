"""``manage.py rebuild``: recompute minutes, tasks and breakers from the raw events of a range."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection

from controlplane.ingest.rebuild import NothingLeft, rebuild


class Command(BaseCommand):
    """Says what it did, and what it could not do because the raw events are gone."""

    help = "Recompute the minute rollup, tasks and breaker states from raw events."

    def add_arguments(self, parser: CommandParser) -> None:
        """Range options; times without a zone are UTC."""
        parser.add_argument("--from", dest="start", type=_time, help="default: 24 hours ago")
        parser.add_argument("--to", dest="end", type=_time, help="default: now")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run and report."""
        now = datetime.now(UTC)
        start = options["start"] or now - timedelta(hours=24)
        end = options["end"] or now
        if start >= end:
            raise CommandError("--from must be before --to.")
        retention = timedelta(days=settings.RAW_RETENTION_DAYS)
        connection.ensure_connection()
        try:
            done = rebuild(connection.connection, start, end, now=now, retention=retention)
        except NothingLeft as gone:
            raise CommandError(f"Nothing can be rebuilt of that range: {gone}.") from gone
        if done.cut:
            self.stdout.write(
                f"The first {done.cut} of the range cannot be rebuilt: its raw events are gone."
                " What is stored of it was left as it is."
            )
        self.stdout.write(
            f"Rebuilt {done.start:%Y-%m-%d %H:%M} to {done.end:%Y-%m-%d %H:%M} UTC:"
            f" {done.minutes} minutes, {done.tasks} tasks, {done.breakers} breakers."
        )


def _time(text: str) -> datetime:
    try:
        read = datetime.fromisoformat(text)
    except ValueError as error:
        raise CommandError(f"{text!r} is not a time: write 2026-11-30T03:00.") from error
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC)
