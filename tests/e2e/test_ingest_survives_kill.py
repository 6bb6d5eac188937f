"""Kill -9 the web process under load, again and again: what was acknowledged is stored, once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from asgiref.sync import sync_to_async
from django.conf import settings

from controlplane.local.ports import free_port
from tests.controlplane.ingest.batches import attempt, batch, encoded
from tests.controlplane.ingest.conftest import Sender, new_sender
from tests.embedded import TestPostgres

ROOT = Path(__file__).resolve().parents[2]
INSTANCES, BATCHES, EVENTS, KILLS = 4, 40, 5, 3
DEADLINE_SECONDS = 60


class Web:
    """One uvicorn process that can be killed and started again on its port."""

    def __init__(self, database_url: str, log: Path) -> None:
        self.port = free_port()
        self._log = log
        self._environment = os.environ | {
            "DATABASE_URL": database_url,
            "DJANGO_SETTINGS_MODULE": "controlplane.settings",
            "SWITCHGEAR_SECRET_KEY": "only-for-tests-" + "0" * 40,
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "uvicorn", "controlplane.asgi:application"]
        command += ["--port", str(self.port), "--log-level", "warning"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=self._environment, stdout=log, stderr=log
            )

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


async def deliver(
    session: aiohttp.ClientSession,
    url: str,
    token: str,
    sent: dict[str, Any],
    acked: asyncio.Queue[int],
) -> None:
    """Send one batch as the wire says: again and again until it is acknowledged."""
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    while True:
        try:
            async with session.post(
                f"{url}/api/v1/events", data=encoded(sent), headers=headers
            ) as answer:
                if answer.status == 200:
                    acked.put_nowait(sent["seq"])
                    return
                assert answer.status == 503, await answer.text()
        except (aiohttp.ClientError, ConnectionError):
            pass
        await asyncio.sleep(0.05)


@pytest.mark.e2e
async def test_acknowledged_is_stored_once(
    hot_pool: None, postgres: TestPostgres, tmp_path: Path
) -> None:
    sender: Sender = await sync_to_async(new_sender)()
    web = Web(postgres.dsn(str(settings.DATABASES["default"]["NAME"])), tmp_path / "web.log")
    acked: asyncio.Queue[int] = asyncio.Queue()

    async def instance(number: int, session: aiohttp.ClientSession) -> None:
        boot = uuid.UUID(int=number + 1)
        for seq in range(1, BATCHES + 1):
            events = [attempt() for _ in range(EVENTS)]
            sent = batch(*events, seq=seq, boot=boot, slot=f"host/{number}")
            await deliver(session, web.url, sender.token, sent, acked)

    async def killer() -> None:
        for _ in range(KILLS):
            for _ in range(INSTANCES * BATCHES // (KILLS + 1)):
                await acked.get()
            web.kill()
            web.start()

    web.start()
    try:
        async with asyncio.timeout(DEADLINE_SECONDS), aiohttp.ClientSession() as session:
            work = [instance(number, session) for number in range(INSTANCES)]
            await asyncio.gather(killer(), *work)
    finally:
        web.kill()
    total = INSTANCES * BATCHES * EVENTS
    assert await sender.count("attempt") == total
    assert await sender.rows("rollup_minute", "sum(attempts)") == [(total,)]
    assert await sender.rows("receipt", "count(*), sum(stored), sum(duplicates)") == [
        (INSTANCES * BATCHES, total, 0)
    ]
    assert (
        await sender.rows("instance", "contiguous_seq, highest_seq")
        == [(BATCHES, BATCHES)] * INSTANCES
    )
