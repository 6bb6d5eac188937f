"""``make soak``: SOAK_SECONDS (600) of load from 50 instances while everything is killed -9.

Web, the Celery worker, Postgres and the instances' processes die at moments drawn from SOAK_SEED;
the product's own supervisor heals it. Then the load stops, the spools empty themselves, and what
was kept, acknowledged, stored and rebuilt is compared. Exit status 1 on any difference.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from tests.product import Product
from tests.soak import books
from tests.soak.books import Line
from tests.soak.fleet import Process, add_gateways, drain
from tests.soak.killing import KINDS, WEB_UNTIL, Killer, resident_mib
from tests.soak.notes import Witness

GATEWAYS, INSTANCES = 10, 5
CALLS_PER_S = 4.0
DRAIN_SECONDS = 180.0
# Web's memory: the end of its last life against that life's beginning, after a warm-up.
WARM_UP_SECONDS = 20.0
MAY_GROW_MIB = 16.0


def say(line: str) -> None:
    """A line about the run."""
    print(line, file=sys.stderr, flush=True)


class Soak:
    """One run."""

    def __init__(self, product: Product, folder: Path, seconds: float, seed: int) -> None:
        self.product, self.folder, self.seconds, self.seed = product, folder, seconds, seed
        self.notes = folder / "notes"
        self.notes.mkdir()
        tokens = add_gateways(product, [f"soak-{number:02d}" for number in range(GATEWAYS)])
        self.processes = [self._process(*each) for each in enumerate(tokens.items())]
        kinds = os.environ.get("SOAK_KINDS", " ".join(KINDS)).split()
        self.killer = Killer(product, self.processes, seed, kinds)
        self.memory: list[tuple[int, float, float]] = []

    def _process(self, number: int, named: tuple[str, str]) -> Process:
        name, token = named
        order: dict[str, object] = {
            "url": self.product.web,
            "gateway": name,
            "token": token,
            "instances": INSTANCES,
            "calls_per_s": float(os.environ.get("SOAK_CALLS_PER_S", CALLS_PER_S)),
            "seed": f"{self.seed}/{number}",
            "lossy": number == 0,
        }
        return Process(self.folder / name, self.notes, order)

    def run(self) -> list[Line]:
        """Load, kill, drain, compare."""
        began = datetime.now(UTC)
        for process in self.processes:
            process.start()
        self._kill_for(time.monotonic())
        say(f"the load stops; killed {dict(self.killer.killed)}")
        for process in self.processes:
            process.stop()
        drained = drain(self.processes, DRAIN_SECONDS)
        self._watch(time.monotonic())
        for process in self.processes:
            process.end()
        say("comparing the books")
        lines = [
            books.same("spools are empty", True, drained),
            *(Line(f"killed: {k}", "> 0", n, n > 0) for k, n in self.killer.killed.items()),
            self._memory(),
        ]
        return lines + books.compare(self.product, Witness.read(self.notes), began)

    def _kill_for(self, began: float) -> None:
        due = began + self.killer.pause()
        while (now := time.monotonic()) < began + self.seconds:
            self._watch(now)
            if now >= due:
                progress = (now - began) / self.seconds
                say(f"{now - began:6.1f} s  killed {self.killer.kill(progress)}")
                due = time.monotonic() + self.killer.pause()
            time.sleep(0.5)

    def _watch(self, now: float) -> None:
        pid = self.product.child("web")
        resident = resident_mib(pid)
        if resident is not None:
            self.memory.append((pid, now, resident))
            if len(self.memory) % 40 == 0:
                say(f"          web {pid}: {resident:.1f} MiB")

    def _memory(self) -> Line:
        pid = self.memory[-1][0]
        life = [(at, mib) for found, at, mib in self.memory if found == pid]
        steady = [mib for at, mib in life if at - life[0][0] > WARM_UP_SECONDS]
        if len(steady) < 8:
            return Line("web's memory (too short a run to say)", "", "", self.seconds < 120)
        quarter = len(steady) // 4
        first, last = median(steady[:quarter]), median(steady[-quarter:])
        lived = life[-1][0] - life[0][0]
        return Line(
            f"web's MiB over {lived:.0f} s, first and last quarter",
            f"{first:.1f} + at most {MAY_GROW_MIB:.0f}",
            f"{last:.1f}",
            last <= first + MAY_GROW_MIB,
        )


def main() -> int:
    """Run, print the table, 1 on any difference."""
    seconds = float(os.environ.get("SOAK_SECONDS", "600"))
    seed = int(os.environ.get("SOAK_SEED", "20261130"))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="switchgear-soak-")))
        say(f"{GATEWAYS * INSTANCES} instances, {seconds:.0f} s, seed {seed}; web is killed")
        say(f"until {WEB_UNTIL:.0%} of the time; the product's words are in {folder}")
        product = stack.enter_context(Product.running(folder, DEMO="0"))
        soak = Soak(product, folder, seconds, seed)
        try:
            lines = soak.run()
        finally:
            for process in soak.processes:
                if process.process is not None:
                    process.process.kill()
                    process.process.wait()
            _keep(product, folder)
    for line in lines:
        word = "ok  " if line.right else "FAIL"
        print(f"{word} {line.what:52} {line.expected!s:>28} {line.found!s:>20}")
    return int(not all(line.right for line in lines))


def _keep(product: Product, folder: Path) -> None:
    """Copy notes and logs where SOAK_KEEP says, for a person who wants to know why."""
    where = os.environ.get("SOAK_KEEP")
    if where:
        for source in (folder / "notes", product.var / "log"):
            shutil.copytree(source, Path(where) / source.name, dirs_exist_ok=True)
        shutil.copy(product.output, where)


if __name__ == "__main__":
    sys.exit(main())
