"""The whole product as `make up` runs it, for tests: real processes, a folder and ports of its own.

Invariant: whatever a test does, every process that was started here is ended.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from controlplane.local.ports import free_port
from controlplane.local.spawn import wait_until

CHECKOUT = Path(__file__).resolve().parent.parent
PATIENCE = 150.0
_DROPPED = ("SWITCHGEAR", "DJANGO", "PYTEST", "DATABASE_URL", "BROKER_URL", "DEMO")


def clean_environment(var: Path) -> dict[str, str]:
    """A var folder and ports of its own, and nothing of the test session's settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)}
    return kept | {
        "SWITCHGEAR_VAR": str(var),
        "SWITCHGEAR_PORT": str(free_port()),
        "SWITCHGEAR_GATEWAY_PORT": str(free_port()),
    }


@contextmanager
def make_up(environ: dict[str, str], output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """What `make up` runs, ready, with its words in ``output``; whatever happens, it is ended."""
    with output.open("wb") as stdout:
        program = subprocess.Popen(
            [sys.executable, "-m", "controlplane.local"],
            cwd=CHECKOUT,
            env=environ,
            stdout=stdout,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(
            lambda: b"Ready after" in output.read_bytes() or program.poll() is not None, PATIENCE
        )
        assert b"Ready after" in output.read_bytes(), output.read_text()
        yield program
    finally:
        if program.poll() is None:
            program.terminate()
        program.wait(60)


@dataclass
class Product:
    """A running product."""

    var: Path
    environ: dict[str, str]
    program: subprocess.Popen[bytes]
    output: Path

    @property
    def web(self) -> str:
        """Where the control plane answers."""
        return f"http://127.0.0.1:{self.environ['SWITCHGEAR_PORT']}"

    @property
    def gateway(self) -> str:
        """Where the gateway answers."""
        return f"http://127.0.0.1:{self.environ['SWITCHGEAR_GATEWAY_PORT']}"

    @property
    def credentials(self) -> dict[str, str]:
        """What the first start wrote."""
        return dict(json.loads((self.var / "credentials.json").read_text()))

    def child(self, name: str) -> int:
        """The pid of a child, by its name (web, worker, gateway, traffic …)."""
        return int(json.loads((self.var / "run" / f"{name}.json").read_text())["pid"])

    def environment(self) -> dict[str, str]:
        """What the product's own processes read, as `manage.py` finds it."""
        return dict(json.loads((self.var / "environment.json").read_text()))

    def query(self, sql: str, arguments: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Rows of the product's own database."""
        with psycopg.connect(self.environment()["DATABASE_URL"]) as connection:
            return connection.execute(sql, arguments).fetchall()  # type: ignore[arg-type]

    @classmethod
    @contextmanager
    def running(cls, folder: Path, **environment: str) -> Iterator[Product]:
        """Start it, wait until it is ready, and end it."""
        # Below the system's folder, not pytest's: as root, Postgres runs as another user.
        with tempfile.TemporaryDirectory(prefix="switchgear-product-") as name:
            home = Path(name)
            home.chmod(0o711)
            environ = clean_environment(home / "var") | environment
            output = folder / "make-up.log"
            with make_up(environ, output) as program:
                yield cls(home / "var", environ, program, output)
