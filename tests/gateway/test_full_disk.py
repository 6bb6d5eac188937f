"""A disk without room, for real: a small file system that is full (needs the right to mount)."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest

from gateway.adoption import adopt
from tests.gateway.build import attempt
from tests.gateway.test_spool import outcome, sent, spool


@contextmanager
def small_disk(at: Path, size: int) -> Iterator[Path]:
    """A file system of its own that takes so many bytes and not one more."""
    at.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(at)], capture_output=True
    )
    if made.returncode:
        pytest.skip("needs the right to mount")
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)


@pytest.mark.parametrize("left", [0, 4096, 7 * 4096])
def test_a_disk_without_room_loses_nothing_and_is_used_again(tmp_path: Path, left: int) -> None:
    with small_disk(tmp_path / "disk", 64 * 4096) as disk:
        held = spool(disk, events=40)
        fill = disk / "other"
        fill.write_bytes(b"x" * (shutil.disk_usage(disk).free - left))
        events = [outcome(number) for number in range(197)]
        call = attempt()
        held.begin(call)
        for event in events:
            held.append(event)
        assert not held.on_disk
        assert held.status().events == 197
        fill.unlink()
        held.seal()
        held.append(call)
        assert held.on_disk
        held.seal()
        batches = list(sent(held.outbox))
        assert [b["seq"] for b in batches] == list(range(1, len(batches) + 1))
        ids = [UUID(e["id"]) for b in batches for e in b["events"]]
        assert ids == [event.id for event in [*events, call]]
        assert held.dropped.total() == 0
        held.close()


def test_a_spool_is_adopted_once_the_disk_has_room(tmp_path: Path) -> None:
    """What its dead owner had begun must be written to it first."""
    with small_disk(tmp_path / "disk", 64 * 4096) as disk:
        held = spool(disk)
        events, calls = [outcome(number) for number in range(5)], [attempt() for _ in range(40)]
        for event in events:
            held.append(event)
        for call in calls:
            held.begin(call)
        os.close(held._lock_fd)
        fill = disk / "other"
        fill.write_bytes(b"x" * shutil.disk_usage(disk).free)
        assert not list(adopt(disk, "demo"))
        fill.unlink()
        (taken,) = adopt(disk, "demo")
        (batch,) = sent(taken.outbox)
        ids = [UUID(e["id"]) for e in batch["events"]]
        assert ids[:5] == [event.id for event in events]
        assert sorted(ids[5:]) == sorted(call.id for call in calls)
        taken.finish()


def test_memory_is_bounded_behind_batches_that_are_on_the_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 64 * 4096) as disk:
        held = spool(disk, events=10, memory=4000)
        for number in range(50):
            held.append(outcome(number))
        (disk / "other").write_bytes(b"x" * shutil.disk_usage(disk).free)
        for number in range(50, 400):
            held.append(outcome(number))
        waiting = held.outbox._waiting
        assert sum(batch.size for batch in waiting if batch.path is None) <= 4000
        status = held.status()
        assert status.events + status.dropped == 400
        first = next(sent(held.outbox))
        assert [e["id"] for e in first["events"]] == [str(outcome(n).id) for n in range(10)], (
            "what is on the disk costs no memory and is not given up for it"
        )
