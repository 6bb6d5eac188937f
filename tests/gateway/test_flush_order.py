"""What one turn of the loop puts into the spool is on disk before anything of the turn is sent."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from asyncio.selector_events import _SelectorSocketTransport  # type: ignore[attr-defined]
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.wire.events import Attempt, mint_id
from gateway import records
from gateway.adoption import adopt
from gateway.outgoing import Outgoing
from gateway.simulator.scenario import Fate
from gateway.spool import Spool
from tests.gateway.build import attempt
from tests.gateway.fake_clock import START
from tests.gateway.running import Running, running
from tests.gateway.test_spool import ROOT, files_of_at_most, outcome, sent, spool, transition

LONG = b"x" * 2**16


def on_disk(root: Path) -> tuple[set[UUID], set[UUID]]:
    """Begin marks and events in the files, by their ids."""
    found = [records.read(path.read_bytes()) for path in root.rglob("*") if path.suffix in KINDS]
    marks = [payload for one in found for payload in one.marks]
    events = [payload for one in found for _, payload in one.events]
    return {_id(text) for text in marks}, {_id(text) for text in events}


KINDS = (".open", ".batch")


def _id(text: bytes) -> UUID:
    return UUID(msgspec.json.decode(text)["id"])


def deferring(root: Path, **bounds: int) -> Spool:
    """A spool whose owner calls ``flush`` at some time."""
    held = spool(root, **bounds)
    held.defer = lambda: True
    return held


# --- the order ------------------------------------------------------------------------------------


class Watched:
    """Stands for a transport: notes what was on disk when its bytes left."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.seen: list[tuple[bytes, set[UUID], set[UUID]]] = []

    def write(self, data: bytes) -> None:
        self.seen.append((data[:4], *on_disk(self.root)))

    def is_closing(self) -> bool:
        return False


class Turn:
    """The parts of a worker that put to disk and send."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.spool = spool(root)
        self.outgoing = Outgoing(asyncio.get_running_loop())
        self.outgoing.write_first(self.spool)
        self.wires = [Watched(root), Watched(root)]
        self.begun: list[Attempt] = []

    def begin(self, wire: int, data: bytes = b"call") -> None:
        """Begin a call and send it."""
        self.begun.append(attempt())
        self.spool.begin(self.begun[-1])
        self.outgoing.send(self.wires[wire], data)  # type: ignore[arg-type]

    @property
    def marks(self) -> list[UUID]:
        return [one.id for one in self.begun]


async def test_a_turn_is_one_write_before_its_first_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, write, sizes = Turn(tmp_path), os.write, []

    def counted(fd: int, data: bytes) -> int:
        sizes.append(len(data))
        return write(fd, data)

    monkeypatch.setattr(os, "write", counted)
    turn.begin(0)
    turn.begin(1)
    turn.spool.append(outcome(1))
    assert on_disk(tmp_path) == (set(), set())
    assert turn.spool.pending == 1
    await asyncio.sleep(0)
    for wire in turn.wires:
        assert wire.seen == [(b"call", set(turn.marks), {outcome(1).id})]
    assert len(sizes) == 1


@pytest.mark.parametrize("data", [b"call", LONG], ids=["the second piece of one", "a long piece"])
async def test_what_leaves_before_the_turn_s_end_is_no_exception(
    tmp_path: Path, data: bytes
) -> None:
    turn = Turn(tmp_path)
    turn.begin(0)
    turn.begin(0, data)
    assert [marks for _, marks, _ in turn.wires[0].seen] == [set(turn.marks)] * 2
    await asyncio.sleep(0)
    assert len(turn.wires[0].seen) == 2


async def test_alone_nothing_is_put_off(tmp_path: Path) -> None:
    turn = Turn(tmp_path)
    turn.outgoing.alone = True
    turn.spool.append(outcome(1))
    assert on_disk(tmp_path) == (set(), {outcome(1).id})
    turn.begin(0)
    assert turn.wires[0].seen == [(b"call", set(turn.marks), {outcome(1).id})]


async def test_what_is_put_off_without_anything_to_send_is_written_all_the_same(
    tmp_path: Path,
) -> None:
    turn = Turn(tmp_path)
    turn.spool.append(outcome(1))
    turn.outgoing.alone = True
    turn.spool.append(outcome(2))
    await asyncio.sleep(0)
    assert on_disk(tmp_path)[1] == {outcome(1).id, outcome(2).id}


def test_a_transition_is_not_put_off(tmp_path: Path) -> None:
    """Status reports and answers to operators tell of it past ``Outgoing``."""
    held, moved = deferring(tmp_path), transition(1)
    held.append(outcome(1))
    held.append(moved)
    assert on_disk(tmp_path)[1] == {outcome(1).id, moved.id}


async def test_a_faulty_spool_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = Turn(tmp_path)

    def broken() -> None:
        raise RuntimeError("no spool")

    monkeypatch.setattr(turn.outgoing, "_write_spool", broken)
    turn.begin(0)
    await asyncio.sleep(0)
    assert len(turn.wires[0].seen) == 1


_CALL = re.compile(rb"idempotency-key: ([0-9a-f-]{36})-(?:openai|mistral)\r\n")
_ANSWER = re.compile(rb"x-switchgear-request: ([0-9a-f-]{36})\r\n")


class Wiretap:
    """Looks into the spool's files at each write of this process to a socket."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.answering: dict[int, UUID] = {}
        self.calls = self.ends = 0
        self.early: list[str] = []

    def note(self, transport: Any, data: bytes) -> None:
        if (call := _CALL.search(data)) is not None:
            self.calls += 1
            if UUID(call[1].decode()) not in self._requests("m"):
                self.early.append(f"call {call[1]!r}")
        if (answer := _ANSWER.search(data)) is not None:
            self.answering[id(transport)] = UUID(answer[1].decode())
        request = self.answering.get(id(transport))
        head, _, _ = data.lower().partition(b"\r\n\r\n")
        last = data.endswith(b"0\r\n\r\n") or b"[DONE]" in data or b"broke off" in data
        if request is not None and (last or b"content-length: " in head):
            self.ends += 1
            del self.answering[id(transport)]
            if request not in self._requests("o"):
                self.early.append(f"answer {request}")

    def _requests(self, letter: str) -> set[UUID]:
        text = b"".join(p.read_bytes() for p in self.root.rglob("*") if p.suffix in KINDS)
        lines = [line for line in text.splitlines() if line[9:10] == letter.encode()]
        return {UUID(msgspec.json.decode(line[11:])["request"]) for line in lines}


