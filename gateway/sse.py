"""Server-sent events out of bytes, however they are cut.

Invariant: a frame is given out once it is whole, never in part, and nothing is held beyond
``LIMIT`` bytes. The form is that of the WHATWG HTML standard, section 9.2.6.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

LIMIT = 32 * 2**20


class Frame(NamedTuple):
    """One event."""

    event: str
    data: bytes


class TooLong(ValueError):
    """A frame is longer than any snapshot may be."""


class Frames:
    """The reader's state between two pieces."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._event = "message"
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[Frame]:
        """The frames that this piece completes. Raises ``TooLong``."""
        start = len(self._rest)
        self._rest += piece
        # Only what is new can hold a newline: a long line is not searched again for each piece.
        end = self._rest.find(b"\n", start)
        taken = 0
        while end >= 0:
            line = bytes(self._rest[taken:end]).removesuffix(b"\r")
            taken = end + 1
            frame = self._line(line)
            if frame is not None:
                yield frame
            end = self._rest.find(b"\n", taken)
        del self._rest[:taken]
        if len(self._rest) + self._size > LIMIT:
            raise TooLong(f"a frame of the watch is longer than {LIMIT} bytes")

    def _line(self, line: bytes) -> Frame | None:
        if not line:
            data, event = self._data, self._event
            self._data, self._event, self._size = [], "message", 0
            return Frame(event, b"\n".join(data)) if data else None
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"data":
            self._data.append(value)
            self._size += len(value)
        return None
