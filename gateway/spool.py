"""The events of this process on their way out: on disk before the answer's last byte.

Invariants: an event is in the page cache when ``append`` returns or, where ``defer`` is answered
with True, when ``flush`` does, which is before anybody is told of it (``outgoing``): the death of
the process loses nothing that somebody was told (the death of the machine may lose the last
seconds; there is no fsync); a batch is sealed, and
so fixed with its number, before it is first sent; the begin mark of a call that has not ended is
always in the open segment, so that whoever adopts this spool can report it. On a full disk events
go to bounded memory. Nothing here raises into the request path.

Layout: ``<root>/<index>/<boot id>/`` with ``owner`` (locked while its process lives),
``about.json`` and segments ``<seq>.open`` and ``<seq>.batch``. One segment is one batch, its name
the batch's seq.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from controlplane.wire.events import AnyEvent, Attempt, Transition
from controlplane.wire.status import SpoolStatus
from gateway.clock import Clock
from gateway.outbox import Identity, Outbox, Sealed
from gateway.records import KINDS, LETTERS, MARK, encode, end_of, record

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a spool may hold. A batch ends at ``events`` or ``bytes``, whichever comes first.

    ``disk`` bounds what waits for an acknowledgement: at 300 events/s of 400 bytes 1 GiB is two and
    a half hours without the control plane. ``memory`` is what a full disk leaves.
    """

    events: int = 2000
    bytes: int = 2 * 2**20
    disk: int = 2**30
    memory: int = 16 * 2**20