@pytest.fixture
def wiretap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wiretap:
    tap = Wiretap(tmp_path / "data" / "spool")
    write, write_lines = _SelectorSocketTransport.write, _SelectorSocketTransport.writelines

    def noting(self: Any, data: bytes) -> None:
        tap.note(self, bytes(data))
        write(self, data)

    def noting_lines(self: Any, lines: Any) -> None:
        kept = list(lines)
        tap.note(self, b"".join(kept))
        write_lines(self, kept)

    monkeypatch.setattr(_SelectorSocketTransport, "write", noting)
    monkeypatch.setattr(_SelectorSocketTransport, "writelines", noting_lines)
    return tap


async def old_http(gateway: Running) -> None:
    """A stream for a caller that speaks HTTP/1.0."""
    body = b'{"model":"alone","stream":true,"messages":[{"role":"user","content":"oak"}]}'
    host, port = gateway.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST /v1/chat/completions HTTP/1.0\r\nhost: a\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    assert b"[DONE]" in await reader.read()
    writer.close()


async def test_of_a_whole_gateway_no_byte_is_early(tmp_path: Path, wiretap: Wiretap) -> None:
    """Of every way to a provider and to a caller, many at a time."""
    async with running(tmp_path) as gateway:
        gateway.conditions(latency_ms=5.0)

        async def ask(**fields: Any) -> None:
            async with await gateway.chat(**fields) as answer:
                with suppress(aiohttp.ClientPayloadError):
                    await answer.read()

        form = {"x-switchgear-route": "alone", "content-type": "application/octet-stream"}

        async def upload() -> None:
            data = b"y" * 2**20
            async with gateway.http.post("/v1/files", data=data, headers=form) as answer:
                await answer.read()

        jobs: list[Any] = []
        for _ in range(6):
            jobs += [ask(), ask(stream=True), ask(user="z" * 2**17), old_http(gateway), upload()]
        await asyncio.gather(*jobs)
        # On connections that are there already a call leaves in the turn in which it is begun.
        await asyncio.gather(*(ask(user="z" * 2**17) for _ in range(6)))
        gateway.fates(Fate.SERVER_ERROR, Fate.BAD_REQUEST, Fate.CUT, Fate.STREAM_ERROR, Fate.RESET)
        jobs = [ask(stream=True), ask(stream=True), ask(stream=True, model="assistant"), ask()]
        await asyncio.gather(*jobs)
        assert wiretap.calls >= 34
        assert wiretap.ends >= 34
        assert wiretap.early == []


# --- failure, rotation, close ---------------------------------------------------------------------


def test_a_full_disk_in_the_middle_of_a_turn_loses_none(tmp_path: Path) -> None:
    held = deferring(tmp_path)
    call = attempt()
    with files_of_at_most(1500):
        held.append(outcome(0), outcome(1))
        held.flush()
        held.begin(call)
        for number in range(2, 20):
            held.append(outcome(number))
        assert held.on_disk
        held.flush()
        assert not held.on_disk
        held.append(outcome(20))
    assert held.status().events == 21
    held.seal()
    assert held.on_disk
    held.append(call)
    held.close()
    batches = list(sent(held.outbox))
    assert [b["seq"] for b in batches] == [1, 2, 3]
    assert [len(b["events"]) for b in batches] == [2, 19, 1]
    ids = [UUID(e["id"]) for b in batches for e in b["events"]]
    assert ids == [outcome(number).id for number in range(21)] + [call.id]
    assert held.dropped.total() == 0


