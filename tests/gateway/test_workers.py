"""``python -m gateway`` as real processes: one port, restarts, drain, a parent that is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp

from gateway.simulator.scenario import MANUAL
from gateway.simulator.service import Simulator
from tests.gateway.waiting import until

CONFIG = """
[gateway]
name = "edge"
port = 0
data_dir = "{data}"
drain_seconds = 5
[[providers]]
name = "openai"
base_url = "{url}/openai/v1"
keys = [{{ name = "main", secret = "one" }}]
[[routes]]
name = "alone"
targets = [{{ provider = "openai", model = "gpt-4.1-mini" }}]
"""
CHAT = {"model": "alone", "messages": [{"role": "user", "content": "oak elm"}]}


@asynccontextmanager
async def command(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@asynccontextmanager
async def gateway(
    tmp_path: Path, workers: int
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str, Simulator]]:
    simulator = Simulator(MANUAL, 1, time.monotonic)
    path = tmp_path / "gateway.toml"
    path.write_text(CONFIG.format(data=tmp_path / "data", url=await simulator.start()))
    async with command("--config", str(path), "--workers", str(workers)) as process:
        assert process.stdout is not None
        first = (await process.stdout.readline()).decode()
        url = first.split()[2].rstrip(",")
        yield process, url, simulator
    await simulator.close()


async def ready(http: aiohttp.ClientSession, url: str) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                async with http.get(f"{url}/readyz") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                await asyncio.sleep(0.02)


def children(pid: int) -> set[int]:
    return {int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_two_workers_share_the_port_and_a_killed_one_comes_back(tmp_path: Path) -> None:
    async with gateway(tmp_path, 2) as (process, url, _), aiohttp.ClientSession() as http:
        await ready(http, url)
        await until(lambda: len(children(process.pid)) == 2)
        before = children(process.pid)
        victim = min(before)
        os.kill(victim, signal.SIGKILL)
        await until(lambda: not alive(victim))
        # The other one serves meanwhile: the port is never closed.
        async with (
            aiohttp.ClientSession() as fresh,
            fresh.post(f"{url}/v1/chat/completions", json=CHAT) as answer,
        ):
            assert answer.status == 200
        await until(lambda: len(children(process.pid) - before) == 1)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            assert await process.wait() == 0


async def test_sigterm_lets_requests_in_flight_end(tmp_path: Path) -> None:
    async with gateway(tmp_path, 1) as (process, url, simulator), aiohttp.ClientSession() as http:
        await ready(http, url)
        provider = simulator.providers["openai"]
        provider.conditions = replace(provider.conditions, latency_ms=500.0)
        last = asyncio.create_task(http.post(f"{url}/v1/chat/completions", json=CHAT))
        await until(lambda: provider.in_flight)
        process.send_signal(signal.SIGTERM)
        assert (await last).status == 200
        async with asyncio.timeout(10):
            assert await process.wait() == 0


async def test_workers_end_when_the_parent_is_killed(tmp_path: Path) -> None:
    async with gateway(tmp_path, 2) as (process, url, _), aiohttp.ClientSession() as http:
        await ready(http, url)
        await until(lambda: len(children(process.pid)) == 2)
        workers = children(process.pid)
        process.kill()
        await process.wait()
        await until(lambda: not any(alive(pid) for pid in workers), 15)


async def test_check_names_the_bad_key_and_binds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text('[gateway]\nname = "edge"\nprot = 1\n')
    async with command("--config", str(path), "--check") as process:
        _, said = await process.communicate()
        assert process.returncode == 2
        assert b"did you mean port?" in said
        assert b"Traceback" not in said


async def test_port_in_use_is_one_clear_line(tmp_path: Path) -> None:
    async with gateway(tmp_path, 1) as (_, url, _):
        path = tmp_path / "gateway.toml"
        port = url.rpartition(":")[2]
        path.write_text(path.read_text().replace("port = 0", f"port = {port}"))
        async with command("--config", str(path)) as process:
            async with asyncio.timeout(20):
                _, said = await process.communicate()
            assert process.returncode == 1
            assert said.decode().count("\n") == 1
            assert f"cannot listen on 127.0.0.1:{port}" in said.decode()


async def test_importing_the_gateway_loads_no_django() -> None:
    code = (
        "import json, sys, gateway.worker, gateway.workers, gateway.traffic;"
        "print(json.dumps([m for m in sys.modules if m.split('.')[0] in"
        " ('django', 'psycopg', 'celery', 'ninja', 'channels')]))"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    assert json.loads(said) == []
