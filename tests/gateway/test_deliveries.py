"""An idempotency key is known to every worker of a gateway on a host: real processes, one file."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from gateway import deliveries
from gateway.deliveries import Deliveries
from gateway.redelivery import REMEMBERED_S, Redeliveries, Seen
from tests.gateway.test_workers import CHAT, children, gateway, ready
from tests.gateway.waiting import until


class Worker:
    """A process of ``delivery_process``."""

    def __init__(self, process: Process) -> None:
        self.process = process

    async def says(self, *command: object) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write((" ".join(map(str, command)) + "\n").encode())
        async with asyncio.timeout(30):
            return (await self.process.stdout.readline()).decode().strip()


@asynccontextmanager
async def worker(path: Path) -> AsyncIterator[Worker]:
    module = ("-m", "tests.gateway.delivery_process", str(path))
    process = await asyncio.create_subprocess_exec(sys.executable, *module, stdin=PIPE, stdout=PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(30):
            assert await process.stdout.readline() == b"ready\n"
        yield Worker(process)
    finally:
        if process.returncode is None:
            process.kill()
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


async def test_what_one_worker_serves_or_served_the_others_know(tmp_path: Path) -> None:
    path = tmp_path / "run" / "deliveries"
    async with worker(path) as first, worker(path) as second:
        assert await first.says("begin", "k", 100) == "NEVER"
        assert await second.says("begin", "k", 101) == "IN_FLIGHT"
        assert await second.says("begin", "other", 101) == "NEVER"
        await first.says("end", "k", 102)
        assert await second.says("begin", "k", 103) == "BEFORE"
        assert await first.says("begin", "k", 104) == "IN_FLIGHT"
        await second.says("end", "k", 105)
        assert await first.says("begin", "k", 105 + REMEMBERED_S - 1) == "BEFORE"
        await first.says("end", "k", 1000)
        assert await second.says("begin", "k", 1000 + REMEMBERED_S) == "NEVER"
    assert path.stat().st_mode & 0o777 == 0o600


async def test_what_a_killed_worker_was_serving_is_free(tmp_path: Path) -> None:
    path = tmp_path / "deliveries"
    async with worker(path) as first, worker(path) as second:
        assert await first.says("begin", "k", 100) == "NEVER"
        first.process.send_signal(signal.SIGSTOP)
        assert await second.says("begin", "k", 101) == "IN_FLIGHT", "stopped is not dead"
        first.process.kill()
        await first.process.wait()
        assert await second.says("begin", "k", 102) == "BEFORE"
        async with worker(path) as third:
            # In the dead one's place, and not taken for it.
            assert await third.says("begin", "k", 103) == "IN_FLIGHT"
            assert await third.says("begin", "new", 103) == "NEVER"
            await second.says("end", "k", 104)
            assert await third.says("begin", "k", 105) == "BEFORE"


async def test_a_new_worker_in_a_dead_ones_place_is_not_taken_for_it(tmp_path: Path) -> None:
    path = tmp_path / "deliveries"
    async with worker(path) as first:
        assert await first.says("begin", "k", 100) == "NEVER"
        first.process.kill()
        await first.process.wait()
    async with worker(path) as heir, worker(path) as other:
        assert await heir.says("begin", "its-own", 101) == "NEVER"
        assert await other.says("begin", "k", 102) == "BEFORE"


def test_the_file_never_grows_and_forgets_the_oldest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "BUCKETS", 2)
    held = Deliveries(tmp_path / "deliveries")
    for number in range(500):
        held.begin(number.to_bytes(16, "little"), number + 1.0)
        if number >= 8:
            held.end(number.to_bytes(16, "little"), number + 1.0)
    most = deliveries._HEAD_BYTES + 2 * deliveries._BUCKET_BYTES
    assert (tmp_path / "deliveries").stat().st_size <= most
    # The first eight are in flight still and fill their buckets' places: they are not forgotten.
    assert held.begin((0).to_bytes(16, "little"), 501.0) is Seen.BEFORE
    held.close()


def test_without_a_file_a_worker_knows_its_own_keys(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("not a directory")
    keys = Redeliveries(Deliveries(tmp_path / "run" / "deliveries"))
    assert keys.begin("t", "k", 1.0) is Seen.NEVER
    assert keys.begin("t", "k", 2.0) is Seen.IN_FLIGHT
    keys.end("t", "k", 3.0)
    assert keys.begin("t", "k", 4.0) is Seen.BEFORE


@pytest.mark.parametrize("damage", [b"", b"\xff" * 5000, b"\0" * 5000])
def test_a_damaged_file_is_an_empty_one(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "deliveries"
    path.write_bytes(damage)
    keys = Redeliveries(Deliveries(path))
    for number in range(200):
        assert keys.begin("t", str(number), 1.0) is Seen.NEVER
        keys.end("t", str(number), 2.0)


def test_tenants_do_not_share_keys(tmp_path: Path) -> None:
    keys = Redeliveries(Deliveries(tmp_path / "deliveries"))
    assert keys.begin("one", "k", 1.0) is Seen.NEVER
    assert keys.begin("two", "k", 1.0) is Seen.NEVER


async def test_a_redelivery_is_one_whichever_worker_it_reaches(tmp_path: Path) -> None:
    async with gateway(tmp_path, 2) as (process, url, _), aiohttp.ClientSession() as http:
        await ready(http, url)
        await until(lambda: len(children(process.pid)) == 2)

        async def ask(key: str) -> tuple[int, str]:
            # A connection each: the kernel gives it to whichever worker takes it first.
            headers = {"idempotency-key": key, "connection": "close"}
            post = http.post(f"{url}/v1/chat/completions", json=CHAT, headers=headers)
            async with post as answer:
                await answer.read()
                return answer.status, answer.headers.get("x-switchgear-decision", "")

        together = await asyncio.gather(*(ask("same") for _ in range(40)))
        assert {status for status, _ in together} <= {200, 409}
        decisions = [decision for status, decision in together if status == 200]
        # One was the first, by whichever worker; who came after its end was a redelivery.
        assert decisions.count("first") == 1
        assert set(decisions) <= {"first", "redelivery"}
        assert {await ask("same") for _ in range(20)} == {(200, "redelivery")}
