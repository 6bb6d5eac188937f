"""The gateway worker's memory over many requests, half of them streamed.

The simulator's ``bench`` scenario and one gateway worker with its spool on, as in ``gateway``;
``BENCH_REQUESTS`` (200,000) requests over 32 connections, plain and streamed in turns. The resident
size is read after each turn (Linux only). A leak is a straight line: what counts is the growth
over the second half, when every cache and pool is full.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.bench.figures import Figure, say
from tests.bench.gateway import load, start

REQUESTS = int(os.environ.get("BENCH_REQUESTS", "200000"))
TURN_S = 4.0
CONNECTIONS = 32


def measure() -> Iterator[Figure]:
    """Resident MiB at the start, half way and at the end, and what the second half added."""
    with ExitStack() as stack:
        worker = start(stack)["ours"]
        sizes = [(0, resident_mib(worker.process))]
        done, stream = 0, False
        while done < REQUESTS:
            done += int(load(worker.url, stream, CONNECTIONS, TURN_S)["requests"])
            stream = not stream
            sizes.append((done, resident_mib(worker.process)))
        say("requests, MiB: " + " ".join(f"{at}:{size:.1f}" for at, size in sizes))
        half = next(size for at, size in sizes if at >= done / 2)
        first, last = sizes[0][1], sizes[-1][1]
        yield Figure("memory.requests", done, "1")
        yield Figure("memory.start", first, "MiB")
        yield Figure("memory.half", half, "MiB")
        yield Figure("memory.end", last, "MiB")
        yield Figure("memory.second_half", last - half, "MiB")


def resident_mib(process: int) -> float:
    """The resident size of a process."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
