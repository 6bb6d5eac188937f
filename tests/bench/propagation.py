"""An operator's commit until every instance says that it enforces it; and a whole fleet's return.

One web worker; the instances are one asyncio process that runs the real watch client, breakers and
status sender. The times are the control plane's own (``enforcedMs``: from the override's recording
to the arrival of the report that says Applied), over ``BENCH_ROUNDS`` (10) overrides.
``BENCH_INSTANCES`` (200,1000) are spread over twenty gateways. ``cpu`` is processor time that one
change takes for one instance, in the web process and in the one that plays the instances: where it
is more than a millisecond in all, 2,000 ms for 1,000 of them on two cores cannot be.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from tests.bench._stand import Stand, add_gateways, new_database, postgres, web
from tests.bench.figures import Figure, say

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "10"))
SIZES = [int(n) for n in os.environ.get("BENCH_INSTANCES", "200,1000").split(",")]
OPERATOR = "bench-operator-" + "x" * 32
PATIENCE_S = 120.0
# In life each instance has a disk of its own; here hundreds would wait for one disk's fsync.
DISK = os.environ.get("BENCH_INSTANCE_DISK", "/dev/shm" if Path("/dev/shm").is_dir() else None)
AIMS_MS = {200: 500.0, 1000: 2000.0}
POLLING = 20


@dataclass(frozen=True, slots=True)
class Fleet:
    """A running process of instances."""

    process: subprocess.Popen[str]
    count: int

    def seen(self) -> dict[str, float]:
        """What it saw since this was last asked."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return dict(json.loads(self.process.stdout.readline()))


def measure() -> Iterator[Figure]:
    """Times to enforced at each size, the poll's, and the return after a restart."""
    with postgres() as server:
        dsn = new_database(server, "propagation")
        tokens = add_gateways(dsn)
        _add_operator(dsn)
        with web(dsn, tokens) as stand:
            # The first change compiles every gateway's first snapshot.
            _release(stand, _force(stand))
            for count in SIZES:
                yield from _enforced(stand, count)
            yield from _polled(stand)
        yield from _return(dsn, tokens, max(SIZES))


def _enforced(stand: Stand, count: int) -> Iterator[Figure]:
    with _fleet(stand, count) as fleet:
        _until_in_sync(stand, count)
        times: list[float] = []
        web_s, before = stand.cpu_seconds(), fleet.seen()
        for number in range(ROUNDS):
            name = _force(stand)
            took = _until_enforced(stand, name, count)
            times += took
            _release(stand, name)
            say(f"{count} instances, round {number}: p50 {_at(took, 50)} p99 {_at(took, 99)} ms")
            time.sleep(0.5)
        web_s, seen = stand.cpu_seconds() - web_s, fleet.seen()
    changes = 2 * ROUNDS * count  # each override comes and goes
    aim = AIMS_MS.get(count)
    name = f"propagation.{count}"
    yield Figure(f"{name}.enforced_p50", _at(times, 50), "ms")
    against = f"the aim of {aim:g} ms" if aim else None
    p99 = _at(times, 99)
    yield Figure(f"{name}.enforced_p99", p99, "ms", against, p99 / aim if aim else None)
    yield Figure(f"{name}.longest_status_answer", seen["longest_s"] * 1000, "ms")
    yield Figure(f"{name}.reports_not_taken", seen["not_taken"], "of " + str(int(seen["sent"])))
    yield Figure(f"{name}.web_cpu", web_s * 1000 / changes, "ms")
    fleet_s = seen["cpu_s"] - before["cpu_s"]
    yield Figure(f"{name}.instances_cpu", fleet_s * 1000 / changes, "ms")


def _polled(stand: Stand) -> Iterator[Figure]:
    """Without any stream: the poll alone."""
    with _fleet(stand, POLLING, poll_only=True):
        _until_in_sync(stand, POLLING)
        name = _force(stand)
        took = _until_enforced(stand, name, POLLING)
        _release(stand, name)
    worst = max(took)
    yield Figure("propagation.poll_only.enforced_max", worst, "ms", "the aim of 7 s", worst / 7000)


