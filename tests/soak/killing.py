"""Who is killed when: SIGKILL, drawn from a seed, for parts of the product and for load processes.

Invariant: only processes that this run started are killed, each by its pid. In the last two fifths
of the time web is left alone, so that its memory can be watched over a longer life.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from pathlib import Path

from controlplane.local.spawn import command_line
from tests.product import Product
from tests.soak.fleet import Process

KINDS = {"web": 3, "worker": 2, "postgres": 2, "backend": 1, "instances": 4}
WEB_UNTIL = 0.6


class Killer:
    """Kills one thing of ``kinds`` at a time; ``killed`` counts them."""

    def __init__(
        self, product: Product, processes: list[Process], seed: int, kinds: list[str]
    ) -> None:
        self._kinds = kinds
        self._product = product
        self._processes = processes
        self._draw = random.Random(seed)
        self.killed: Counter[str] = Counter()

    def pause(self) -> float:
        """Seconds until the next one."""
        return self._draw.uniform(2, 8)

    def kill(self, progress: float) -> str:
        """Kill what the seed says; ``progress`` is 0 at the start of the load and 1 at its end."""
        kinds = [k for k in self._kinds if k != "web" or progress < WEB_UNTIL]
        if not kinds:
            return "nobody"
        kind = self._draw.choices(kinds, [KINDS[k] for k in kinds])[0]
        if kind == "instances":
            self._draw.choice(self._processes).kill()
        elif not self._kill_part(kind):
            return f"{kind} (not there)"
        self.killed[kind] += 1
        return kind

    def _kill_part(self, kind: str) -> bool:
        pid: int | None
        if kind in ("web", "worker"):
            pid = self._product.child(kind)
        else:
            pid = postmaster(self._product)
            if kind == "backend" and pid is not None:
                # One session alone: Postgres then restarts all of them.
                sessions = [p for p in children(pid) if " switchgear " in (command_line(p) or "")]
                pid = self._draw.choice(sorted(sessions)) if sessions else None
        if pid is None or command_line(pid) is None:
            return False
        os.kill(pid, signal.SIGKILL)
        return True


def children(parent: int) -> list[int]:
    """The pids of a process' children (Linux)."""
    found = []
    for path in Path(f"/proc/{parent}/task").glob("*/children"):
        try:
            found += [int(pid) for pid in path.read_text().split()]
        except OSError:
            continue
    return found


def postmaster(product: Product) -> int | None:
    """The embedded server's first process."""
    for pid in children(product.program.pid):
        if "postgres -D" in (command_line(pid) or ""):
            return pid
    return None


def resident_mib(pid: int) -> float | None:
    """What of a process is in memory, in MiB (Linux)."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    except OSError:
        return None
    return None
