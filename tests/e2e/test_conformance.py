"""The control plane holds what the wire's page promises, by the kit that anybody may run."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings

from controlplane.actions.actor import SYSTEM
from controlplane.actions.gateways import create
from controlplane.models import Instance
from tests.dashboard.server import WebProcess
from tests.embedded import TestPostgres

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway.conformance", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.e2e
async def test_our_control_plane_conforms(
    hot_pool: None, postgres: TestPostgres, tmp_path: Path
) -> None:
    made = await sync_to_async(create)(actor=SYSTEM, name="checked", now=datetime.now(UTC))
    web = WebProcess(postgres.dsn(str(settings.DATABASES["default"]["NAME"])), tmp_path)
    try:
        await sync_to_async(web.start)()
        done = await sync_to_async(run)(web.url, made.token, "--name", "checked")
        wrong = await sync_to_async(run)(web.url, "not-a-token", "--name", "checked")
    finally:
        web.kill()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAIL" not in done.stdout
    assert wrong.returncode == 1
    assert "FAIL" in wrong.stdout
    sent = Instance.objects.filter(gateway__name="checked")
    assert await sent.acount() > 5
    assert not [one.slot async for one in sent.filter(goodbye_at=None)], "they stay on the wall"


def test_nobody_there_is_said() -> None:
    done = run("http://127.0.0.1:9", "token")
    assert done.returncode == 2
    assert "cannot be reached" in done.stderr
