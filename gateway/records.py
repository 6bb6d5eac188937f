"""The form of one record in a spool file: a checksum, a letter, JSON, a newline.

Invariants: JSON holds no newline, so a file cut at any byte loses at most its last record; a record
whose checksum does not match is counted and never sent. The checksum is CRC-32, eight hex digits,
over the letter and the JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from zlib import crc32

import msgspec

from controlplane.wire.events import AnyEvent, Attempt, Budget, Outcome, Refusal, Transition

LETTERS: dict[type, bytes] = {
    Attempt: b"a",
    Refusal: b"r",
    Outcome: b"o",
    Transition: b"t",
    Budget: b"b",
}
KINDS = {b"a": "attempt", b"r": "refusal", b"o": "outcome", b"t": "transition", b"b": "budget"}
GATEWAY_FAULT = "gateway_fault"
"""The reason of an attempt of which, by a fault of the gateway's own, no more is known."""
MARK = b"m"
"""Begin mark: the attempt as far as it was known when it was begun."""

_BEGUN = {letter: crc32(letter) for letter in (*KINDS, MARK)}
"""The checksum after the letter."""

encode: Callable[[AnyEvent], bytes] = msgspec.json.Encoder().encode


def record(letter: bytes, payload: bytes) -> bytes:
    """One line of a spool file."""
    return b"%08x %s %s\n" % (crc32(payload, _BEGUN[letter]), letter, payload)


def end_of(mark: bytes) -> bytes:
    """The end of an attempt of which only the begin mark (a line) can be written: a record."""
    begun = msgspec.json.decode(mark[11:-1], type=Attempt)
    return record(b"a", encode(msgspec.structs.replace(begun, reason=GATEWAY_FAULT)))


class Records(NamedTuple):
    """What a spool file holds. ``whole`` is its length without a half-written last record."""

    events: list[tuple[bytes, bytes]]
    marks: list[bytes]
    whole: int
    damaged: int


def read(blob: bytes) -> Records:
    """Read every whole record; a damaged one is skipped and counted."""
    events: list[tuple[bytes, bytes]] = []
    marks: list[bytes] = []
    damaged = 0
    whole = blob.rfind(b"\n") + 1
    for line in blob[:whole].split(b"\n")[:-1]:
        letter, payload = line[9:10], line[11:]
        if letter not in _BEGUN or record(letter, payload) != line + b"\n":
            damaged += 1
        elif letter == MARK:
            marks.append(payload)
        else:
            events.append((letter, payload))
    return Records(events, marks, whole, damaged + (whole < len(blob)))
