"""What leaves at the end of a turn of the event loop: all of it, in order, and nothing too late."""

from __future__ import annotations

import asyncio

from gateway.outgoing import Outgoing


class Wire:
    """Stands for a transport. ``broken``: it raises, as one does that has just been closed."""

    def __init__(self, *, closing: bool = False, broken: bool = False) -> None:
        self.written: list[bytes] = []
        self.closing, self.broken = closing, broken
        self.aborted = False

    def write(self, data: bytes) -> None:
        if self.broken:
            raise RuntimeError("the handler is closed")
        self.written.append(data)

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.aborted = True


async def test_pieces_leave_after_one_turn_of_the_loop() -> None:
    outgoing, wires = Outgoing(asyncio.get_running_loop()), [Wire(), Wire()]
    for number, wire in enumerate(wires):
        outgoing.send(wire, b"%d" % number)  # type: ignore[arg-type]
    assert [wire.written for wire in wires] == [[], []]
    assert outgoing.holds(wires[0])  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert [wire.written for wire in wires] == [[b"0"], [b"1"]]
    assert not outgoing.holds(wires[0])  # type: ignore[arg-type]


async def test_pieces_of_one_connection_keep_their_order() -> None:
    outgoing, wire, long = Outgoing(asyncio.get_running_loop()), Wire(), b"x" * 2**16
    for piece in (b"1", b"2", b"3", long, b"4"):
        outgoing.send(wire, piece)  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert wire.written == [b"1", b"2", b"3", long, b"4"]


async def test_flush_leaves_nothing_for_later() -> None:
    outgoing, wire = Outgoing(asyncio.get_running_loop()), Wire()
    outgoing.send(wire, b"1")  # type: ignore[arg-type]
    outgoing.flush()
    assert wire.written == [b"1"]
    await asyncio.sleep(0)
    assert wire.written == [b"1"]


async def test_a_broken_or_closed_connection_keeps_nothing_from_the_others() -> None:
    outgoing = Outgoing(asyncio.get_running_loop())
    broken, closed, good = Wire(broken=True), Wire(closing=True), Wire()
    for wire in (broken, closed, good):
        outgoing.send(wire, b"1")  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert (broken.aborted, closed.written, good.written) == (True, [], [b"1"])


async def test_what_is_alone_leaves_at_once() -> None:
    outgoing, one, other = Outgoing(asyncio.get_running_loop()), Wire(), Wire()
    outgoing.alone = True
    outgoing.send(one, b"1")  # type: ignore[arg-type]
    assert one.written == [b"1"]
    outgoing.alone = False
    outgoing.send(one, b"2")  # type: ignore[arg-type]
    outgoing.alone = True
    outgoing.send(one, b"3")  # type: ignore[arg-type]
    outgoing.send(other, b"4")  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert (one.written, other.written) == ([b"1", b"2", b"3"], [b"4"])
