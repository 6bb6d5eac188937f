"""What the browser's main thread did, read from Chromium's own trace.

Invariant: a task is what Chromium's scheduler ran in one go (``RunTask``); of each both the time by
the clock on the wall and the time that a processor spent on it are kept, because on a machine that
is shared the first also counts whoever else ran meanwhile. All times in milliseconds.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import Browser, Page

from tests.bench.figures import Figure, say

SECONDS = 15.0
_CATEGORIES = ["devtools.timeline", "disabled-by-default-devtools.timeline", "toplevel"]
# What is inside a task, by the kind of its work; the rest is script.
_KINDS = {
    "UpdateLayoutTree": "style",
    "RecalculateStyles": "style",
    "Layout": "layout",
    "PrePaint": "paint",
    "Paint": "paint",
    "Layerize": "paint",
    "Commit": "paint",
    "MinorGC": "garbage",
    "MajorGC": "garbage",
}


@dataclass(frozen=True, slots=True)
class Task:
    """One task of the main thread."""

    wall_ms: float
    cpu_ms: float
    kinds: dict[str, float]


def traced(browser: Browser, page: Page) -> Iterator[Figure]:
    """The longest task and the whole main thread, of a page under the load that goes on."""
    browser.start_tracing(page=page, categories=_CATEGORIES)
    time.sleep(SECONDS)
    tasks = tasks_of(json.loads(browser.stop_tracing())["traceEvents"])
    for task in sorted(tasks, key=lambda task: -task.cpu_ms)[:5]:
        parts = ", ".join(f"{kind} {ms:.0f}" for kind, ms in sorted(task.kinds.items()))
        say(f"a task of {task.cpu_ms:.0f} ms of a processor, {task.wall_ms:.0f} in all: {parts}")
    kinds: Counter[str] = Counter()
    for task in tasks:
        kinds.update(task.kinds)
    shares = ", ".join(f"{kind} {ms / 10 / SECONDS:.1f} %" for kind, ms in kinds.most_common())
    say(f"the page's main thread, of one processor: {shares}")
    worst = max((task.cpu_ms for task in tasks), default=0.0)
    yield Figure("wall.load_longest_task_cpu", worst, "ms", "at most 100 ms", worst / 100)
    yield Figure("wall.load_page_cpu", kinds.total() / 1000 / SECONDS, "processors")


def tasks_of(events: list[dict[str, Any]]) -> list[Task]:
    """The tasks of the busiest page's main thread."""
    mains = {
        (e["pid"], e["tid"])
        for e in events
        if e.get("name") == "thread_name" and e["args"]["name"] == "CrRendererMain"
    }
    per_thread: dict[tuple[int, int], list[dict[str, Any]]] = {key: [] for key in mains}
    for event in events:
        if event.get("ph") == "X" and (event["pid"], event["tid"]) in mains:
            per_thread[event["pid"], event["tid"]].append(event)
    busiest = max(per_thread.values(), key=lambda own: sum(map(_cpu, own)), default=[])
    return list(_grouped(sorted(busiest, key=lambda e: (e["ts"], -e.get("dur", 0)))))


def _cpu(event: dict[str, Any]) -> float:
    return float(event.get("tdur", 0))


def _grouped(events: list[dict[str, Any]]) -> Iterator[Task]:
    task: dict[str, Any] | None = None
    kinds: Counter[str] = Counter()
    covered = 0.0  # up to here the task's time has been given to a kind
    for event in events:
        if event["name"] == "RunTask" and (task is None or event["ts"] >= _end(task)):
            if task is not None:
                yield _task(task, kinds)
            task, kinds, covered = event, Counter(), event["ts"]
        kind = _KINDS.get(event["name"])
        # What stands inside another of these is counted with it.
        if task is None or kind is None or event["ts"] < covered or _end(event) > _end(task):
            continue
        kinds[kind] += _cpu(event)
        covered = _end(event)
    if task is not None:
        yield _task(task, kinds)


def _end(event: dict[str, Any]) -> float:
    return float(event["ts"] + event.get("dur", 0))


def _task(event: dict[str, Any], kinds: Counter[str]) -> Task:
    whole = _cpu(event)
    parts = {kind: us / 1000 for kind, us in kinds.items()}
    return Task(
        event["dur"] / 1000, whole / 1000, parts | {"script": (whole - kinds.total()) / 1000}
    )
