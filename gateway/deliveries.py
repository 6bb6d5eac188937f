"""The idempotency keys that the workers of one gateway on one host have in common (design 4.4).

Invariants: a key is in flight while the worker that serves it lives, and then no longer, however
that worker ended; nothing here waits: what is locked by another worker just now, or cannot be read
or written, is ``NEVER``, and each worker knows its own keys all the same; the file never grows.

One file of buckets of ``WAYS`` places, each a key's digest, until when it is remembered (or, as a
negative number, since when it is in flight) and who serves it. A request locks one bucket for two
system calls. Every worker holds a lock on a byte of the file's head, which says by itself, also
after a kill -9, that it lives; the number beside it tells it from an earlier one in that place.
POSIX locks: they are of a process, so one process opens the file once. Times are seconds of the
host's monotonic clock.
"""

from __future__ import annotations

import fcntl
import logging
import os
from math import inf
from pathlib import Path
from random import getrandbits
from struct import Struct
from typing import NamedTuple

from gateway.redelivery import REMEMBERED_S, Seen

log = logging.getLogger(__name__)

BUCKETS = 2**14
WAYS = 8
IN_FLIGHT_MOST_S = 7200.0
"""Twice the longest deadline: beyond it a key is free whatever is said."""
MOST_WORKERS = 256
_PLACE = Struct("<16sdII")
_NUMBER = Struct("<I")
_BUCKET_BYTES = WAYS * _PLACE.size
_HEAD_BYTES = MOST_WORKERS * _NUMBER.size
_TRIES = 50
_FREE = bytes(16)


class _Held(NamedTuple):
    """One place of a bucket."""

    digest: bytes
    until: float
    worker: int
    number: int


class Deliveries:
    """One worker's view of the file. Opened with the first key; used from the loop's thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._worker = 0
        self._number = 0
        self._broken = False

    def begin(self, digest: bytes, now: float) -> Seen:
        """Note that a request with this key is served here. ``IN_FLIGHT``: it is elsewhere."""
        if not self._ready():
            return Seen.NEVER
        at = _bucket(digest)
        if not self._lock(at):
            return Seen.NEVER
        try:
            held = self._read(at)
            mine = _Held(digest, -now, self._worker, self._number)
            for place, one in enumerate(held):
                if one.digest != digest:
                    continue
                if self._in_flight(one, now) and not self._is_own(one):
                    return Seen.IN_FLIGHT
                self._write(at, place, mine)
                return Seen.BEFORE if one.until < 0 or _remembered(one, now) else Seen.NEVER
            free = self._place_for(held, now)
            if free is not None:
                self._write(at, free, mine)
        except OSError as error:
            self._fails(error)
        finally:
            self._unlock(at)
        return Seen.NEVER

    def end(self, digest: bytes, now: float) -> None:
        """The request is over; its key is remembered from now."""
        if self._fd < 0:
            return
        at = _bucket(digest)
        if not self._lock(at):
            return  # it looks in flight for as long as this worker lives, but not to this worker
        try:
            for place, one in enumerate(self._read(at)):
                if one.digest == digest and self._is_own(one):
                    self._write(at, place, _Held(digest, now + REMEMBERED_S, 0, 0))
                    return
        except OSError as error:
            self._fails(error)
        finally:
            self._unlock(at)

    def close(self) -> None:
        """Let go: what is still in flight here is in flight no more."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # --- the file -----------------------------------------------------------------------------

    def _ready(self) -> bool:
        if self._fd >= 0:
            return True
        if self._broken:
            return False
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._fd = os.open(self._path, flags, 0o600)
            self._worker = self._take_worker()
            self._number = getrandbits(32) | 1
            os.pwrite(self._fd, _NUMBER.pack(self._number), self._worker * _NUMBER.size)
        except OSError as error:
            self._fails(error)
            return False
        return True

    def _take_worker(self) -> int:
        for worker in range(MOST_WORKERS):
            try:
                fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, worker * _NUMBER.size)
            except (BlockingIOError, PermissionError):
                continue
            return worker
        raise OSError(f"more than {MOST_WORKERS} workers")

    def _is_own(self, one: _Held) -> bool:
        return (one.worker, one.number) == (self._worker, self._number)

    def _in_flight(self, one: _Held, now: float) -> bool:
        return one.until < 0 and now + one.until < IN_FLIGHT_MOST_S and self._lives(one)

    def _lives(self, one: _Held) -> bool:
        """Is the worker that serves it still the one that began?"""
        if self._is_own(one):
            return True
        if one.worker >= MOST_WORKERS or one.worker == self._worker:
            return False
        place = one.worker * _NUMBER.size
        if os.pread(self._fd, _NUMBER.size, place) != _NUMBER.pack(one.number):
            return False
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except (BlockingIOError, PermissionError):
            return True
        fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, place)
        return False

    def _place_for(self, held: list[_Held], now: float) -> int | None:
        """A free place, or the one forgotten soonest; None when all are in flight."""
        best: int | None = None
        soonest = inf
        for place, one in enumerate(held):
            if self._in_flight(one, now):
                continue
            if not _remembered(one, now):
                return place
            if one.until < soonest:
                best, soonest = place, one.until
        return best

    def _lock(self, at: int) -> bool:
        for _ in range(_TRIES):
            try:
                fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, _BUCKET_BYTES, at)
            except (BlockingIOError, PermissionError):
                continue  # its holder is done within microseconds; a stopped one must not stop us
            except OSError as error:
                self._fails(error)
                return False
            return True
        return False

    def _unlock(self, at: int) -> None:
        if self._fd >= 0:
            fcntl.lockf(self._fd, fcntl.LOCK_UN, _BUCKET_BYTES, at)

    def _read(self, at: int) -> list[_Held]:
        blob = os.pread(self._fd, _BUCKET_BYTES, at).ljust(_BUCKET_BYTES, b"\0")
        return [_Held._make(place) for place in _PLACE.iter_unpack(blob)]

    def _write(self, at: int, place: int, held: _Held) -> None:
        os.pwrite(self._fd, _PLACE.pack(*held), at + place * _PLACE.size)

    def _fails(self, error: OSError) -> None:
        log.warning("idempotency keys are not shared on this host: %s", error)
        self._broken = True
        self.close()


def _bucket(digest: bytes) -> int:
    return _HEAD_BYTES + int.from_bytes(digest[:4], "little") % BUCKETS * _BUCKET_BYTES


def _remembered(one: _Held, now: float) -> bool:
    # A time beyond any that can be written now is of an earlier start of the machine.
    return one.digest != _FREE and now < one.until <= now + REMEMBERED_S
