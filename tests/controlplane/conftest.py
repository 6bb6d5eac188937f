"""Fixtures of the control plane's tests: the hot paths' pool and the hub, closed at the end."""

from collections.abc import AsyncIterator

import pytest

from controlplane.models.pool import close_pool
from controlplane.notify import Hub, hub


@pytest.fixture
async def hot_pool(transactional_db: None) -> AsyncIterator[None]:
    """The hot paths' pool on the test database, closed before the database is emptied."""
    await close_pool()
    yield
    await close_pool()


@pytest.fixture
async def listening(hot_pool: None) -> AsyncIterator[Hub]:
    """The process's hub, listening."""
    stop = await hub.start()
    yield hub
    await stop()
