"""What the workers of one gateway on one host tell each other: a breaker that opened or closed.

Invariants: nothing here is ever waited for; a datagram that cannot be sent at once, or does not
come, is lost, and then each worker finds out for itself, as it would alone. Only a worker's own
findings are told (not what it followed, nor what an override or a restart did), so nothing echoes.

One unix datagram socket a process, named by its boot, in a directory of the gateway's user alone.
Times are seconds of the host's monotonic clock.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable
from math import isfinite
from pathlib import Path

import msgspec
from msgspec import Struct

from controlplane.domain.breaker import Cause, State, Transition
from controlplane.domain.breaker_policy import Counters, Mode
from controlplane.domain.circuit import Circuit

log = logging.getLogger(__name__)

MOST_BYTES = 2048
MOST_AT_ONCE = 64
LONGEST_S = 86_400.0
_LONGEST_ADDRESS = 100
_FOUND = frozenset(
    {
        Cause.CONSECUTIVE_FAILURES,
        Cause.FAILURE_RATIO,
        Cause.SLOW_CALLS,
        Cause.PROBE_FAILED,
        Cause.PROBE_SUCCEEDED,
        Cause.RESET,
    }
)
_NO_COUNTS = Counters(0, 0, 0, 0, 0)

Heard = Callable[[Circuit, Transition], None]


class _Told(Struct, frozen=True):
    """One datagram."""

    provider: str
    model: str
    region: str
    number: int
    from_state: State
    to_state: State
    cause: Cause
    at: float
    until: float | None


class Siblings:
    """One process's socket. ``now``: the monotonic clock."""

    def __init__(self, directory: Path, boot: str, now: Callable[[], float]) -> None:
        self._directory = directory
        self._name = f"{boot}.sock"
        self._now = now
        self._socket: socket.socket | None = None
        self._directory_fd = -1
        self._heard: Heard = _ignore
        self.lost = 0
        """Datagrams that could not be sent at once."""

    def start(self, heard: Heard) -> None:
        """Listen, calling ``heard`` in the running loop's thread. Raises ``OSError``."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory_fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            own.setblocking(False)
            own.bind(self._address(self._name))
            os.chmod(self._directory / self._name, 0o600)
        except OSError:
            own.close()
            os.close(self._directory_fd)
            raise
        self._socket, self._heard = own, heard
        asyncio.get_running_loop().add_reader(own.fileno(), self._read)

    def close(self) -> None:
        """Stop listening."""
        if self._socket is None:
            return
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()
        self._socket = None
        (self._directory / self._name).unlink(missing_ok=True)
        os.close(self._directory_fd)

    def others(self) -> list[str]:
        """The sockets of the other processes, dead ones included."""
        if self._socket is None:
            return []
        try:
            names = os.listdir(self._directory_fd)
        except OSError:
            return []
        return [name for name in names if name.endswith(".sock") and name != self._name]

    def tell(self, circuit: Circuit, done: Transition) -> None:
        """Tell every sibling what this worker's breaker found out by itself."""
        if self._socket is None or done.cause not in _FOUND:
            return
        told = _Told(
            *circuit,
            done.number,
            done.from_state,
            done.to_state,
            done.cause,
            done.at,
            done.next_probe_at,
        )
        data = msgspec.json.encode(told)
        for name in self.others():
            try:
                self._socket.sendto(data, self._address(name))
            except OSError as error:
                self._lost(name, error)

    def _lost(self, name: str, error: OSError) -> None:
        if error.errno == errno.ECONNREFUSED:
            # A boot's name is used once, so nobody can have taken it over meanwhile.
            (self._directory / name).unlink(missing_ok=True)
        elif error.errno != errno.ENOENT:
            self.lost += 1

    def _read(self) -> None:
        for _ in range(MOST_AT_ONCE):
            if self._socket is None:
                return
            try:
                data = self._socket.recv(MOST_BYTES)
            except OSError:
                return
            try:
                self._take(msgspec.json.decode(data, type=_Told))
            except msgspec.DecodeError as error:
                log.warning("a sibling's message is not used: %s", error)

    def _take(self, told: _Told) -> None:
        until = told.until
        if until is not None and not (isfinite(until) and until <= self._now() + LONGEST_S):
            return
        done = Transition(
            number=told.number,
            from_state=told.from_state,
            to_state=told.to_state,
            cause=told.cause,
            at=told.at,
            counters=_NO_COUNTS,
            next_probe_at=until,
            mode=Mode.AUTO,
        )
        if told.cause in _FOUND:
            self._heard(Circuit(told.provider, told.model, told.region), done)

    def _address(self, name: str) -> str:
        path = str(self._directory / name)
        # The system takes about a hundred bytes; the open directory's own name is always short.
        long = len(os.fsencode(path)) > _LONGEST_ADDRESS
        return f"/proc/self/fd/{self._directory_fd}/{name}" if long else path


def _ignore(_circuit: Circuit, _done: Transition) -> None:
    """Nobody listens yet."""
