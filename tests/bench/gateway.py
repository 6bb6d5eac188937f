"""The gateway's proxy beside a bare pass-through of the same parts, spool on.

Processes: the simulator's ``bench`` scenario, which answers at once; a bare pass-through; one
gateway worker without a control plane; and, for each round, a load client. Rounds are interleaved.
``direct`` is the load client on the simulator itself: what everything but the middle costs.
``cpu`` is the processor time of the serving process (Linux only), which a busy machine bends least.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from tests.bench.figures import Figure, interleaved, say

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "7"))
SECONDS = float(os.environ.get("BENCH_SECONDS", "1.5"))
READY_S = 30.0
MODEL = "gpt-4.1-mini"
_WORDS = "alder birch cedar elm fir hazel larch maple oak pine "

CONFIG = """
[gateway]
name = "bench"
port = {port}
data_dir = "{folder}"
workers = 1
[[providers]]
name = "openai"
base_url = "{upstream}/openai/v1"
keys = [{{ name = "main", secret = "bench" }}]
[[routes]]
name = "{model}"
targets = [{{ provider = "openai", model = "{model}" }}]
"""


@dataclass(frozen=True, slots=True)
class Subject:
    """Where a load client sends, and the process whose processor time that costs."""

    url: str
    process: int


def measure() -> Iterator[Figure]:
    """Throughput and median time at 1 and 32 connections, plain and streamed."""
    with ExitStack() as stack:
        subjects = start(stack)
        for stream in (False, True):
            for connections in (1, 32):
                yield from _compare(subjects, stream, connections)


def _compare(subjects: dict[str, Subject], stream: bool, connections: int) -> Iterator[Figure]:
    case = f"gateway.{'stream' if stream else 'plain'}.{connections}"
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in subjects}

    def once(name: str) -> float:
        subject = subjects[name]
        before = _processor_s(subject.process)
        told = load(subject.url, stream, connections)
        used = _processor_s(subject.process) - before
        runs[name].append({**told, "cpu_us": used / told["requests"] * 1e6})
        return told["per_s"]

    for subject in subjects.values():
        load(subject.url, stream, connections, 0.5)  # connections, caches, the first requests
    rates = interleaved({name: partial(once, name) for name in subjects}, ROUNDS)
    say(f"{case}: per_s { ({name: [round(r) for r in all] for name, all in rates.items()}) }")
    rate = {name: median(values) for name, values in rates.items()}
    p50 = {name: median(one["p50_ms"] for one in all) for name, all in runs.items()}
    p99 = {name: median(one["p99_ms"] for one in all) for name, all in runs.items()}
    for name in ("direct", "bare"):
        yield Figure(f"{case}.{name}.rate", rate[name], "1/s")
    yield Figure(f"{case}.rate", rate["ours"], "1/s", "bare", rate["ours"] / rate["bare"])
    yield Figure(f"{case}.p50", p50["ours"], "ms", "bare", p50["ours"] / p50["bare"])
    yield Figure(f"{case}.p99", p99["ours"], "ms", "bare", p99["ours"] / p99["bare"])
    if all(one["cpu_us"] for one in runs["bare"]):
        cpu = {name: median(one["cpu_us"] for one in all) for name, all in runs.items()}
        yield Figure(f"{case}.cpu", cpu["ours"], "us/request", "bare", cpu["ours"] / cpu["bare"])
    for name in ("bare", "direct"):
        yield Figure(f"{case}.added_p50", p50["ours"] - p50[name], "ms", name)


def load(url: str, stream: bool, connections: int, seconds: float = SECONDS) -> dict[str, float]:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": _WORDS * 20}],
        "max_tokens": 64,
        "stream": stream,
    }
    options = ["--connections", str(connections), "--seconds", str(seconds)]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.bench._load", url, *options],
        input=json.dumps(body).encode(),
        capture_output=True,
        timeout=seconds + 60,
        check=False,
    )
    if ended.returncode:
        raise RuntimeError(ended.stderr.decode("utf-8", "replace").strip())
    return json.loads(ended.stdout)


def start(stack: ExitStack) -> dict[str, Subject]:
    """Start everything; the subjects by name."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="switchgear-bench-")))
    upstream, bare, ours = (_free_port() for _ in range(3))
    origin = f"http://127.0.0.1:{upstream}"
    direct = f"{origin}/openai/v1/chat/completions"
    config = folder / "gateway.toml"
    config.write_text(
        CONFIG.format(port=ours, folder=folder / "data", upstream=origin, model=MODEL)
    )
    commands = {
        "direct": ["gateway.simulator", "--scenario", "bench", "--port", str(upstream)],
        "bare": ["tests.bench._bare", "--port", str(bare), "--upstream", direct],
        "ours": ["gateway", "--config", str(config)],
    }
    processes = {
        name: stack.enter_context(_process([sys.executable, "-m", *command], folder / name))
        for name, command in commands.items()
    }
    ready = {
        "direct": f"{origin}/healthz",
        "bare": f"http://127.0.0.1:{bare}/ready",
        "ours": f"http://127.0.0.1:{ours}/readyz",
    }
    for name, child in processes.items():
        _until_ready(ready[name], child, folder / name)
    ports = {"bare": bare, "ours": ours}
    urls = {name: f"http://127.0.0.1:{port}/v1/chat/completions" for name, port in ports.items()}
    urls["direct"] = direct
    # The gateway serves in a child of the process that was started.
    return {name: Subject(urls[name], _serving(processes[name].pid)) for name in commands}


@contextmanager
def _process(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as child:
        try:
            yield child
        finally:
            child.terminate()
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()


def _serving(process: int) -> int:
    """The process itself, or its first child when it has one. Linux; elsewhere itself."""
    children = Path(f"/proc/{process}/task/{process}/children")
    names = children.read_text().split() if children.exists() else []
    return int(names[0]) if names else process


def _processor_s(process: int) -> float:
    """User and system seconds that a process has used; 0 where the system does not tell."""
    stat = Path(f"/proc/{process}/stat")
    if not stat.exists():
        return 0.0
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _until_ready(url: str, child: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError as error:  # refused, reset, or too slow to answer while it starts
            if child.poll() is not None or time.monotonic() > deadline:
                said = log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{url} did not become ready: {error}\n{said}") from error
        time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