class Spool:
    """The open segment and the batches sealed from it. Used from the loop's thread."""

    def __init__(
        self, root: Path, index: int, identity: Identity, clock: Clock, bounds: Bounds | None = None
    ) -> None:
        self._clock = clock
        self._bounds = bounds or Bounds()
        self.outbox = Outbox(identity, self._bounds.disk, self._bounds.memory)
        self.on_first: Callable[[], None] = _nothing
        """Called when a segment gets its first event."""
        self.on_urgent: Callable[[], None] = _nothing
        """Called for each event that must not wait for its batch to fill: a transition."""
        self.defer: Callable[[], bool] = _never
        """Asked for each write. True: ``flush`` will be called before anything is sent."""
        self._lock_fd = -1
        self._dir = self._take_directory(root / str(index))
        self._marks: dict[int, bytes] = {}
        self._seq = 0
        self._fd = -1
        self._path: Path | None = None
        self._text: list[bytes] = []
        self._size = self._events = 0
        self._unwritten: list[bytes] = []
        self._unwritten_events = 0
        self._since: datetime | None = None
        self._open_next()

    def begin(self, attempt: Attempt) -> None:
        """Mark a call as begun, before it is sent. End it with ``append`` of the same id.

        The attempt as known so far: verdict, reason and billing are replaced if the process dies.
        """
        line = record(MARK, encode(attempt))
        self._marks[attempt.id.int] = line
        if self._fd >= 0:
            self._add(line, 0)

    def append(self, *events: AnyEvent) -> None:
        """Keep events for sending, all of them with one write."""
        lines, count, urgent = b"", 0, False
        for event in events:
            kind = type(event)
            mark = self._marks.pop(event.id.int, None) if kind is Attempt else None
            urgent = urgent or kind is Transition
            try:
                line = record(LETTERS[kind], encode(event))
            except Exception:
                line = self._instead_of(event, mark)
            lines += line
            count += bool(line)
        self._add(lines, count)
        if urgent:
            self.flush()  # operators and the control plane are told of it by other ways
            self.outbox.transitions.add(self._seq)
        if self._events >= self._bounds.events or self._size >= self._bounds.bytes:
            self.seal()
        if urgent:
            self.on_urgent()

    def _instead_of(self, event: AnyEvent, mark: bytes | None) -> bytes:
        """An event that cannot be written takes no other with it: an attempt's end is then its
        begin mark, as a fault of our own; what has none is counted as lost."""
        log.exception("an event cannot be written: %s", type(event).__name__)
        if mark is not None:
            return end_of(mark)
        self.dropped[KINDS[LETTERS[type(event)]]] += 1
        return b""

    @property
    def pending(self) -> int:
        """Events in the open segment."""
        return self._events

    def seal(self) -> None:
        """Fix the open segment as a batch and begin the next. Without events it does nothing."""
        self.flush()
        if not self._events:
            return
        old = self._sealed()
        old_fd, self._fd = self._fd, -1
        self._open_next()
        # The new segment holds the marks before the old one can be acknowledged and deleted.
        if old.path is not None:
            os.close(old_fd)
            old.path = _renamed(old.path)
        self.outbox.add(old)

    def status(self) -> SpoolStatus:
        """What waits and what was lost since the boot."""
        return SpoolStatus(
            events=self.outbox.events + self._events,
            bytes=self.outbox.size + self._size,
            oldest_at=self.outbox.oldest_at or self._since,
            dropped=self.dropped.total(),
            dropped_by_kind=dict(self.dropped),
        )

    @property
    def dropped(self) -> Counter[str]:
        """Events lost since the boot, by kind."""
        return self.outbox.dropped

    @property
    def on_disk(self) -> bool:
        """False while events go to memory only."""
        return self._fd >= 0

    def close(self) -> None:
        """Seal what is left and let go of the directory; the next boot adopts what was not sent."""
        self.seal()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._path is not None and not self._marks:
            self._path.unlink(missing_ok=True)
        holds = len(self.outbox) or len(self.outbox.kept) or self._marks
        if self._dir is not None and not holds:
            remove_directory(self._dir)
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def flush(self) -> None:
        """Write what was deferred, all at once; what the disk does not take goes to memory."""
        if not self._unwritten:
            return
        lines, self._unwritten = b"".join(self._unwritten), []
        events, self._unwritten_events = self._unwritten_events, 0
        written = self._size - len(lines)
        try:
            if os.write(self._fd, lines) == len(lines):
                return
            os.ftruncate(self._fd, written)
        except OSError as error:
            log.warning("the spool goes to memory: %s", error)
        self._leave_disk(written, self._events - events)
        self._take([lines], len(lines), events)

    def _add(self, lines: bytes, events: int) -> None:
        on_disk = self._fd >= 0
        if on_disk:
            self._unwritten.append(lines)
            self._unwritten_events += events
        self._take([] if on_disk else [lines], len(lines), events)
        if on_disk and not self.defer():
            self.flush()

    def _take(self, text: list[bytes], size: int, events: int) -> None:
        """Count what the open segment has got more; ``text`` is what of it only memory holds."""
        self._text += text
        first, self._events = self._events == 0, self._events + events
        self._size += size
        if first and events:
            self._since = self._clock.wall()
            self.on_first()

    def _leave_disk(self, size: int, events: int) -> None:
        """The disk took no more: fix what it holds, go on in memory under the next number."""
        fd, self._fd = self._fd, -1
        path, self._path = self._path, None
        os.close(fd)
        assert path is not None
        if events:
            batch = Sealed(self._seq, path, None, events, size, self._since)
            batch.path = _renamed(path)
            self.outbox.add(batch)
            self._seq += 1
        else:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                log.warning("cannot delete an empty segment: %s", error)
        self._size = self._events = 0

    def _sealed(self) -> Sealed:
        text = None if self._path is not None else b"".join(self._text)
        return Sealed(self._seq, self._path, text, self._events, self._size, self._since)

    def _open_next(self) -> None:
        self._seq += 1
        self._text = []
        self._size = self._events = 0
        self._since = None
        self._path = None
        if self._dir is None:
            return
        path = self._dir / f"{self._seq:012d}.open"
        carried = b"".join(self._marks.values())
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        except OSError as error:
            log.warning("no new spool segment: %s", error)
            return
        try:
            if carried and os.write(fd, carried) != len(carried):
                raise OSError("short write")
        except OSError as error:
            log.warning("the spool stays in memory: %s", error)
            os.close(fd)
            path.unlink(missing_ok=True)
            return
        self._fd, self._path, self._size = fd, path, len(carried)

    def _take_directory(self, parent: Path) -> Path | None:
        """Make this boot's directory, locked before it can be seen under its name."""
        who = self.outbox.identity
        made = parent / f".{who.instance}"
        try:
            made.mkdir(mode=0o700, parents=True)
            self._lock_fd = os.open(made / "owner", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            about = {"instance": who.instance, "slot": who.slot, "gateway": who.gateway}
            (made / "about.json").write_bytes(msgspec.json.encode(about))
            return made.rename(parent / str(who.instance))
        except OSError as error:
            log.warning("the spool has no directory and stays in memory: %s", error)
            return None


def remove_directory(directory: Path) -> None:
    """Delete a spool directory that holds nothing to send; the lock's file goes last."""
    try:
        for path in directory.iterdir():
            if path.name != "owner":
                path.unlink()
        (directory / "owner").unlink(missing_ok=True)
        directory.rmdir()
    except OSError as error:
        log.warning("cannot remove a spool directory: %s", error)


def _renamed(path: Path) -> Path:
    sealed = path.with_suffix(".batch")
    try:
        os.rename(path, sealed)
    except OSError as error:
        log.warning("cannot seal %s by name: %s", path.name, error)
        return path
    return sealed


def _nothing() -> None:
    """Nobody listens yet."""


def _never() -> bool:
    """Nobody calls ``flush``: each write is its own."""
    return False
