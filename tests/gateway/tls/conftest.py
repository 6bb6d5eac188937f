"""Every test here runs on both event loops: each has a TLS of its own, and gateways run on uvloop's
where it installs."""

import asyncio
from collections.abc import Callable

import pytest

from tests.certificates import Authority


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    uvloop = pytest.importorskip("uvloop")
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A private CA, and the file that a gateway is given to know it."""
    return Authority.in_folder(tmp_path_factory.mktemp("authority"))
