"""Gateways whose door is open, and no events but their own: reports count whatever there is."""

import pytest
from django.db import connection

from tests.controlplane.ingest.conftest import make_sender, sender

__all__ = ["make_sender", "no_events", "sender"]


@pytest.fixture(autouse=True)
def no_events(transactional_db: None) -> None:
    """Empty the event tables, which Django does not know and so never empties."""
    with connection.cursor() as cursor:
        cursor.execute(
            "TRUNCATE attempt, refusal, outcome, transition, task, receipt, rollup_dirty,"
            " rollup_hour, rollup_hour_tenant, rollup_hour_split, rollup_hour_rate"
        )
