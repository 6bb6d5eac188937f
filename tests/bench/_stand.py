"""The control plane as the benchmarks measure it: an embedded Postgres of its own, one web worker.

The cluster lives in ``var/bench`` (``BENCH_VAR``) with the product's own settings, fsync on, and is
kept between runs; each run makes its database anew.
"""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg

from controlplane.local.ports import free_port
from controlplane.local.postgres import EmbeddedPostgres
from tests.bench._telemetry import GATEWAYS, MODELS

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 30.0


@dataclass(frozen=True)
class Stand:
    """Where it is, and the tokens of its gateways."""

    port: int
    dsn: str
    tokens: tuple[str, ...]
    web_pid: int
    accepted_at: float
    """The time of day at which it first accepted a connection."""

    def cpu_seconds(self) -> float:
        """Processor time that the web process and its threads have taken."""
        return cpu_seconds_of(self.web_pid)


def cpu_seconds_of(pid: int) -> float:
    """Processor time that a living process and its threads have taken (Linux)."""
    return _ticks(_fields(pid)[11:13])


def postgres_cpu_seconds() -> float:
    """Processor time of the benchmark's server: the living and those that have ended."""
    (lock,) = folder().glob("postgres/**/postmaster.pid")
    server = int(lock.read_text(encoding="ascii").split()[0])
    taken = _ticks(_fields(server)[11:15])
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = _fields(int(entry.name))
                taken += _ticks(fields[11:13]) if int(fields[1]) == server else 0
    return taken


def _fields(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()


def _ticks(fields: list[str]) -> float:
    return sum(map(int, fields)) / os.sysconf("SC_CLK_TCK")


def folder() -> Path:
    """Where big things are kept."""
    return Path(os.environ.get("BENCH_VAR", ROOT / "var" / "bench")).absolute()


@contextmanager
def postgres() -> Iterator[EmbeddedPostgres]:
    """The benchmark's own server, running."""
    folder().mkdir(parents=True, exist_ok=True)
    folder().chmod(0o711)
    with EmbeddedPostgres(folder() / "postgres") as server:
        yield server


def environment(dsn: str) -> dict[str, str]:
    """What the product's processes are started with."""
    return os.environ | {
        "DATABASE_URL": dsn,
        "DJANGO_SETTINGS_MODULE": "controlplane.settings",
        "SWITCHGEAR_SECRET_KEY": "only-for-benchmarks-" + "0" * 40,
    }


def new_database(server: EmbeddedPostgres, name: str) -> str:
    """An empty, migrated database of that name; one that was there is dropped."""
    with psycopg.connect(server.dsn("postgres"), autocommit=True) as admin:
        admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        admin.execute(f"CREATE DATABASE {name}")
    dsn = server.dsn(name)
    migrate(dsn)
    return dsn


def migrate(dsn: str) -> None:
    """Bring a database to this tree's migrations."""
    subprocess.run(
        [sys.executable, "manage.py", "migrate", "-v", "0"],
        cwd=ROOT,
        env=environment(dsn),
        check=True,
    )


def add_gateways(dsn: str) -> tuple[str, ...]:
    """Twenty gateways with their tokens, and prices for what they call."""
    tokens = tuple(f"bench-token-{i:02d}-" + "x" * 32 for i in range(GATEWAYS))
    with psycopg.connect(dsn, autocommit=True) as db:
        for number, token in enumerate(tokens):
            row = db.execute(
                "INSERT INTO gateway (name, labels, resource_version, created_at, created_by)"
                " VALUES (%s, '{}', 1, now(), 'bench') RETURNING id",
                (f"gateway-{number:02d}",),
            ).fetchone()
            assert row is not None
            db.execute(
                "INSERT INTO gateway_token (gateway_id, sha256, created_at, created_by)"
                " VALUES (%s, %s, now(), 'bench')",
                (row[0], hashlib.sha256(token.encode()).digest()),
            )
        for provider, model in MODELS:
            for kind, amount in (("input", 2.5), ("cached_read", 1.25), ("output", 10)):
                db.execute(
                    "INSERT INTO price (provider, model, tier, token_kind, currency, per_million,"
                    " valid_from, source, created_at, created_by) VALUES"
                    " (%s, %s, '', %s, 'USD', %s, '2020-01-01Z', 'bench', now(), 'bench')",
                    (provider, model, kind, amount),
                )
        db.execute(
            "INSERT INTO fx_rate (currency, day, gbp, source, created_at, created_by)"
            " VALUES ('USD', '2020-01-01', 0.7512, 'bench', now(), 'bench')"
        )
    return tokens


@contextmanager
def web(dsn: str, tokens: tuple[str, ...], port: int | None = None) -> Iterator[Stand]:
    """One uvicorn worker, ready."""
    port = free_port() if port is None else port
    log = (folder() / "web.log").open("wb")
    command = [sys.executable, "-m", "uvicorn", "controlplane.asgi:application"]
    command += ["--port", str(port), "--log-level", "warning", "--no-access-log"]
    command += ["--timeout-keep-alive", "75", "--timeout-graceful-shutdown", "3"]
    process = subprocess.Popen(command, cwd=ROOT, env=environment(dsn), stdout=log, stderr=log)
    try:
        accepted_at = _wait_until_ready(port, process)
        yield Stand(port, dsn, tokens, process.pid, accepted_at)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=20)
        log.close()


def _wait_until_ready(port: int, process: subprocess.Popen[bytes]) -> float:
    deadline = time.monotonic() + START_SECONDS
    accepted_at = 0.0
    while not accepted_at and time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            accepted_at = time.time()
        time.sleep(0.02)
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the web process ended: see {folder() / 'web.log'}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2):
                return accepted_at
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("the web process did not become ready")
