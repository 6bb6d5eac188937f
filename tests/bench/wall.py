"""The wall: from a breaker's transition to pixels, frames under 200 changes a second, first view.

One web worker; twenty instances of 200 real breakers in one process, which report their status and
send their transitions as gateways do (``_wall_fleet``); one Chromium and nineteen plain sockets.
``BENCH_TRIPS`` (100) transitions are followed to the screen while nothing else happens; then
``BENCH_CHANGES`` (200) transitions a second are aimed at for ``BENCH_SECONDS`` (30). The bytes of
the first view are counted on the wire, in both directions, up to the first live paint.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psycopg
from playwright.sync_api import Browser, Page

from tests.bench._stand import (
    ROOT,
    Stand,
    add_gateways,
    environment,
    folder,
    new_database,
    postgres,
    web,
)
from tests.bench._wall_trace import traced
from tests.bench._wall_viewers import Viewers, counting, viewers
from tests.bench.figures import Figure, say
from tests.browser import chromium

TRIPS = int(os.environ.get("BENCH_TRIPS", "100"))
CHANGES = int(os.environ.get("BENCH_CHANGES", "200"))
SECONDS = float(os.environ.get("BENCH_SECONDS", "30"))
SOCKETS = 19
CIRCUITS = 200
SPARED = 20  # circuits that only single trips touch
FIRST_VIEWS = 5
BACK_SECONDS = 27.0  # open, half-open, ramped
PATIENCE_MS = 60_000
PASSWORD = "only-for-benchmarks"
_PROVIDERS = ("openai", "anthropic", "google", "mistral", "azure-openai")
_REGIONS = ("us-east", "eu", "uksouth", "ap-south")
NAMES = [
    (provider, f"model-{number:02d}-large", region)
    for number in range(CIRCUITS // len(_PROVIDERS) // len(_REGIONS))
    for provider in _PROVIDERS
    for region in _REGIONS
]
# A quarter of an hour of calls, so that every tile has its figures, and what is yet to come.
_MINUTES = """
INSERT INTO rollup_minute (gateway_id, circuit_id, minute, attempts, firsts, retries, failed,
                           cost_gbp, wasted_gbp)
SELECT g.id, c.id, m, 40 + c.id, 38 + c.id, 2, c.id / 60, 0.05, 0.001
FROM gateway g, circuit c,
     generate_series(date_trunc('minute', now()) - interval '16 minutes',
                     date_trunc('minute', now()) + interval '6 minutes', interval '1 minute') AS m
"""
_SCRIPT = (Path(__file__).parent / "_wall_page.js").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Fleet:
    """The running process of instances."""

    process: subprocess.Popen[str]

    def ask(self, order: dict[str, Any]) -> Any:
        """One order and its answer."""
        self.tell(order)
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def tell(self, order: dict[str, Any]) -> None:
        """One order without an answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()


def measure() -> Iterator[Figure]:
    """First view, transition to pixels, and the wall under load."""
    os.environ["SWITCHGEAR_STATIC"] = str(folder() / "static")
    with postgres() as server, chromium() as browser:
        dsn = new_database(server, "wall")
        _manage(dsn, "collectstatic", "--no-input", "--clear", "-v0")
        tokens = add_gateways(dsn)
        _bootstrap(dsn)
        with web(dsn, tokens) as stand, _fleet(stand) as fleet:
            ids = _until_known(dsn)
            with psycopg.connect(dsn, autocommit=True) as db:
                db.execute(_MINUTES)
            cookies = _log_in(browser, stand)
            yield from _first_view(browser, stand, cookies)
            page = _page(browser, f"http://127.0.0.1:{stand.port}", cookies)
            with viewers(stand.port, _header(cookies), SOCKETS) as seen:
                yield from _to_pixels(fleet, page, ids)
                yield from _under_load(stand, fleet, page, ids, seen)
                yield from traced(browser, page)
            page.context.close()
            yield from _without_viewers(stand, fleet)


