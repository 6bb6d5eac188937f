"""Acknowledged batches, kept for a while: a database restored from a backup has forgotten them.

Invariants: a batch that is kept has a receipt, and its file's name says under which epoch; what is
older than ``KEPT_S`` or beyond ``KEPT_BYTES`` is deleted, oldest first; a batch is either kept or
waiting, never both. Only files are kept: what a full disk left in memory is forgotten at once.

A kept file is ``<seq>.<mark>.acked``, the mark a digest of the epoch, and its time of change the
moment of its receipt. Times are aware UTC.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections import Counter, deque
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

log = logging.getLogger(__name__)

KEPT_S = 3600.0
KEPT_BYTES = 64 * 2**20
SUFFIX = ".acked"
_BLOCK = 4096
"""What even the smallest file takes."""


class _One(NamedTuple):
    seq: int
    size: int
    at: float
    mark: str


class Kept:
    """What one boot was given receipts for. ``directory`` None: nothing can be kept."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._held: deque[_One] = deque()
        self._size = 0
        self._marks: Counter[str] = Counter()
        self._highest: dict[str, tuple[int, float]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def load(self, directory: Path, now: datetime) -> None:
        """Take over what a dead worker kept. Raises ``OSError``."""
        self._directory = directory
        for path in sorted(directory.glob(f"*{SUFFIX}")):
            seq, _, mark = path.name.removesuffix(SUFFIX).partition(".")
            about = path.stat()
            if seq.isdigit() and mark:
                self._note(_One(int(seq), about.st_size, about.st_mtime, mark))
        self.expire(now)

    def add(self, seq: int, path: Path | None, size: int, epoch: str, now: datetime) -> None:
        """The control plane of this epoch has given its receipt for a batch."""
        mark, at = _mark(epoch), now.timestamp()
        self._told(mark, seq, at)
        if path is None:
            return
        self._directory = path.parent
        one = _One(seq, size, at, mark)
        try:
            os.utime(path, (at, at))
            os.rename(path, self._path(one))
        except OSError as error:
            log.warning("batch %d is not kept: %s", seq, error)
            _unlink(path)
            return
        self._note(one)
        self.expire(now)

    def highest(self, epoch: str, now: datetime) -> int:
        """The highest seq that has a receipt of this epoch, 0 without any within ``KEPT_S``.

        What is older is not kept, so that nothing could be sent again for it; and who was silent
        for longer than the control plane keeps its row must not claim that a backup was restored.
        """
        seq, at = self._highest.get(_mark(epoch), (0, 0.0))
        return seq if epoch and at >= now.timestamp() - KEPT_S else 0

    def of_another(self, epoch: str) -> bool:
        """True when something is kept whose receipt is of another epoch."""
        return self._marks.total() > self._marks[_mark(epoch)]

    def take_newest(self) -> tuple[int, Path, int] | None:
        """The newest batch, as one to send: its seq, file and size."""
        taken = None
        while self._held and taken is None:
            one = max(self._held)
            self._forget(one)
            taken = self._renamed(one)
        return taken

    def take_after(self, contiguous: int, epoch: str) -> list[tuple[int, Path, int]]:
        """What the database of this epoch has not, as batches to send, oldest first.

        What it has, up to ``contiguous``, is kept on as acknowledged by it.
        """
        mark = _mark(epoch)
        held, self._held = self._held, deque()
        self._size, self._marks = 0, Counter()
        taken = []
        for one in held:
            if one.mark == mark:
                self._note(one)
            elif one.seq > contiguous:
                taken.append(self._renamed(one))
            else:
                self._confirm(one, one._replace(mark=mark))
        return sorted(each for each in taken if each is not None)

    def expire(self, now: datetime) -> None:
        """Delete what is too old or too much."""
        oldest = now.timestamp() - KEPT_S
        while self._held and (self._size > KEPT_BYTES or self._held[0].at < oldest):
            one = self._held[0]
            self._forget(one)
            _unlink(self._path(one))

    def _renamed(self, one: _One) -> tuple[int, Path, int] | None:
        path = self._path(one)
        waiting = path.with_name(f"{one.seq:012d}.batch")
        try:
            os.rename(path, waiting)
        except OSError as error:
            log.warning("batch %d cannot be sent again: %s", one.seq, error)
            return None
        return one.seq, waiting, one.size

    def _confirm(self, old: _One, new: _One) -> None:
        try:
            os.rename(self._path(old), self._path(new))
        except OSError as error:
            log.warning("batch %d is not kept: %s", old.seq, error)
            return
        self._note(new)

    def _note(self, one: _One) -> None:
        self._held.append(one)
        self._size += max(one.size, _BLOCK)
        self._marks[one.mark] += 1
        self._told(one.mark, one.seq, one.at)

    def _told(self, mark: str, seq: int, at: float) -> None:
        highest, last = self._highest.get(mark, (0, 0.0))
        self._highest[mark] = max(seq, highest), max(at, last)

    def _forget(self, one: _One) -> None:
        self._held.remove(one)
        self._size -= max(one.size, _BLOCK)
        self._marks[one.mark] -= 1

    def _path(self, one: _One) -> Path:
        assert self._directory is not None
        return self._directory / f"{one.seq:012d}.{one.mark}{SUFFIX}"


def forget_beyond(directories: list[Path], now: datetime, keep_bytes: int = KEPT_BYTES) -> None:
    """Delete what directories, newest first, keep past its time or beyond ``keep_bytes`` in all."""
    size = 0
    for directory in directories:
        for path in sorted(directory.glob(f"*{SUFFIX}"), reverse=True):
            about = path.stat()
            size += max(about.st_size, _BLOCK)
            if size > keep_bytes or about.st_mtime < now.timestamp() - KEPT_S:
                path.unlink()


def _mark(epoch: str) -> str:
    return hashlib.blake2b(epoch.encode("utf-8", "replace"), digest_size=8).hexdigest()


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("cannot delete %s: %s", path.name, error)
