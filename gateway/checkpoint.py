"""The snapshot in force on disk, so that a restart serves with it before anybody answers.

Invariants: the file is whole or the one before it (temporary file, fsync, rename, fsync of the
directory); its checksum is checked before a byte of it is believed; a damaged one is as none.

Beside the snapshot stands the last good form of each item that it rejects: it is in force too, and
the snapshot does not say it (``accept``).

``saved_at`` and ``offset_s`` (control plane minus gateway) are what is left of the clocks for
override deadlines after a restart.
"""

from __future__ import annotations

import hashlib
import logging
import os
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

log = logging.getLogger(__name__)


class _Held(Struct, frozen=True):
    gateway: str
    saved_at: datetime
    offset_s: float
    snapshot: Raw
    last_good: Raw = Raw(b"{}")


@dataclass(frozen=True, slots=True)
class Saved:
    """What was in force when it was saved."""

    raw: bytes
    saved_at: datetime
    offset_s: float
    last_good: bytes = b"{}"

    def wall(self, wall: datetime) -> datetime:
        """The control plane's time of day now, by our clock and the offset last known.

        A clock that went back while we were down is not believed: no override may outlive its end
        because of it, so the moment of saving is the least that it can be.
        """
        return max(wall, self.saved_at) + timedelta(seconds=self.offset_s)


class Checkpoint:
    """One worker's file."""

    def __init__(self, path: Path, gateway: str) -> None:
        self._path = path
        self._gateway = gateway

    def save(
        self, raw: bytes, saved_at: datetime, offset_s: float, last_good: bytes = b"{}"
    ) -> None:
        """Replace the file. Blocks for the disk: not in the loop's thread. Raises ``OSError``."""
        body = msgspec.json.encode(
            _Held(self._gateway, saved_at, offset_s, Raw(raw), Raw(last_good))
        )
        blob = hashlib.sha256(body).hexdigest().encode() + b"\n" + body
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = self._path.with_suffix(".new")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(fd, "wb") as file:
            file.write(blob)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._path)
        directory = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def load(self) -> Saved | None:
        """What was saved last; None when there is nothing, or nothing that can be believed."""
        try:
            checksum, _, body = self._path.read_bytes().partition(b"\n")
            if checksum != hashlib.sha256(body).hexdigest().encode():
                raise ValueError("its checksum does not match")
            held = msgspec.json.decode(body, type=_Held)
            if held.gateway != self._gateway:
                raise ValueError(f"it is of gateway {held.gateway!r}")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            log.warning("the saved configuration is not used: %s", error)
            return None
        return Saved(bytes(held.snapshot), held.saved_at, held.offset_s, bytes(held.last_good))
