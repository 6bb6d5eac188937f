"""No event that was appended is lost or sent twice, wherever the process dies."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.wire.events import Attempt, Outcome, Transition, mint_id
from gateway import records
from gateway.adoption import adopt, forget_oldest
from gateway.outbox import Identity, Outbox
from gateway.spool import Bounds, Spool
from tests.gateway.build import attempt
from tests.gateway.fake_clock import START, FakeClock

ROOT = Path(__file__).parents[2]


def spool(root: Path, boot: UUID | None = None, index: int = 0, **bounds: int) -> Spool:
    who = Identity(boot or uuid4(), f"host/{index}", "demo")
    return Spool(root, index, who, FakeClock(), Bounds(**bounds))


def outcome(number: int) -> Outcome:
    return Outcome(id=mint_id(START, number), occurred_at=START, request=uuid4(), success=True)


def transition(number: int) -> Transition:
    where = {"provider": "openai", "model": "gpt-4o", "cause": "FailureRatio"}
    return Transition(
        id=mint_id(START, 10_000 + number), occurred_at=START, number=number,
        from_state="Closed", to_state="Open", **where,
    )  # fmt: skip


def sent(outbox: Outbox) -> Iterator[dict[str, Any]]:
    """What a control plane that takes everything is sent."""
    while (batch := outbox.head()) is not None:
        yield json.loads(outbox.body(batch, "e1", 3))
        outbox.acknowledge(batch)


def test_what_is_sealed_is_sent_once_under_a_number_without_holes(tmp_path: Path) -> None:
    held = spool(tmp_path, events=3)
    wanted = [attempt() for _ in range(7)]
    for event in wanted:
        held.append(event)
    held.seal()
    held.seal()
    batches = list(sent(held.outbox))
    assert [batch["seq"] for batch in batches] == [1, 2, 3]
    assert [len(batch["events"]) for batch in batches] == [3, 3, 1]
    assert [UUID(e["id"]) for b in batches for e in b["events"]] == [e.id for e in wanted]
    assert {(b["slot"], b["epoch"], b["generation"]) for b in batches} == {("host/0", "e1", 3)}
    assert held.status().events == 0


def test_a_batch_is_the_same_each_time_it_is_sent(tmp_path: Path) -> None:
    held = spool(tmp_path)
    held.append(attempt())
    held.seal()
    batch = held.outbox.head()
    assert batch is not None
    first, second = (json.loads(held.outbox.body(batch, "e1", 1)) for _ in range(2))
    held.append(attempt())
    third = json.loads(held.outbox.body(batch, "e1", 1))
    assert first["events"] == second["events"] == third["events"]
    assert first["seq"] == third["seq"]


def test_a_clean_end_leaves_no_directory(tmp_path: Path) -> None:
    held = spool(tmp_path)
    held.append(attempt())
    held.seal()
    list(sent(held.outbox))
    held.close()
    assert not list((tmp_path / "0").iterdir())


@st.composite
def lives(draw: st.DrawFn) -> tuple[list[tuple[str, int]], int]:
    """A process's appends, and how many bytes of its last segment reached the disk."""
    steps: list[tuple[str, int]] = []
    running: list[int] = []
    for number in range(draw(st.integers(1, 25))):
        what = draw(st.sampled_from(["begin", "end", "other", "seal"]))
        if what == "begin":
            running.append(number)
            steps.append(("begin", number))
        elif what == "end" and running:
            ended = running.pop(draw(st.integers(0, len(running) - 1)))
            steps.append(("end", ended))
        else:
            steps.append(("seal" if what == "seal" else "other", number))
    return steps, draw(st.integers(0, 2**16))


@settings(max_examples=80, deadline=None)
@given(lives())
def test_a_crash_at_any_byte_loses_no_whole_event_and_doubles_none(
    life: tuple[list[tuple[str, int]], int],
) -> None:
    steps, cut = life
    with TemporaryDirectory() as name:
        alive, dead = Path(name) / "alive", Path(name) / "dead"
        boot = uuid4()
        held = spool(alive, boot, events=4)
        calls: dict[int, Attempt] = {}
        for what, number in steps:
            if what == "begin":
                calls[number] = attempt(uid=mint_id(START, number))
                held.begin(calls[number])
            elif what == "end":
                held.append(calls[number])
            elif what == "other":
                held.append(outcome(number))
            else:
                held.seal()
        # The copy's lock is nobody's, as if the process had just been killed.
        shutil.copytree(alive, dead)
        last = max((dead / "0" / str(boot)).glob("*.open"))
        kept = last.read_bytes()[:cut]
        last.write_bytes(kept)
        whole = records.read(kept)
        expected = [json.loads(p) for batch in held.outbox._waiting for _, p in batch.read().events]
        expected += [json.loads(payload) for _, payload in whole.events]
        ended = {event["id"] for event in expected if event["kind"] == "attempt"}
        begun = {json.loads(payload)["id"] for payload in whole.marks}

        (adopted,) = adopt(dead, "demo")
        batches = list(sent(adopted.outbox))
        adopted.finish()
        events = [event for batch in batches for event in batch["events"]]
        died = [event for event in events if event.get("reason") == "gateway_died"]
        assert {(b["instance"], b["slot"]) for b in batches} <= {(str(boot), "host/0")}
        assert [b["seq"] for b in batches] == list(range(1, len(batches) + 1))
        assert [e for e in events if e not in died] == expected
        assert sorted(e["id"] for e in died) == sorted(begun - ended)
        assert all(e["billing"] == "unknown" and not e.get("served") for e in died)
        assert not list(dead.glob("*/*"))
        held.close()


