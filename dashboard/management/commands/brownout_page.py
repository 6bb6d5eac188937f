"""``manage.py brownout_page --from FILE --out FILE``: draw a brownout replay as one HTML file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from dashboard.charts_brownout import Unreadable, page


class Command(BaseCommand):
    """Reads what ``python -m gateway.brownout --json`` printed; needs no database."""

    help = "Draw the output of gateway.brownout --json as one HTML page."
    requires_system_checks: tuple[str, ...] = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Both files are required."""
        parser.add_argument("--from", dest="source", type=Path, required=True)
        parser.add_argument("--out", type=Path, required=True)

    def handle(self, *args: Any, **options: Any) -> None:
        """Read, draw, write."""
        source, out = options["source"], options["out"]
        try:
            run = json.loads(source.read_text(encoding="utf-8"))
            out.write_text(page(run), encoding="utf-8")
        except (OSError, UnicodeDecodeError, json.JSONDecodeError, Unreadable) as error:
            raise CommandError(f"{source}: {error}") from error
        self.stdout.write(f"wrote {out}")
