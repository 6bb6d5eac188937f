"""Takes over the spools of dead workers of this gateway, and says what became of their calls.

Invariants: only a spool whose owner's file lock is free is adopted (a stopped process still holds
it), by one worker at a time; what it holds is sent under the old boot id and the old numbers; a
call begun and never ended is reported once, under the id of its begin mark, as ``gateway_died``
with unknown billing. Repeating an adoption that was cut short gives the same batches.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import msgspec
from msgspec import structs

from controlplane.wire.events import Attempt
from gateway import records
from gateway.kept import SUFFIX, forget_beyond
from gateway.outbox import Identity, Outbox, Sealed
from gateway.spool import Bounds, remove_directory

log = logging.getLogger(__name__)

DIED = "gateway_died"


class Adopted:
    """One dead worker's spool, ours while the lock is held."""

    def __init__(
        self, directory: Path, identity: Identity, lock_fd: int, bounds: Bounds, now: datetime
    ) -> None:
        self._directory = directory
        self._lock_fd = lock_fd
        self.outbox = Outbox(identity, bounds.disk, bounds.memory)
        self.died, self.damaged = _recover(directory)
        for path in sorted(directory.glob("*.batch")):
            about = path.stat()
            since = datetime.fromtimestamp(about.st_mtime, UTC)
            self.outbox.add(Sealed(int(path.stem), path, None, -1, about.st_size, since))
        self.outbox.kept.load(directory, now)

    def finish(self) -> None:
        """Let go of it; when all is sent, and nothing kept or set aside, it is deleted."""
        holds = len(self.outbox) or len(self.outbox.kept)
        if not holds and not any(self._directory.glob("*.aside")):
            remove_directory(self._directory)
        os.close(self._lock_fd)


def adopt(
    root: Path, gateway: str, bounds: Bounds | None = None, now: datetime | None = None
) -> Iterator[Adopted]:
    """Every spool below ``root`` of a dead worker of this gateway. One that cannot be read stays.

    Reads and writes files: call it outside the event loop's thread.
    """
    for owner in _owners(root):
        directory = owner.parent
        lock_fd = _lock(owner)
        if lock_fd is None:
            continue
        try:
            identity = _about(directory)
            if identity.gateway == gateway and not _only_aside(directory):
                at = now or datetime.now(UTC)
                yield Adopted(directory, identity, lock_fd, bounds or Bounds(), at)
                continue
        except (OSError, ValueError) as error:
            log.warning("cannot adopt the spool %s: %s", directory.name, error)
        os.close(lock_fd)


def forget_oldest(root: Path, gateway: str, keep_bytes: int) -> Counter[str]:
    """Delete dead workers' spools beyond ``keep_bytes`` in all, oldest first.

    Returns the events that were lost with them, by kind: the control plane cannot know of batches
    after a boot's last one, so the caller must tell. What bounds the disk while nobody takes
    anything: each boot leaves a directory behind. Reads and writes files: call it outside the event
    loop's thread.
    """
    dead: list[tuple[float, Path, int]] = []
    for owner in _owners(root):
        lock_fd = _lock(owner)
        if lock_fd is None:
            continue
        try:
            if _about(owner.parent).gateway == gateway:
                newest = max(path.stat().st_mtime for path in owner.parent.iterdir())
                dead.append((newest, owner.parent, lock_fd))
                continue
        except (OSError, ValueError) as error:
            log.warning("cannot read the spool %s: %s", owner.parent.name, error)
        os.close(lock_fd)
    kept = 0
    lost: Counter[str] = Counter()
    dead.sort(reverse=True)
    forget_beyond([directory for _, directory, _ in dead], datetime.now(UTC))
    for _, directory, lock_fd in dead:
        kept += sum(path.stat().st_size for path in directory.iterdir())
        if kept > keep_bytes:
            log.warning("the spool of boot %s is given up: the disk's bound", directory.name)
            lost += _held(directory)
            remove_directory(directory)
        os.close(lock_fd)
    return lost


def _held(directory: Path) -> Counter[str]:
    """The events in a dead spool, by kind; those set aside were counted when they were."""
    held: Counter[str] = Counter()
    with suppress(OSError):
        # Its calls that never ended are events too.
        _recover(directory)
    for path in directory.iterdir():
        if path.suffix not in (".open", ".batch"):
            continue
        try:
            found = records.read(path.read_bytes())
        except OSError:
            held["unreadable batch"] += 1
            continue
        held.update(records.KINDS[letter] for letter, _ in found.events)
        held["damaged"] += found.damaged
    return +held


def _owners(root: Path) -> list[Path]:
    """Every spool's lock file, but of none that is still being made: it has no lock yet."""
    return sorted(path for path in root.glob("*/*/owner") if path.parent.name[0] != ".")


def _lock(owner: Path) -> int | None:
    try:
        fd = os.open(owner, os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another adopter may have finished and deleted it between our open and our lock.
        if os.fstat(fd).st_nlink:
            return fd
    except OSError:
        pass
    os.close(fd)
    return None


class _About(msgspec.Struct, frozen=True):
    instance: UUID
    slot: str
    gateway: str


def _about(directory: Path) -> Identity:
    about = msgspec.json.decode((directory / "about.json").read_bytes(), type=_About)
    return Identity(about.instance, about.slot, about.gateway)


def _only_aside(directory: Path) -> bool:
    return any(directory.glob("*.aside")) and not any(
        path.suffix in (".open", ".batch", SUFFIX) for path in directory.iterdir()
    )


def _recover(directory: Path) -> tuple[int, int]:
    """Seal what the dead process left open. Returns (calls that died, damaged records)."""
    left = sorted(directory.glob("*.open"))
    held = {path: records.read(path.read_bytes()) for path in left}
    begun: dict[UUID, Attempt] = {}
    ended: set[UUID] = set()
    for found in held.values():
        for mark in map(_attempt, found.marks):
            if mark is not None:
                begun[mark.id] = mark
        for letter, payload in found.events:
            if letter == b"a" and (done := _attempt(payload)) is not None:
                ended.add(done.id)
    died = [mark for uid, mark in begun.items() if uid not in ended]
    for path, found in held.items():
        last = path == left[-1]
        _seal(path, found, died if last else [])
    return len(died), sum(found.damaged for found in held.values())


def _attempt(payload: bytes) -> Attempt | None:
    try:
        return msgspec.json.decode(payload, type=Attempt)
    except msgspec.DecodeError as error:
        # Whole, but of a version that said it differently: it is sent as it is, only not paired.
        log.warning("an attempt in an adopted spool cannot be read: %s", error)
        return None


def _seal(path: Path, found: records.Records, died: list[Attempt]) -> None:
    if not found.events and not died:
        path.unlink()
        return
    with path.open("r+b") as file:
        # The half-written record goes first: what follows it would be lost with it.
        file.truncate(found.whole)
        file.seek(found.whole)
        file.write(b"".join(records.record(b"a", records.encode(_dead(mark))) for mark in died))
    path.rename(path.with_suffix(".batch"))


def _dead(mark: Attempt) -> Attempt:
    return structs.replace(
        mark,
        verdict="local_fault",
        reason=DIED,
        billing="unknown",
        counts_against_breaker=False,
        served=False,
        status=None,
        ended_ms=None,
        tokens=None,
    )
