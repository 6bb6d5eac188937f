"""The workers of one gateway on one host: real processes, real sockets and files."""

import asyncio
import fcntl
import os
import signal
import socket
import stat
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from controlplane.domain.breaker import Cause, Transition
from controlplane.domain.breaker_policy import Counters, Mode, State
from controlplane.domain.circuit import Circuit
from controlplane.domain.gate import Refusal
from gateway.leases import Lease, ProbeLeases
from gateway.siblings import Siblings
from tests.gateway.build import EAST
from tests.gateway.waiting import until

OPENED = Transition(
    number=2,
    from_state=State.CLOSED,
    to_state=State.OPEN,
    cause=Cause.CONSECUTIVE_FAILURES,
    at=0.0,
    counters=Counters(5, 5, 0, 5, 0),
    next_probe_at=1.0,
    mode=Mode.AUTO,
)


class Worker:
    """A process of ``sibling_process``."""

    def __init__(self, process: Process) -> None:
        self.process = process

    async def says(self, command: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{command}\n".encode())
        async with asyncio.timeout(10):
            return (await self.process.stdout.readline()).decode().strip()

    async def comes_to(self, command: str, wanted: str) -> None:
        """Ask again and again until the answer is the one that is wanted."""
        async with asyncio.timeout(10):
            while await self.says(command) != wanted:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.005)


