"""Gateways whose door is open, and no events but their own: reports count whatever there is."""

import pytest

from tests.controlplane.ingest.conftest import make_sender, sender
from tests.telemetry import forget_telemetry

__all__ = ["make_sender", "no_events", "sender"]


@pytest.fixture(autouse=True)
def no_events(transactional_db: None) -> None:
    """Start without events, and without what earlier tests' events were derived to."""
    forget_telemetry()
