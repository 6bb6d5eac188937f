"""The load's processes: started, killed, started again in the same place, and ended in order."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from controlplane.local.spawn import wait_until
from tests.product import CHECKOUT, Product

PATIENCE = 60.0


_ADD = """
import sys
from datetime import UTC, datetime
from controlplane.actions.actor import SYSTEM
from controlplane.actions.gateways import create
for name in sys.stdin.read().split():
    print(name, create(actor=SYSTEM, name=name, now=datetime.now(UTC)).token)
"""


def add_gateways(product: Product, names: list[str]) -> dict[str, str]:
    """Gateways of the product, made as an admin makes them; their tokens."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "manage.py", "shell", "--no-imports", "-c", _ADD],
        cwd=CHECKOUT,
        env=product.environ | product.environment(),
        input=" ".join(names),
        capture_output=True,
        text=True,
        timeout=60,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return dict(line.split() for line in done.stdout.splitlines() if line.startswith("soak-"))


@dataclass
class Process:
    """One gateway's host: a folder of spools, and the process that now works in it."""

    folder: Path
    notes: Path
    order: dict[str, object]
    lives: int = 0
    process: subprocess.Popen[str] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Begin a new life."""
        self.lives += 1
        name = f"{self.order['gateway']}-{self.lives:03d}"
        with (self.notes / f"{name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.soak.instances"],
                cwd=CHECKOUT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdin is not None
        about = {"notes": str(self.notes / f"{name}.notes"), "folder": str(self.folder)}
        self._say(json.dumps(self.order | about))

    def kill(self) -> None:
        """SIGKILL, and a new life in the same folder."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self._close()
        self.start()

    def stop(self) -> None:
        """No new calls; the spools go on sending. Returns when the calls under way have ended."""
        assert self.process is not None
        assert self.process.stdout is not None
        self._say("stop")
        for line in self.process.stdout:
            if line.strip() == "stopped":
                return
        raise RuntimeError(f"{self.order['gateway']} died: see {self.notes}")

    def end(self) -> None:
        """The orderly end: goodbye, and what is left is sent."""
        if self.process is None:
            return
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(PATIENCE)
        self._close()

    def _say(self, line: str) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def _close(self) -> None:
        assert self.process is not None
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self.process = None

    def waiting(self) -> int:
        """Sealed batches on the disk that nobody has acknowledged, of the living and the dead."""
        return len(list(self.folder.glob("spool/*/*/*.batch")))

    def open_beyond(self) -> int:
        """Open segments beyond the one of each living instance: dead ones that nobody has taken."""
        living = int(str(self.order["instances"]))
        return max(0, len(list(self.folder.glob("spool/*/*/*.open"))) - living)


def drain(processes: list[Process], seconds: float) -> bool:
    """Wait until every spool, those of dead processes too, is sent."""
    return wait_until(
        lambda: not any(process.waiting() or process.open_beyond() for process in processes),
        seconds,
        every=0.5,
    )
