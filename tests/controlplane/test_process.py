"""A real web process: a change made over HTTP reaches open streams, and SIGTERM ends them all."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.db import connection

from controlplane.actions.bootstrap import Secrets, bootstrap
from controlplane.local.ports import free_port
from tests import builders
from tests.embedded import TestPostgres

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]

CHECKOUT = Path(__file__).resolve().parents[2]
SECRETS = Secrets("admin", "a-long-password-1", "sgs_op", "sgs_view", "demo", "sgg_demo")


class Web:
    """The server of ``make up``, on a free port."""

    def __init__(self, url: str, var: Path) -> None:
        self.port = free_port()
        environment = os.environ | {
            "DATABASE_URL": url,
            "DJANGO_SETTINGS_MODULE": "controlplane.settings",
            "SWITCHGEAR_SECRET_KEY": "only-for-tests-" + "0" * 40,
            "SWITCHGEAR_VAR": str(var),
            "SWITCHGEAR_PORT": str(self.port),
        }
        options = ["--host", "127.0.0.1", "--port", str(self.port)]
        options += ["--timeout-graceful-shutdown", "3", "--no-access-log"]
        self.log = (var / "web.log").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "controlplane.asgi:application", *options],
            cwd=CHECKOUT,
            env=environment,
            stdout=self.log,
            stderr=self.log,
        )
        deadline = time.monotonic() + 60
        while not self._answers():
            assert self.process.poll() is None, "the server ended"
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            return self.call("GET", "/readyz", "")[0] == 200
        except OSError:
            return False

    def call(self, method: str, path: str, token: str, body: Any = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request(method, path, json.dumps(body) if body else None, headers)
        answer = connection.getresponse()
        document = json.loads(answer.read())
        connection.close()
        return answer.status, document

    def stream(self) -> socket.socket:
        opened = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        opened.sendall(
            b"GET /api/v1/gateways/demo/config?watch=1 HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Authorization: Bearer sgg_demo\r\n\r\n"
        )
        return opened

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        self.log.close()


def read_until(stream: socket.socket, mark: bytes) -> bytes:
    got = b""
    while mark not in got:
        part = stream.recv(65536)
        assert part, f"the stream ended before {mark!r}"
        got += part
    return got


def ends(stream: socket.socket) -> bool:
    try:
        while stream.recv(65536):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


@pytest.fixture
def web(postgres: TestPostgres, tmp_path: Path) -> Iterator[Web]:
    bootstrap(SECRETS, fresh=True, now=builders.now())
    builders.circuit("openai", "gpt-4o", "")
    name = settings.DATABASES["default"]["NAME"]
    assert urlsplit(postgres.dsn(name)).path == f"/{name}"
    server = Web(postgres.dsn(name), tmp_path)
    yield server
    server.stop()


def test_a_change_reaches_open_streams_and_sigterm_ends_them(web: Web) -> None:
    streams = [web.stream() for _ in range(20)]
    for stream in streams:
        read_until(stream, b"event: snapshot")
    force = {"mode": "ForceOpen", "provider": "openai", "reason": "failing", "expiresIn": "5m"}
    status, made = web.call("POST", "/api/v1/overrides", "sgs_op", force)
    assert status == 201
    name = made["metadata"]["name"].encode()
    for stream in streams:
        read_until(stream, name)

    web.process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    ended = [ends(stream) for stream in streams]
    assert time.monotonic() - began < 3
    assert all(ended)
    assert web.process.wait(3) in {0, -signal.SIGTERM}
    for stream in streams:
        stream.close()


def test_requests_use_the_same_few_connections_to_postgres(web: Web) -> None:
    """Each had left one behind: a client that asked 100 times had shut everybody out."""
    before = _connections()
    with ThreadPoolExecutor(8) as callers:
        asked = [callers.submit(web.call, "GET", "/api/v1/overrides", "sgs_op") for _ in range(120)]
        assert {answer.result()[0] for answer in asked} == {200}
    assert _connections() - before <= 16


def test_connections_that_postgres_has_ended_are_not_tried_one_by_one(web: Web) -> None:
    with ThreadPoolExecutor(16) as callers:
        asked = [callers.submit(web.call, "GET", "/api/v1/overrides", "sgs_op") for _ in range(64)]
        assert {answer.result()[0] for answer in asked} == {200}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        assert cursor.fetchone()[0] > 4
    assert web.call("GET", "/api/v1/overrides", "sgs_op")[0] == 200


def _connections() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


def test_secrets_in_urls_stay_out_of_the_log(web: Web, tmp_path: Path) -> None:
    path = "/api/v1/gateways/demo/config?token=SECRET123"
    assert web.call("GET", path, "sgg_demo")[0] == 400
    assert web.call("GET", "/api/v1/overrides?token=SECRET123", "sgs_op")[0] == 400
    web.process.send_signal(signal.SIGTERM)
    web.process.wait(10)
    assert b"SECRET123" not in (tmp_path / "web.log").read_bytes()
