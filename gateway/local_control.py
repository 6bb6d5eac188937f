"""The door for people on this host: a unix socket that needs no control plane (design 4.5).

Invariants: the socket is 0600 in a directory of the gateway's user alone, and who asks is taken
from the kernel, not from what is said; one request and one answer a connection, both one line of
JSON, bounded in size and time. It answers when the disk is full: what could not be kept is said.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pwd
import socket
import struct
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from controlplane.domain.circuit import Circuit
from controlplane.domain.matching import matches
from controlplane.wire.status import CircuitStatus
from gateway.clock import Clock
from gateway.live import Live
from gateway.local_overrides import LocalOverrides, Record, Refused

log = logging.getLogger(__name__)

LINE_BYTES = 64 * 1024
SECONDS = 5.0
LONGEST_ADDRESS = 100


class Request(Struct, frozen=True, kw_only=True):
    """What somebody on the host asks. ``by`` adds to what the kernel says of the caller."""

    do: Literal["force", "release", "status"]
    record: Record | None = None
    take_over: bool = False
    uids: list[str] = []
    everything: bool = False
    by: str = ""


class Held(Struct, kw_only=True, omit_defaults=True):
    """One override of this host as it stands at one worker."""

    record: Record
    verdict: str
    message: str = ""


class Reply(Struct, kw_only=True, omit_defaults=True):
    """One worker's answer. ``error``: a rule was broken and nothing changed. ``trouble``: what is
    between this worker and its control plane."""

    slot: str
    error: str = ""
    warning: str = ""
    held: list[Held] = []
    released: list[str] = []
    circuits: list[CircuitStatus] = []
    generation: int = 0
    source: str = ""
    trouble: str = ""


class LocalControl:
    """One worker's socket. Use it as an async context manager."""

    def __init__(
        self, directory: Path, index: int, live: Live, local: LocalOverrides, clock: Clock
    ) -> None:
        self._directory = directory
        self._name = f"{index}.control"
        self._live = live
        self._local = local
        self._clock = clock
        self._server: asyncio.Server | None = None
        self.trouble: Callable[[], str] = str
        """Asked for what is between this worker and its control plane; empty when nothing is."""

    async def __aenter__(self) -> LocalControl:
        try:
            self._server = await asyncio.start_unix_server(
                self._serve, sock=self._bound(), limit=LINE_BYTES
            )
        except OSError as error:
            # Traffic goes on; a person on this host will be told by the command.
            log.error("no local commands here: %s: %s", self._directory / self._name, error)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
            (self._directory / self._name).unlink(missing_ok=True)

    def _bound(self) -> socket.socket:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self._directory / self._name).unlink(missing_ok=True)
        own = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        folder = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        before = os.umask(0o177)
        try:
            own.bind(address(self._directory, folder, self._name))
            own.setblocking(False)
        except OSError:
            own.close()
            raise
        finally:
            os.umask(before)
            os.close(folder)
        return own

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(SECONDS):
                line = await reader.readline()
                reply = await self._answer(line, _caller(writer))
                writer.write(msgspec.json.encode(reply) + b"\n")
                await writer.drain()
        except (TimeoutError, ValueError, OSError) as error:
            log.warning("a local command was not answered: %s", error)
        finally:
            writer.close()

    async def _answer(self, line: bytes, caller: str) -> Reply:
        try:
            asked = msgspec.json.decode(line, type=Request)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return Reply(slot=self._live.slot, error=f"not understood: {error}")
        try:
            return await self._do(asked, f"{caller} ({asked.by})" if asked.by else caller)
        except Refused as error:
            return Reply(slot=self._live.slot, error=str(error))

    async def _do(self, asked: Request, who: str) -> Reply:
        if asked.do == "status":
            return self._status()
        reply = Reply(slot=self._live.slot)
        if asked.do == "force":
            if asked.record is None:
                raise Refused("force needs a record")
            self._known(asked.record)
            record = msgspec.structs.replace(asked.record, made_by=who[:200])
            self._local.force(record, asked.take_over)
            log.warning("%s is %s on this host by %s", record.selection.circuits, record.mode, who)
            reply.held = [h for h in self._held() if h.record.uid == record.uid]
        else:
            uids = [r.uid for r in self._local.active()] if asked.everything else asked.uids
            reply.released = [r.uid for r in self._local.release(uids)]
            log.warning("%s released on this host by %s", reply.released, who)
        try:
            await asyncio.to_thread(self._local.save)
        except OSError as error:
            reply.warning = f"in force, but not on the disk: a restart forgets it ({error})"
        return reply

    def _status(self) -> Reply:
        now = self._clock.monotonic()
        return Reply(
            slot=self._live.slot,
            held=self._held(),
            circuits=self._live.circuit_statuses(now),
            generation=self._live.in_force.generation,
            source=self._live.in_force.source,
            trouble=self.trouble(),
        )

    def _held(self) -> list[Held]:
        found = []
        for record in self._local.active():
            armed = self._local.armed(record.uid)
            if armed is not None and armed.floor:
                found.append(Held(record=record, verdict="LocalFloorViolated", message=armed.floor))
            else:
                said = f"circuits it decides: {armed.decides}" if armed else ""
                found.append(Held(record=record, verdict="Applied", message=said))
        return found

    def _known(self, record: Record) -> None:
        """A typo must not look like success. Raises ``Refused`` with the nearest names."""
        now = self._clock.monotonic()
        names = [Circuit(c.provider, c.model, c.region) for c in self._live.circuit_statuses(now)]
        if any(matches(record.provider, record.model, record.region, name) for name in names):
            return
        texts = [str(name) for name in names]
        wanted = f"{record.provider}/{record.model}"
        close = get_close_matches(wanted, texts, n=3, cutoff=0.3) or texts[:3]
        asked = record.selection.circuits
        raise Refused(f"no circuit here matches {asked}; nearest: {', '.join(close)}")


def address(directory: Path, descriptor: int, name: str) -> str:
    """The socket's path; by the open directory where the plain one is too long for the system."""
    path = str(directory / name)
    long = len(os.fsencode(path)) > LONGEST_ADDRESS
    return f"/proc/self/fd/{descriptor}/{name}" if long else path


def _caller(writer: asyncio.StreamWriter) -> str:
    """The user at the other end, as the kernel knows it; the socket's owner where it does not."""
    peer = writer.get_extra_info("socket")
    uid = os.getuid()
    if hasattr(socket, "SO_PEERCRED"):
        size = struct.calcsize("3i")
        held = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        uid = struct.unpack("3i", held)[1]
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