def test_an_adoption_cut_short_is_repeated_with_the_same_batches(tmp_path: Path) -> None:
    boot = uuid4()
    held = spool(tmp_path / "alive", boot)
    held.begin(attempt())
    held.append(outcome(1))
    shutil.copytree(tmp_path / "alive", tmp_path / "dead")
    (first,) = adopt(tmp_path / "dead", "demo")
    batch = first.outbox.head()
    assert batch is not None
    body = json.loads(first.outbox.body(batch, "", 0))
    first.finish()
    (second,) = adopt(tmp_path / "dead", "demo")
    assert second.died == 0
    (again,) = sent(second.outbox)
    assert (again["seq"], again["events"]) == (body["seq"], body["events"])
    second.finish()


def test_a_damaged_record_costs_itself_alone(tmp_path: Path) -> None:
    held = spool(tmp_path)
    for number in range(3):
        held.append(outcome(number))
    (path,) = tmp_path.glob("*/*/*.open")
    blob = bytearray(path.read_bytes())
    blob[len(blob) // 2] ^= 0xFF
    path.write_bytes(blob)
    found = records.read(path.read_bytes())
    assert (len(found.events), found.damaged) == (2, 1)


LIVES = """
import os, sys, time
from pathlib import Path
from uuid import UUID
from gateway.outbox import Identity
from gateway.clock import SystemClock
from gateway.spool import Spool
from tests.gateway.build import attempt
who = Identity(UUID(sys.argv[2]), "host/0", "demo")
spool = Spool(Path(sys.argv[1]), 0, who, SystemClock())
spool.append(attempt())
spool.begin(attempt())
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_stopped_process_is_not_dead_and_a_killed_one_is(tmp_path: Path) -> None:
    boot = uuid4()
    with subprocess.Popen(
        [sys.executable, "-c", LIVES, str(tmp_path), str(boot)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as owner:
        try:
            assert owner.stdout is not None
            assert owner.stdout.readline() == b"ready\n"
            owner.send_signal(signal.SIGSTOP)
            assert not list(adopt(tmp_path, "demo"))
        finally:
            owner.kill()
        owner.wait()
    assert not list(adopt(tmp_path, "another gateway"))
    (adopted,) = adopt(tmp_path, "demo")
    assert not list(adopt(tmp_path, "demo")), "one adopter at a time"
    (batch,) = sent(adopted.outbox)
    assert batch["instance"] == str(boot)
    assert [e["reason"] for e in batch["events"]] == ["ok", "gateway_died"]
    adopted.finish()
    assert not list(tmp_path.glob("*/*"))


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Make the system refuse longer files: the same short write and error as a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_moves_events_to_memory_and_loses_none(tmp_path: Path) -> None:
    held = spool(tmp_path)
    call = attempt()
    with files_of_at_most(1500):
        held.begin(call)
        for number in range(20):
            held.append(outcome(number))
        assert not held.on_disk
    assert held.status().events == 20
    held.seal()
    assert held.on_disk
    held.append(call)
    held.seal()
    batches = list(sent(held.outbox))
    assert [b["seq"] for b in batches] == [1, 2, 3]
    ids = [UUID(e["id"]) for b in batches for e in b["events"]]
    assert ids == [outcome(number).id for number in range(20)] + [call.id]
    assert held.dropped.total() == 0


def test_memory_is_bounded_and_what_goes_is_counted_by_kind(tmp_path: Path) -> None:
    (tmp_path / "0").write_text("a file where the directory should be")
    held = spool(tmp_path, events=10, memory=4000)
    for number in range(100):
        held.append(outcome(number))
    held.append(attempt())
    held.seal()
    status = held.status()
    assert status.bytes <= 4000
    assert status.events + status.dropped == 101
    assert held.dropped.keys() == {"outcome"}
    held.close()


def test_the_disk_is_bounded_by_giving_up_the_oldest(tmp_path: Path) -> None:
    held = spool(tmp_path, events=10, disk=6000)
    under_way = None
    for number in range(200):
        held.append(outcome(number))
        under_way = under_way or held.outbox.head()
    assert held.outbox.size <= 6000
    assert under_way is held.outbox.head(), "what is being sent is not given up"
    seqs = [batch["seq"] for batch in sent(held.outbox)]
    assert seqs[0] == 1
    assert seqs[1:] == list(range(seqs[1], 21))
    assert held.dropped == {"outcome": 10 * (seqs[1] - 2)}


def test_a_record_that_the_disk_changed_is_counted_once(tmp_path: Path) -> None:
    held = spool(tmp_path)
    held.append(outcome(1), outcome(2), outcome(3))
    held.seal()
    (path,) = tmp_path.glob("*/*/*.batch")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], lines[1].replace(b"true", b"tr\xffe"), lines[2]]))
    batch = held.outbox.head()
    assert batch is not None
    for _ in range(2):  # the first try had no answer
        body = json.loads(held.outbox.body(batch, "e1", 3))
    assert [e["id"] for e in body["events"]] == [str(outcome(n).id) for n in (1, 3)]
    assert not held.dropped, "it is not lost before the batch is taken without it"
    held.outbox.acknowledge(batch, "e1", START)
    assert held.dropped == {"damaged": 1}
    # A restored database is sent it again, with what it lacks.
    assert held.outbox.ask("e2")
    (again,) = sent(held.outbox)
    assert len(again["events"]) == 2
    assert held.dropped == {"damaged": 1}


def test_refused_batches_are_kept_aside_and_counted(tmp_path: Path) -> None:
    held = spool(tmp_path)
    for number in range(20):
        held.append(outcome(number))
        held.seal()
        batch = held.outbox.head()
        assert batch is not None
        held.outbox.set_aside(batch, "422")
    assert held.dropped["outcome"] == 20
    assert len(list(tmp_path.glob("*/*/*.aside"))) == 16
    assert not len(held.outbox)


def test_dead_spools_nobody_takes_are_bounded_too(tmp_path: Path) -> None:
    for age in range(4):
        held = spool(tmp_path, index=age)
        held.append(outcome(age))
        held.close()
        (directory,) = (tmp_path / str(age)).iterdir()
        for path in directory.iterdir():
            os.utime(path, (1000 + age, 1000 + age))
    living = spool(tmp_path, index=9)
    size = sum(path.stat().st_size for path in tmp_path.glob("3/*/*"))
    # The control plane can see no gap behind a boot's last batch: the count is all that tells.
    assert forget_oldest(tmp_path, "demo", 2 * size) == {"outcome": 2}
    assert [path.parent.name for path in sorted(tmp_path.glob("*/*"))] == ["2", "3", "9"]
    living.close()


def test_calls_under_way_in_a_spool_that_is_given_up_are_counted(tmp_path: Path) -> None:
    held = spool(tmp_path)
    held.begin(attempt())
    held.append(outcome(1))
    held.close()
    assert forget_oldest(tmp_path, "demo", 0) == {"attempt": 1, "outcome": 1}


def test_a_spool_that_is_being_made_is_nobodys_to_take(tmp_path: Path) -> None:
    made = tmp_path / "0" / f".{uuid4()}"
    made.mkdir(parents=True)
    (made / "owner").touch()
    assert not list(adopt(tmp_path, "demo"))
    assert not forget_oldest(tmp_path, "demo", 0)
    assert made.exists()


@pytest.mark.parametrize("junk", ["", "{", '{"instance": 1}'])
def test_a_directory_that_cannot_be_read_stays_where_it_is(tmp_path: Path, junk: str) -> None:
    directory = tmp_path / "0" / "boot"
    directory.mkdir(parents=True)
    (directory / "owner").touch()
    (directory / "about.json").write_text(junk)
    assert not list(adopt(tmp_path, "demo"))
    assert directory.exists()


def test_batches_with_a_transition_are_given_up_last(tmp_path: Path) -> None:
    held = spool(tmp_path, events=10, disk=12_000)
    changes = []
    for number in range(300):
        if number % 100 == 5:
            changes.append(transition(number))
            held.append(changes[-1])
        held.append(outcome(number))
    held.seal()
    assert held.outbox.size <= 12_000
    batches = list(sent(held.outbox))
    seqs = [batch["seq"] for batch in batches]
    assert seqs == sorted(seqs)
    events = [event for batch in batches for event in batch["events"]]
    assert [e["id"] for e in events if e["kind"] == "transition"] == [str(c.id) for c in changes]
    assert events[-1]["id"] == str(outcome(299).id)
    assert held.dropped.keys() == {"outcome"}
    assert held.dropped.total() == 303 - len(events)
