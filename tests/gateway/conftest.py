"""A worker's spool and its way to the control plane. A module brings its own ``double`` of that."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio

from gateway.config import ControlPlane as Settings
from gateway.contact import Contact
from gateway.outbox import Identity
from gateway.spool import Spool
from tests.gateway.control_plane import ControlPlane
from tests.gateway.fake_clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    """The clock of the spool and of whoever sends from it."""
    return FakeClock()


@pytest.fixture
def spool(tmp_path: Path, clock: FakeClock) -> Spool:
    """The spool of a new boot, in an empty folder."""
    return Spool(tmp_path, 0, Identity(uuid4(), "host/0", "demo"), clock)


@pytest_asyncio.fixture
async def contact(double: ControlPlane) -> AsyncIterator[Contact]:
    """Open to the module's double."""
    async with Contact(Settings(double.url, "the-token"), "demo") as open_contact:
        yield open_contact
