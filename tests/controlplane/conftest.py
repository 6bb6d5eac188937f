"""Fixtures of the control plane's tests: the hot paths as a web process runs them."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from controlplane.actions import price_list
from controlplane.api.hot import lifespan
from controlplane.api.hot.auth import forget_tokens
from controlplane.models.pool import close_pool
from controlplane.models.registry import forget_circuits
from controlplane.notify import Hub, hub, stop_notifying
from controlplane.watch.heads import heads


@pytest.fixture
def few_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A price list of the real one's first rows, for tests that install and are about no price."""
    first = price_list.listed()[:40]
    monkeypatch.setattr(price_list, "listed", lambda: first)


@pytest.fixture
async def hot_pool(transactional_db: None) -> AsyncIterator[None]:
    """The hot paths' pool on the test database, closed before the database is emptied."""
    await close_pool()
    forget_tokens()
    forget_circuits()
    # An event belongs to the loop in which it was first waited for: a test's own.
    lifespan.stopping = asyncio.Event()
    yield
    await stop_notifying()
    await close_pool()


@pytest.fixture
async def listening(hot_pool: None) -> AsyncIterator[Hub]:
    """The process's hub, listening."""
    stop = await hub.start()
    yield hub
    await stop()


@pytest.fixture
async def following(listening: Hub) -> AsyncIterator[None]:
    """The hub and the version poll: what the lifespan starts for watches."""
    stop = await heads.start()
    yield
    await stop()
