"""``manage.py seed_prices``: prices of the installed list and official exchange rates.

Invariant: idempotent; adds what is missing and changes nothing that is there.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand

from controlplane.actions.prices import seed


class Command(BaseCommand):
    """Seed the price book."""

    help = "Add prices (genai-prices, USD) and exchange rates (European Central Bank) not yet known"

    def handle(self, *args: Any, **options: Any) -> None:
        """Say what was added."""
        for line in seed(datetime.now(UTC)):
            self.stdout.write(f"added {line}")
