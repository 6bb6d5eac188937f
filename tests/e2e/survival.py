"""Postgres, web process, gateway and provider as four things that can each be killed and come back.

Nobody heals them here, as the supervisor of ``make up`` would: the order of deaths is the test's.
Invariant: every process that was started here is ended.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import psycopg
from aiohttp import web

from controlplane.local.ports import free_port
from controlplane.local.postgres import EmbeddedPostgres

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120.0
GATEWAY, GATEWAY_TOKEN, OPERATOR = "edge", "gateway-" + "g" * 40, "operator-" + "o" * 40
CONFIG = """
[gateway]
name = "edge"
port = {port}
data_dir = "{data}"
[control_plane]
url = "{url}"
token = "{token}"
[[providers]]
name = "openai"
base_url = "{provider}/v1"
[[routes]]
name = "alone"
targets = [{{ provider = "openai", model = "gpt-4.1-mini" }}]
"""


# By the product's own code, under the settings of its web process.
_LOG_IN = """
import django
django.setup()
from django.test import Client
from controlplane.models import Person, Role
client = Client()
client.force_login(Person.objects.create_user(username="oncall", role=Role.OPERATOR))
print("; ".join(f"{name}={morsel.value}" for name, morsel in client.cookies.items()))
"""


@dataclass
class Part:
    """A process with its children, which are killed with it."""

    command: list[str]
    environ: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it unless it runs."""
        if self.process is None:
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(
                    self.command,
                    cwd=ROOT,
                    env=self.environ,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )

    def kill(self) -> None:
        """SIGKILL for all of it, as when a machine goes away."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


@dataclass(frozen=True)
class Call:
    """One call through the gateway. ``said``: served, forced, down, or another refusal's code."""

    begun: float
    ended: float
    said: str


@dataclass
class Stand:
    """All four, with the times of day at which the provider was called."""

    postgres: EmbeddedPostgres
    web: Part
    gateway: Part
    http: aiohttp.ClientSession
    control: str
    serving: str
    provider_calls: list[float] = field(default_factory=list)

    async def do(self, step: str) -> None:
        """``web-`` kills, ``web+`` starts; also gateway and postgres. A start is not waited for."""
        name, start = step[:-1], step[-1] == "+"
        if name == "postgres":
            await asyncio.to_thread(self._start_postgres if start else self._kill_postgres)
            return
        part: Part = getattr(self, name)
        await asyncio.to_thread(part.start if start else part.kill)

    def _kill_postgres(self) -> None:
        server = self.postgres.process
        if server is not None:
            server.kill()
            server.wait()
            self.postgres.stop()  # lets go of the folder, so that it can be started again

    def _start_postgres(self) -> None:
        if self.postgres.pid is None:
            self.postgres.start()

    async def all_up(self) -> None:
        """Whatever was killed runs again, the instance is in sync, and calls are served."""
        for name in ("postgres", "web", "gateway"):
            await self.do(f"{name}+")
        await until(self._in_sync, "the instance is in sync")
        await until(self.serves, "calls are served")

    async def _in_sync(self) -> bool:
        """The instance that runs now, whatever its dead forerunners said."""
        answer = await self.ask("GET", f"gateways/{GATEWAY}")
        counts = answer["status"]["counts"] if answer else {}
        return bool(counts == {"InSync": 1})

    async def serves(self) -> bool:
        """A call is served now."""
        return (await self.call()).said == "served"

    async def force(self, seconds: float) -> tuple[str, float]:
        """Force the provider open; the override's name and its end as a time of day."""
        body = {
            "mode": "ForceOpen",
            "provider": "openai",
            "reason": "survival",
            "expiresIn": f"{seconds:.0f}s",
            "allowLastHealthy": True,
        }
        answer = await self.ask("POST", "overrides", body)
        assert answer, "the override was not taken"
        ends = datetime.fromisoformat(answer["spec"]["expiresAt"])
        return answer["metadata"]["name"], ends.timestamp()

    async def session(self) -> str:
        """The cookie of somebody who is logged in."""
        made = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", _LOG_IN],
            cwd=ROOT,
            env=self.web.environ,
            check=True,
            capture_output=True,
            text=True,
        )
        return str(made.stdout.strip().splitlines()[-1])

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The people's API; None while it does not answer, or not well."""
        headers = {"authorization": f"Bearer {OPERATOR}"}
        with suppress(aiohttp.ClientError, TimeoutError):
            url = f"{self.control}/api/v1/{path}"
            async with self.http.request(method, url, json=body, headers=headers) as answer:
                return await answer.json() if answer.status < 300 else None
        return None

    async def call(self) -> Call:
        """One chat completion."""
        body = {"model": "alone", "messages": [{"role": "user", "content": "ping"}]}
        begun, said = time.time(), "down"
        with suppress(aiohttp.ClientError, TimeoutError):
            url = f"{self.serving}/v1/chat/completions"
            async with self.http.post(url, json=body) as answer:
                raw = await answer.read()
                said = "served" if answer.status == 200 else json.loads(raw)["error"]["code"]
        return Call(begun, time.time(), "forced" if said == "override" else said)