@asynccontextmanager
async def two_workers(directory: Path) -> AsyncIterator[tuple[Worker, Worker]]:
    module = ("-m", "tests.gateway.sibling_process", str(directory))
    processes = [
        await asyncio.create_subprocess_exec(sys.executable, *module, stdin=PIPE, stdout=PIPE)
        for _ in range(2)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            async with asyncio.timeout(30):
                assert await process.stdout.readline() == b"ready\n"
        yield Worker(processes[0]), Worker(processes[1])
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
            assert process.stdin is not None
            process.stdin.close()
            await process.wait()


async def opened(one: Worker) -> None:
    for _ in range(5):
        assert await one.says("fail") == "recorded"


async def test_a_sibling_opens_and_closes_with_the_one_that_found_out(tmp_path: Path) -> None:
    async with two_workers(tmp_path / "run") as (one, other):
        assert await other.says("state") == "Closed Boot"
        await opened(one)
        await other.comes_to("state", "Open Sibling")
        # Both are half-open by the same deadline; whoever probes first closes both.
        await other.comes_to("admit", "admitted")
        assert await other.says("finish") == "recorded"
        assert await other.says("state") == "Closed ProbeSucceeded"
        await one.comes_to("state", "Closed Sibling")


async def test_one_probe_is_out_on_the_whole_host(tmp_path: Path) -> None:
    async with two_workers(tmp_path / "run") as (one, other):
        await opened(one)
        await one.comes_to("admit", "admitted")
        await other.comes_to("state", "HalfOpen OpenPeriodOver")
        assert await other.says("admit") == "refused HalfOpen"
        assert await one.says("admit") == "refused HalfOpen"
        assert await one.says("finish") == "recorded"
        await other.comes_to("state", "Closed Sibling")


async def test_the_probe_of_a_dead_process_is_free_again(tmp_path: Path) -> None:
    async with two_workers(tmp_path / "run") as (one, other):
        await opened(one)
        await one.comes_to("admit", "admitted")
        await other.comes_to("state", "HalfOpen OpenPeriodOver")
        assert await other.says("admit") == "refused HalfOpen"
        one.process.send_signal(signal.SIGKILL)
        await one.process.wait()
        await other.comes_to("admit", "admitted")


def test_never_more_than_the_allowed_leases_are_out(tmp_path: Path) -> None:
    leases = [ProbeLeases(tmp_path) for _ in range(3)]
    taken = [one.take(EAST, 2, 10.0, 100.0) for one in leases]
    assert [type(one) for one in taken] == [Lease, Lease, Refusal]
    assert isinstance(taken[2], Refusal)
    assert taken[2].retry_at == 110.0
    assert isinstance(leases[2].take(Circuit("p", "m"), 2, 10.0, 100.0), Lease)
    assert isinstance(taken[0], Lease)
    leases[0].release(taken[0])
    assert isinstance(leases[2].take(EAST, 2, 10.0, 101.0), Lease)


@pytest.mark.parametrize("damage", [b"", b"[1,2", b'{"a":1}', b"[[1]]", b"\xff\x00"])
def test_a_damaged_lease_file_holds_nobody_up(tmp_path: Path, damage: bytes) -> None:
    one = ProbeLeases(tmp_path)
    assert isinstance(one.take(EAST, 1, 10.0, 0.0), Lease)
    (file,) = tmp_path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_bytes(damage)
    assert isinstance(one.take(EAST, 1, 10.0, 1.0), Lease)


def test_a_lease_ends_by_its_time_and_one_of_an_earlier_start_at_once(tmp_path: Path) -> None:
    one, other = ProbeLeases(tmp_path), ProbeLeases(tmp_path)
    one.take(EAST, 1, 10.0, 1_000_000.0)
    assert isinstance(other.take(EAST, 1, 10.0, 1_000_009.9), Refusal)
    assert isinstance(other.take(EAST, 1, 10.0, 1_000_010.0), Lease)
    # The machine was started again: its monotonic clock began anew.
    assert isinstance(other.take(EAST, 1, 10.0, 5.0), Lease)


def test_a_file_that_stays_locked_wedges_nobody(tmp_path: Path) -> None:
    one = ProbeLeases(tmp_path)
    assert isinstance(one.take(EAST, 1, 10.0, 0.0), Lease)
    (file,) = tmp_path.iterdir()
    with file.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        soon = one.take(EAST, 1, 10.0, 1.0)
        assert isinstance(soon, Refusal)
        assert soon.retry_at == pytest.approx(1.05)
        assert isinstance(one.take(EAST, 1, 10.0, 11.0), Lease)


def test_a_directory_that_cannot_be_used_leaves_each_alone(tmp_path: Path) -> None:
    gone = ProbeLeases(tmp_path / "missing")
    lease = gone.take(EAST, 1, 10.0, 0.0)
    assert isinstance(lease, Lease)
    gone.release(lease)


async def listening(
    directory: Path, boot: str, heard: list[Transition], now: Callable[[], float] = time.monotonic
) -> Siblings:
    one = Siblings(directory, boot, now)
    one.start(lambda _circuit, done: heard.append(done))
    return one


async def test_nonsense_from_a_socket_is_dropped(tmp_path: Path) -> None:
    directory, heard = tmp_path / ("deep" * 30), list[Transition]()
    directory.mkdir(0o700)  # longer than a socket's address may be
    one = await listening(directory, "one", heard, lambda: 0.0)
    other = await listening(directory, "other", [], lambda: 0.0)
    assert stat.S_IMODE((directory / "one.sock").stat().st_mode) == 0o600
    descriptor = os.open(directory, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        for data in (b"", b"\x00" * 100, b'{"provider":1}', b"[" * 2000, b"x" * 4000):
            stranger.sendto(data, f"/proc/self/fd/{descriptor}/one.sock")
    os.close(descriptor)
    other.tell(EAST, OPENED)
    await until(lambda: heard)
    assert [done.to_state for done in heard][:1] == [State.OPEN]
    one.close()
    other.close()
    assert not list(directory.glob("*.sock"))


async def test_a_sibling_that_does_not_read_costs_nothing_but_its_messages(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    one = await listening(directory, "one", [])
    deaf = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    deaf.bind(str(directory / "deaf.sock"))
    for _ in range(2000):
        one.tell(EAST, OPENED)
    assert one.lost > 0
    deaf.close()
    one.tell(EAST, OPENED)  # nobody reads it any more: the dead socket is swept away
    assert one.others() == []
    one.close()


async def test_what_a_worker_did_not_find_out_by_itself_is_not_told(tmp_path: Path) -> None:
    directory, heard = tmp_path / "run", list[Transition]()
    one = await listening(directory, "one", heard)
    other = await listening(directory, "other", [])
    for cause in (Cause.BOOT, Cause.SIBLING, Cause.OVERRIDE_EXPIRED, Cause.STUCK):
        other.tell(EAST, _with(cause))
    other.tell(EAST, _with(Cause.RESET))
    await until(lambda: heard)
    assert [done.cause for done in heard] == [Cause.RESET]
    one.close()
    other.close()


def _with(cause: Cause) -> Transition:
    fields = {name: getattr(OPENED, name) for name in Transition.__slots__}
    return Transition(**(fields | {"cause": cause}))