def _return(dsn: str, tokens: tuple[str, ...], count: int) -> Iterator[Figure]:
    """The control plane is killed and comes back on the same port."""
    with web(dsn, tokens) as stand, _fleet(stand, count) as fleet:
        _until_in_sync(stand, count)
        os.kill(stand.web_pid, 9)
        time.sleep(3)
        fleet.seen()
        with web(dsn, tokens, port=stand.port) as again:
            seconds = _until_in_sync(again, count, since=again.accepted_at) - again.accepted_at
            longest = fleet.seen()["longest_s"]
    yield Figure("propagation.return.all_in_sync", seconds, "s", "the aim of 15 s", seconds / 15)
    yield Figure("propagation.return.longest_answer", longest, "s", "the aim of 5 s", longest / 5)


@contextmanager
def _fleet(stand: Stand, count: int, *, poll_only: bool = False) -> Iterator[Fleet]:
    folder = tempfile.mkdtemp(prefix="switchgear-bench-", dir=DISK)
    gateways = [(f"gateway-{n:02d}", token) for n, token in enumerate(stand.tokens)]
    order = {
        "url": f"http://127.0.0.1:{stand.port}",
        "per_gateway": count // len(gateways),
        "poll_only": poll_only,
        "folder": folder,
        "gateways": gateways,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench._instances"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError("the instances did not start")
        yield Fleet(process, count)
    finally:
        process.kill()
        process.wait()
        with psycopg.connect(stand.dsn, autocommit=True) as db:
            db.execute("UPDATE instance SET goodbye_at = now() WHERE goodbye_at IS NULL")
        shutil.rmtree(Path(folder), ignore_errors=True)


def _add_operator(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute(
            "INSERT INTO service_token (name, role, sha256, created_at, created_by)"
            " VALUES ('bench', 'operator', %s, now(), 'bench')",
            (hashlib.sha256(OPERATOR.encode()).digest(),),
        )
        db.execute(
            "INSERT INTO circuit (provider, model, region, first_seen_at)"
            " VALUES ('openai', 'gpt-4.1-mini', '', now()) ON CONFLICT DO NOTHING"
        )


def _force(stand: Stand) -> str:
    body = {"mode": "ForceOpen", "provider": "openai", "reason": "bench", "expiresIn": "10m"}
    return str(_ask(stand, "POST", "/overrides", body)["metadata"]["name"])


def _release(stand: Stand, name: str) -> None:
    _ask(stand, "POST", f"/overrides/{name}/release", {})


def _until_enforced(stand: Stand, name: str, count: int) -> list[float]:
    """Milliseconds to enforced, by instance. Looks seldom, so that looking costs little."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        time.sleep(0.5)
        with psycopg.connect(stand.dsn) as db:
            rows = db.execute(
                "SELECT extract(epoch FROM d.acknowledged_at - o.updated_at) * 1000"
                " FROM delivery d JOIN override o ON o.uid::text = d.uid"
                " WHERE o.name = %s AND d.verdict = 'Applied'",
                (name,),
            ).fetchall()
        if len(rows) >= count:
            return [float(row[0]) for row in rows]
    raise RuntimeError(f"{name} was enforced by {len(rows)} of {count} instances")


_IN_SYNC = """
SELECT count(*) FROM instance i JOIN gateway_config c USING (gateway_id) CROSS JOIN revision r
WHERE i.goodbye_at IS NULL AND i.replaced_at IS NULL AND i.last_seen_at > to_timestamp(%s)
  AND (i.applied_generation, i.applied_hash, i.epoch) = (c.generation, c.hash, r.epoch::text)
"""


def _until_in_sync(stand: Stand, count: int, since: float = 0.0) -> float:
    """When all have reported after ``since`` (a time of day) that they run what is desired.

    Asked of the database: the page that shows it takes processor time of the web process.
    """
    deadline = time.monotonic() + PATIENCE_S
    found = 0
    with psycopg.connect(stand.dsn, autocommit=True) as db:
        while time.monotonic() < deadline:
            row = db.execute(_IN_SYNC, (since,)).fetchone()
            found = row[0] if row else 0
            if found == count:
                return time.time()
            time.sleep(0.1)
    raise RuntimeError(f"not in sync: {found} of {count}")


def _ask(stand: Stand, method: str, path: str, body: Any = None) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{stand.port}/api/v1{path}",
        json.dumps(body).encode() if body is not None else None,
        {"Authorization": f"Bearer {OPERATOR}", "Content-Type": "application/json"},
        method=method,
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{method} {path}: {error.code} {error.read()[:500]!r}") from error


def _at(values: list[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
