"""Kill -9 of web process and gateway instances under traffic: what was served is stored once."""

import json
import os
import signal
import threading
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path

import pytest

from controlplane.local.spawn import wait_until
from tests.product import Product

pytestmark = pytest.mark.e2e

CALLERS = 6
SECONDS = 20.0


class Caller(threading.Thread):
    """Calls the gateway one request after the other, and remembers what was served to it."""

    def __init__(self, product: Product, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.product, self.stop = product, stop
        self.served: list[str] = []
        self.not_served = 0

    def run(self) -> None:
        while not self.stop.is_set():
            body = {"model": "drafts", "messages": [{"role": "user", "content": "ping"}]}
            request = urllib.request.Request(
                f"{self.product.gateway}/v1/chat/completions",
                json.dumps(body).encode(),
                {"content-type": "application/json", "x-switchgear-task": f"kill-{uuid.uuid4()}"},
            )
            try:
                with urllib.request.urlopen(request, timeout=40) as response:
                    json.load(response)
                    self.served.append(response.headers["x-switchgear-request"])
            except (urllib.error.URLError, OSError, ValueError):
                self.not_served += 1
                time.sleep(0.05)


def workers_of(parent: int) -> list[int]:
    """The pids of a process' children (Linux)."""
    tasks = Path(f"/proc/{parent}/task").glob("*/children")
    return [int(pid) for task in tasks for pid in task.read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds workers through /proc")
def test_what_was_served_is_stored_once_after_kills(tmp_path: Path) -> None:
    with Product.running(tmp_path) as product:
        stop = threading.Event()
        callers = [Caller(product, stop) for _ in range(CALLERS)]
        for caller in callers:
            caller.start()
        began = time.monotonic()
        kills = 0
        while time.monotonic() - began < SECONDS:
            wait_until(lambda: False, 3.0)
            if kills % 2 == 0:
                os.kill(product.child("web"), signal.SIGKILL)
            else:
                living = workers_of(product.child("gateway"))
                assert living
                os.kill(living[kills // 2 % len(living)], signal.SIGKILL)
            kills += 1
        stop.set()
        for caller in callers:
            caller.join(60)
        served = {request for caller in callers for request in caller.served}
        assert kills >= 4
        assert len(served) > 20

        def missing() -> set[str]:
            rows = product.query(
                "SELECT request::text FROM outcome WHERE task LIKE 'kill-%%' AND success"
            )
            stored = [row[0] for row in rows]
            assert len(stored) == len(set(stored)), "an outcome was stored twice"
            return served - set(stored)

        wait_until(lambda: not missing(), 60)
        assert missing() == set()
        doubled = product.query(
            "SELECT id FROM attempt GROUP BY gateway_id, id HAVING count(*) > 1 LIMIT 5"
        )
        assert doubled == []
        tasks = product.query(
            "SELECT count(*) FROM task WHERE task LIKE 'kill-%%' AND implicit_success"
        )
        assert tasks[0][0] >= len(served)