async def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE_S) -> None:
    """Wait for an async condition."""
    end = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.1)


@asynccontextmanager
async def stand(folder: Path) -> AsyncIterator[Stand]:
    """All of it, empty and running. The folder must be one that Postgres' user can enter."""
    calls: list[float] = []
    async with (
        _provider(calls) as provider,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as http,
    ):
        # Not the tests' settings: with them a kill loses the last commits, as a power cut would.
        with EmbeddedPostgres(folder / "postgres") as postgres:
            web_port, port = free_port(), free_port()
            environ = os.environ | {
                "DATABASE_URL": postgres.dsn(),
                "DJANGO_SETTINGS_MODULE": "controlplane.settings",
                "SWITCHGEAR_SECRET_KEY": "only-for-tests-" + "0" * 40,
                "SWITCHGEAR_VAR": str(folder),
                "SWITCHGEAR_PORT": str(web_port),
            }
            await asyncio.to_thread(_prepare, postgres.dsn(), environ)
            made = Stand(
                postgres,
                Part(_web_command(web_port), environ, folder / "web.log"),
                Part(
                    _gateway_command(folder, port, web_port, provider), environ, folder / "gw.log"
                ),
                http,
                f"http://127.0.0.1:{web_port}",
                f"http://127.0.0.1:{port}",
                calls,
            )
            try:
                yield made
            finally:
                made.gateway.kill()
                made.web.kill()


def _web_command(port: int) -> list[str]:
    command = [sys.executable, "-m", "uvicorn", "controlplane.asgi:application"]
    return [*command, "--port", str(port), "--log-level", "warning", "--no-access-log"]


def _gateway_command(folder: Path, port: int, web_port: int, provider: str) -> list[str]:
    path = folder / "gateway.toml"
    url = f"http://127.0.0.1:{web_port}"
    data = folder / "gateway"
    path.write_text(
        CONFIG.format(port=port, data=data, url=url, token=GATEWAY_TOKEN, provider=provider)
    )
    return [sys.executable, "-m", "gateway", "--config", str(path), "--workers", "1"]


def _prepare(dsn: str, environ: dict[str, str]) -> None:
    migrate = [sys.executable, "manage.py", "migrate", "-v", "0"]
    subprocess.run(migrate, cwd=ROOT, env=environ, check=True)
    with psycopg.connect(dsn, autocommit=True) as db:
        row = db.execute(
            "INSERT INTO gateway (name, labels, resource_version, created_at, created_by)"
            " VALUES (%s, '{}', 1, now(), 'tests') RETURNING id",
            (GATEWAY,),
        ).fetchone()
        assert row is not None
        db.execute(
            "INSERT INTO gateway_token (gateway_id, sha256, created_at, created_by)"
            " VALUES (%s, %s, now(), 'tests')",
            (row[0], hashlib.sha256(GATEWAY_TOKEN.encode()).digest()),
        )
        db.execute(
            "INSERT INTO circuit (provider, model, region, first_seen_at)"
            " VALUES ('openai', 'gpt-4.1-mini', '', now())"
        )
        db.execute(
            "INSERT INTO service_token (name, role, sha256, created_at, created_by)"
            " VALUES ('tests', 'operator', %s, now(), 'tests')",
            (hashlib.sha256(OPERATOR.encode()).digest(),),
        )


@asynccontextmanager
async def _provider(calls: list[float]) -> AsyncIterator[str]:
    """A provider that answers, and notes when it was called."""

    async def complete(_: web.Request) -> web.Response:
        calls.append(time.time())
        message = {"role": "assistant", "content": "pong"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        body = {"id": "c1", "object": "chat.completion", "created": 1, "model": "gpt-4.1-mini"}
        return web.json_response(body | {"choices": [choice], "usage": usage})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()