def _first_view(browser: Browser, stand: Stand, cookies: Any) -> Iterator[Figure]:
    """With an empty cache, from the navigation to the first live paint."""
    times, sizes = [], []
    with counting(stand.port) as pipe:
        for _ in range(FIRST_VIEWS):
            pipe.total = 0
            page = _page(browser, f"http://127.0.0.1:{pipe.port}", cookies)
            times.append(page.evaluate("__live"))
            sizes.append(pipe.total / 1000)
            page.context.close()
    say(f"first views: {[round(t) for t in times]} ms, {[round(s) for s in sizes]} kB")
    yield Figure("wall.first_view", median(times), "ms", "the aim of 1500 ms", median(times) / 1500)
    yield Figure("wall.first_view_worst", max(times), "ms")
    yield Figure("wall.first_view_bytes", max(sizes), "kB", "the aim of 150 kB", max(sizes) / 150)


def _to_pixels(fleet: Fleet, page: Page, ids: list[int]) -> Iterator[Figure]:
    """Single transitions, at moments that have nothing to do with any timer."""
    dice, times = random.Random(7), []
    for number in range(TRIPS):
        times.append(_trip(fleet, page, ids, number % CIRCUITS, number % len(ids) % 20))
        time.sleep(0.2 + dice.random() * 0.3)
    times.sort()
    say(f"to pixels: {[round(t) for t in times]}")
    p99 = times[min(len(times) - 1, len(times) * 99 // 100)]
    yield Figure("wall.to_pixels_p50", median(times), "ms")
    yield Figure("wall.to_pixels_p99", p99, "ms", "the aim of 1000 ms", p99 / 1000)


def _trip(fleet: Fleet, page: Page, ids: list[int], circuit: int, instance: int) -> float:
    """Milliseconds from a transition in the gateway to its circuit's card on the screen."""
    page.evaluate("(id) => { window.__opened = __opens(id); }", f"c{ids[circuit]}")
    at = fleet.ask({"trip": [instance, circuit]})
    return float(page.evaluate("window.__opened")) - at * 1000


def _under_load(
    stand: Stand, fleet: Fleet, page: Page, ids: list[int], seen: Viewers
) -> Iterator[Figure]:
    """Many changes at once; every browser gets few frames and none makes it stutter."""
    time.sleep(BACK_SECONDS)
    fleet.tell({"rate": CHANGES})
    time.sleep(12)  # until what was opened first is half-open: from here on the rate is even
    page.evaluate("() => { __seen.frames = []; __seen.tasks = []; }")
    had, changed = list(seen.frames), fleet.ask({"count": 1})
    cpu, began = stand.cpu_seconds(), time.monotonic()
    times = []
    for number in range(min(SPARED, int(SECONDS))):
        times.append(_trip(fleet, page, ids, number, number))
        time.sleep(max(0.0, began + number + 1 - time.monotonic()))
    time.sleep(max(0.0, began + SECONDS - time.monotonic()))
    took = time.monotonic() - began
    found = page.evaluate("() => __seen")
    changed = fleet.ask({"count": 1}) - changed
    rates = [(now - before) / took for now, before in zip(seen.frames, had, strict=True)]
    say(f"under load, to pixels: {sorted(round(t) for t in times)}")
    yield Figure(
        "wall.load_changes",
        changed / took,
        "transitions/s",
        f"{CHANGES}/s",
        changed / took / CHANGES,
    )
    yield Figure("wall.load_cpu", (stand.cpu_seconds() - cpu) / took, "processors")
    browsers = len(found["frames"]) / took
    yield Figure("wall.load_frames", browsers, "frames/s", "at most 4 a second", browsers / 4)
    yield Figure(
        "wall.load_frames_of_sockets", max(rates), "frames/s", "at most 4 a second", max(rates) / 4
    )
    sizes = [size for _, size, _ in found["frames"]]
    yield Figure("wall.load_frame_size", median(sizes) / 1000, "kB before compression")
    tasks = [length for _, length in found["tasks"]]
    say(f"long tasks: {len(tasks)}: {sorted(round(t) for t in tasks)[-20:]}")
    worst = max(tasks, default=0.0)
    yield Figure("wall.load_longest_task", worst, "ms", "at most 100 ms", worst / 100)
    yield Figure("wall.load_to_pixels_p50", median(times), "ms")
    yield Figure("wall.load_to_pixels_worst", max(times), "ms")


def _without_viewers(stand: Stand, fleet: Fleet) -> Iterator[Figure]:
    """The same load while nobody looks: what is left is taking it in."""
    time.sleep(2)
    cpu, began = stand.cpu_seconds(), time.monotonic()
    time.sleep(10)
    took = time.monotonic() - began
    yield Figure("wall.load_cpu_nobody_looking", (stand.cpu_seconds() - cpu) / took, "processors")
    fleet.tell({"rate": 0})


@contextmanager
def _fleet(stand: Stand) -> Iterator[Fleet]:
    with tempfile.TemporaryDirectory(prefix="switchgear-bench-") as home:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench._wall_fleet"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            fleet = Fleet(process)
            order = {
                "url": f"http://127.0.0.1:{stand.port}",
                "folder": home,
                "gateways": [(f"gateway-{n:02d}", token) for n, token in enumerate(stand.tokens)],
                "circuits": NAMES,
                "spared": SPARED,
            }
            if fleet.ask(order) != "ready":
                raise RuntimeError("the instances did not start")
            yield fleet
        finally:
            process.kill()
            process.wait()


def _page(browser: Browser, url: str, cookies: Any) -> Page:
    """The wall in a browser that has never been here, from when it is live."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.add_cookies(cookies)
    context.add_init_script(_SCRIPT)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(url)
    page.evaluate("__live")
    return page


def _log_in(browser: Browser, stand: Stand) -> Any:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{stand.port}")
    page.fill("#username", "bench")
    page.fill("#password", PASSWORD)
    page.click("text=Log in")
    page.wait_for_selector("#wall")
    cookies = context.cookies()
    context.close()
    return cookies


def _header(cookies: Any) -> str:
    return "; ".join(f"{each['name']}={each['value']}" for each in cookies)


def _until_known(dsn: str) -> list[int]:
    """The circuits' ids in the order of ``NAMES``, once every instance has reported them all."""
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while time.monotonic() < deadline:
        with psycopg.connect(dsn) as db:
            rows = db.execute(
                "SELECT c.provider, c.model, c.region, c.id, count(*) FROM circuit c"
                " JOIN circuit_state s ON s.circuit_id = c.id GROUP BY c.id"
            ).fetchall()
        found = {row[:3]: row[3] for row in rows if row[4] == 20}
        if len(found) == CIRCUITS:
            return [found[name] for name in NAMES]
        time.sleep(0.25)
    raise RuntimeError(f"{len(found)} circuits are known on every instance")


def _bootstrap(dsn: str) -> None:
    """Somebody to look, default budgets, and every gateway's first compiled configuration."""
    with tempfile.TemporaryDirectory(prefix="switchgear-bench-") as var:
        named = {"SWITCHGEAR_ADMIN_USER": "bench", "SWITCHGEAR_ADMIN_PASSWORD": PASSWORD}
        named |= {"SWITCHGEAR_GATEWAY_NAME": "gateway-00", "SWITCHGEAR_VAR": var}
        _manage(dsn, "bootstrap", **named)


def _manage(dsn: str, *command: str, **more: str) -> None:
    whole = [sys.executable, "manage.py", *command]
    subprocess.run(whole, cwd=ROOT, env=environment(dsn) | more, check=True, stdout=sys.stderr)
