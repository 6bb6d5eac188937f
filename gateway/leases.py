"""Who on this host may probe a half-open circuit: one small file for each circuit.

Invariants: never more than ``most`` leases of a circuit are out on a host; a lease ends when it is
released, when its time is up, or when its process is dead, whichever is first. Nothing here waits:
a file that another process holds just now is a short refusal, and one that stays held for longer
than a lease (its owner was stopped in the middle) is passed over, so that nobody is wedged.

Times are seconds of the host's monotonic clock, which all its processes share.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
from pathlib import Path
from random import getrandbits
from typing import NamedTuple

import msgspec

from controlplane.domain.circuit import Circuit, format_circuit
from controlplane.domain.gate import Gate, Refusal

log = logging.getLogger(__name__)

BUSY_S = 0.05
_TRIES = 100
_MOST_BYTES = 64 * 1024


class Held(NamedTuple):
    """One lease in a file."""

    pid: int
    number: int
    until: float


class Lease(NamedTuple):
    """One that was granted here. ``number`` 0: granted without the file."""

    circuit: Circuit
    number: int
    until: float


class ProbeLeases:
    """Of one process. ``directory`` is shared by the host's workers of one gateway."""

    def __init__(self, directory: Path, pid: int | None = None) -> None:
        self._directory = directory
        self._pid = os.getpid() if pid is None else pid
        self._busy_since: dict[Circuit, float] = {}

    def take(self, circuit: Circuit, most: int, seconds: float, now: float) -> Lease | Refusal:
        """A lease for one probe, or when to ask again."""
        until = now + seconds
        alone = Lease(circuit, 0, until)
        try:
            with _Locked(self._path(circuit)) as file:
                self._busy_since.pop(circuit, None)
                held = [one for one in file.read() if _alive(one, until)]
                held = [one for one in held if one.until > now]
                if len(held) >= most:
                    soonest = min(one.until for one in held)
                    return Refusal(Gate.BREAKER, "HalfOpen", soonest)
                lease = Lease(circuit, getrandbits(62) | 1, until)
                file.write([*held, Held(self._pid, lease.number, until)])
                return lease
        except BlockingIOError:
            since = self._busy_since.setdefault(circuit, now)
            if now - since < seconds:
                return Refusal(Gate.BREAKER, "HalfOpen", now + BUSY_S)
            return alone
        except OSError as error:
            log.warning("probes are not shared on this host: %s", error)
            return alone

    def release(self, lease: Lease) -> None:
        """The probe has ended. One that cannot be written ends by its time."""
        if not lease.number:
            return
        try:
            with _Locked(self._path(lease.circuit)) as file:
                mine = (self._pid, lease.number)
                file.write([one for one in file.read() if (one.pid, one.number) != mine])
        except OSError:
            pass

    def _path(self, circuit: Circuit) -> Path:
        digest = hashlib.blake2b(format_circuit(circuit).encode(), digest_size=16)
        return self._directory / f"{digest.hexdigest()}.lease"


class _Locked:
    """A lease file while this process holds its lock. Raises ``BlockingIOError`` when it cannot."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    def __enter__(self) -> _Locked:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(self._path, flags, 0o600)
        for left in reversed(range(_TRIES)):
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                # Its holder writes a few bytes and is gone; a stopped one must not stop us.
                if not left:
                    os.close(self._fd)
                    raise
            else:
                break
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def read(self) -> list[Held]:
        """What it holds; a damaged file holds nothing."""
        try:
            return msgspec.json.decode(os.pread(self._fd, _MOST_BYTES, 0), type=list[Held])
        except msgspec.DecodeError:
            return []

    def write(self, held: list[Held]) -> None:
        """Replace what it holds."""
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, msgspec.json.encode(held), 0)


def _alive(held: Held, latest: float) -> bool:
    # A time beyond any lease is of an earlier start of the machine.
    if held.until > latest + 3600:
        return False
    try:
        os.kill(held.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
