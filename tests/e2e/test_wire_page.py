"""The commands of docs/wire.md do what the page says, when they are copied as they stand."""

import json
import os
import re
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connection

from controlplane.actions import tokens
from controlplane.actions.actor import SYSTEM
from controlplane.actions.gateways import create
from tests.dashboard.server import WebProcess
from tests.embedded import TestPostgres

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        not (shutil.which("curl") and shutil.which("bash") and Path("/proc/sys/kernel").is_dir()),
        reason="the page's commands are for a Linux shell with curl",
    ),
]


def answers(script: str, folder: Path, environ: dict[str, str]) -> list[Any]:
    """The JSON documents that a script's commands print, one after the other."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found, at, decoder = [], 0, json.JSONDecoder()
    while at < len(done.stdout.rstrip()):
        document, at = decoder.raw_decode(done.stdout, at)
        found.append(document)
        at += len(done.stdout[at:]) - len(done.stdout[at:].lstrip())
    return found


def test_the_commands_of_the_page(
    transactional_db: None, postgres: TestPostgres, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    gateway = create(actor=SYSTEM, name="by-hand", now=now)
    person = tokens.issue(actor=SYSTEM, name="reader", role="operator", now=now)
    scripts = re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs/wire.md").read_text(), re.S | re.M)
    assert len(scripts) == 2
    web = WebProcess(postgres.dsn(str(settings.DATABASES["default"]["NAME"])), tmp_path)
    web.start()
    environ = {"URL": web.url, "TOKEN": gateway.token, "PERSON": person.token}
    try:
        first, repeat = answers(scripts[0], tmp_path, environ)
        telemetry, letters, series = answers(scripts[1], tmp_path, environ)
    finally:
        web.kill()
        connection.close()
    assert first.pop("server_time") <= repeat.pop("server_time")
    assert first == repeat
    assert (first["stored"], [u["index"] for u in first["unread"]]) == (1, [1])
    (told,) = telemetry["items"]
    assert (told["slot"], told["deadLetters"], told["late"]) == ("by-hand/0", 1, 0)
    assert [letter["index"] for letter in letters["items"]] == [1]
    assert [step["attempts"] for step in series["items"]] == [1]