def test_a_disk_that_takes_nothing_costs_what_memory_cannot_hold(tmp_path: Path) -> None:
    held = deferring(tmp_path, events=10, memory=4000)
    with files_of_at_most(0):
        for number in range(100):
            held.append(outcome(number))
        held.seal()
        status = held.status()
    assert status.bytes <= 4000
    assert status.events + status.dropped == 100
    assert held.dropped.keys() == {"outcome"}
    held.close()


@given(st.lists(st.sampled_from(["begin", "end", "other", "seal", "flush"]), max_size=40))
@settings(max_examples=60, deadline=None)
def test_put_off_or_not_the_batches_are_the_same(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    """Segments end at the same events, in the middle of a turn too."""
    told = []
    for make in (spool, deferring):
        root = tmp_path_factory.mktemp("spool")
        held, running_calls = make(root, events=4), []
        for number, step in enumerate(steps):
            if step == "begin":
                running_calls.append(Attempt(**CALL, id=mint_id(START, number)))
                held.begin(running_calls[-1])
            elif step == "end" and running_calls:
                held.append(running_calls.pop(0))
            elif step == "seal":
                held.seal()
            elif step == "flush":
                held.flush()
            else:
                held.append(outcome(number))
        open_calls = {one.id for one in running_calls}
        held.close()
        assert open_calls <= on_disk(root)[0]
        told.append([(b["seq"], [e["id"] for e in b["events"]]) for b in sent(held.outbox)])
    assert told[0] == told[1]


CALL = msgspec.structs.asdict(attempt(uid=mint_id(START, 0), request=uuid4()))
del CALL["id"]


def test_a_rotation_within_a_turn_carries_the_marks(tmp_path: Path) -> None:
    held = deferring(tmp_path, events=3)
    calls = [attempt() for _ in range(5)]
    for call in calls:
        held.begin(call)
    held.append(calls[0], outcome(1))
    held.append(outcome(2))
    held.append(outcome(3))
    (sealed,) = tmp_path.rglob("*.batch")
    (opened,) = tmp_path.rglob("*.open")
    assert len(records.read(sealed.read_bytes()).events) == 3
    found = records.read(opened.read_bytes())
    assert [_id(mark) for mark in found.marks] == [call.id for call in calls[1:]]
    assert found.events == []
    held.flush()
    assert len(records.read(opened.read_bytes()).events) == 1


def test_closing_writes_what_was_put_off(tmp_path: Path) -> None:
    held, call = deferring(tmp_path), attempt()
    held.begin(call)
    held.append(outcome(1))
    held.close()
    assert on_disk(tmp_path) == ({call.id}, {outcome(1).id})
    (adopted,) = adopt(tmp_path, "demo")
    (first, died) = sent(adopted.outbox)
    assert [e["id"] for e in first["events"]] == [str(outcome(1).id)]
    assert [e["reason"] for e in died["events"]] == ["gateway_died"]
    adopted.finish()


# --- kill -9 --------------------------------------------------------------------------------------

LIVES = """
import asyncio, os, sys
from contextlib import suppress
from pathlib import Path
from uuid import uuid4
from gateway.clock import SystemClock
from gateway.outbox import Identity
from gateway.outgoing import Outgoing
from gateway.spool import Bounds, Spool
from tests.gateway.build import attempt

async def live():
    loop = asyncio.get_running_loop()
    who = Identity(uuid4(), "host/0", "demo")
    spool = Spool(Path(sys.argv[1]), 0, who, SystemClock(), Bounds(events=50))
    outgoing = Outgoing(loop)
    outgoing.write_first(spool)
    wires = []
    for _ in range(4):
        pipe = os.fdopen(os.dup(1), "wb", buffering=0)
        wires.append((await loop.connect_write_pipe(asyncio.BaseProtocol, pipe))[0])
    while True:
        calls = [attempt() for _ in wires]
        for wire, call in zip(wires, calls):
            spool.begin(call)
            outgoing.send(wire, b"begun %s\\n" % str(call.id).encode())
        await asyncio.sleep(0)
        for wire, call in zip(wires, calls):
            spool.append(call)
            outgoing.send(wire, b"ended %s\\n" % str(call.id).encode())
        await asyncio.sleep(0)

asyncio.run(live())
"""


@pytest.mark.parametrize("lines", [1, 150, 903])
def test_kill_9_loses_nothing_that_somebody_was_told(tmp_path: Path, lines: int) -> None:
    command = [sys.executable, "-c", LIVES, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        try:
            told = [owner.stdout.readline() for _ in range(lines)]
        finally:
            owner.send_signal(signal.SIGKILL)
        told += owner.stdout.read().splitlines()
    begun = {line.split()[1].decode() for line in told if line.startswith(b"begun ")}
    ended = {line.split()[1].decode() for line in told if line.startswith(b"ended ")}
    (adopted,) = adopt(tmp_path, "demo")
    events = [event for batch in sent(adopted.outbox) for event in batch["events"]]
    adopted.finish()
    kept = {event["id"]: event["reason"] for event in events}
    assert len(kept) == len(events)
    assert begun <= kept.keys()
    assert {kept[one] for one in ended} <= {"ok"}
