"""The product's web process for tests: a real uvicorn on a free port over the test's database.

Invariant: only processes that were started here are ended, by their own pid; static files are the
collected, hashed ones of production.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from django.conf import settings

from controlplane.local.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 30.0


@dataclass
class WebProcess:
    """One web process that can be killed and started again on the same port."""

    database: str
    var: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What the process reads."""
        return os.environ | {
            "DATABASE_URL": self.database,
            "DJANGO_SETTINGS_MODULE": "controlplane.settings",
            "SWITCHGEAR_SECRET_KEY": settings.SECRET_KEY,
            "SWITCHGEAR_PORT": str(self.port),
            "SWITCHGEAR_VAR": str(self.var),
            "SWITCHGEAR_LOG_LEVEL": "WARNING",
        }

    def start(self) -> None:
        """Start it and wait until it is ready."""
        command = [sys.executable, "-m", "uvicorn", "controlplane.asgi:application"]
        command += ["--host", "127.0.0.1", "--port", str(self.port), "--log-level", "warning"]
        command += ["--timeout-graceful-shutdown", "3"]
        with (self.var / "web.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=self.environment, stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._is_ready():
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError(f"the web process did not start:\n{self.log()}")
            time.sleep(0.05)

    def log(self) -> str:
        """What it has said."""
        return (self.var / "web.log").read_text(encoding="utf-8", errors="replace")

    def kill(self) -> None:
        """SIGKILL, as a machine that goes away."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def collect_static(var: Path) -> None:
    """Collect the static files as a deployment does."""
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "controlplane.settings",
        "SWITCHGEAR_SECRET_KEY": settings.SECRET_KEY,
        "SWITCHGEAR_VAR": str(var),
    }
    done = subprocess.run(
        [sys.executable, "manage.py", "collectstatic", "--no-input", "-v0"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
