"""What a load process notes down beside its spools, so that the product's books have a witness.

Invariant: a note is one write to the page cache, so a killed process loses none that was made. An
intent is noted before the spool has the event, ``kept`` after the spool has taken it: what was kept
must be stored, and what is stored must have been intended.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from controlplane.wire.events import Receipt


class Notes:
    """The notes of one process, open for writing."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def boot(self, boot: UUID, gateway: str, lossy: bool) -> None:
        """An instance was born."""
        self._write(f"b {boot} {gateway} {int(lossy)}\n")

    def intended(self, boot: UUID, events: list[tuple[UUID, str]]) -> None:
        """These events are about to be given to the spool: id and kind."""
        self._write("".join(f"i {boot} {event} {kind}\n" for event, kind in events))

    def kept(self, boot: UUID, events: list[UUID]) -> None:
        """The spool has taken them."""
        self._write("".join(f"k {boot} {event}\n" for event in events))

    def acknowledged(self, boot: UUID, receipt: Receipt) -> None:
        """A receipt came."""
        figures = f"{receipt.stored} {receipt.duplicates} {len(receipt.unread)}"
        self._write(f"a {boot} {receipt.seq} {figures}\n")

    def answered(self, what: str, status: int) -> None:
        """Any answer of the control plane, by status."""
        self._write(f"s {what} {status}\n")

    def lost(self, boot: UUID, count: int) -> None:
        """What a spool says at its orderly end that it had to drop."""
        self._write(f"d {boot} {count}\n")

    def _write(self, text: str) -> None:
        os.write(self._fd, text.encode())


@dataclass
class Witness:
    """All notes of all processes, read back."""

    gateway_of: dict[UUID, str] = field(default_factory=dict)
    lossy: set[UUID] = field(default_factory=set)
    intended: dict[UUID, str] = field(default_factory=dict)
    boot_of: dict[UUID, UUID] = field(default_factory=dict)
    kept: set[UUID] = field(default_factory=set)
    acknowledged: dict[tuple[UUID, int], tuple[int, int, int]] = field(default_factory=dict)
    contradicted: list[tuple[UUID, int]] = field(default_factory=list)
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    dropped: dict[UUID, int] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Witness:
        """Everything below ``folder``."""
        witness = cls()
        for path in sorted(folder.glob("*.notes")):
            for line in path.read_text().splitlines():
                witness._take(line.split())
        return witness

    def _take(self, words: list[str]) -> None:
        letter = words[0]
        if letter == "s":
            self.answers[words[1], int(words[2])] += 1
            return
        boot = UUID(words[1])
        if letter == "b":
            self.gateway_of[boot] = words[2]
            if words[3] == "1":
                self.lossy.add(boot)
        elif letter == "i":
            self.intended[UUID(words[2])] = words[3]
            self.boot_of[UUID(words[2])] = boot
        elif letter == "k":
            self.kept.add(UUID(words[2]))
        elif letter == "a":
            self._take_receipt((boot, int(words[2])), (int(words[3]), int(words[4]), int(words[5])))
        else:
            self.dropped[boot] = int(words[2])

    def _take_receipt(self, key: tuple[UUID, int], said: tuple[int, int, int]) -> None:
        # A batch that is sent again must be answered as it was the first time.
        if self.acknowledged.setdefault(key, said) != said:
            self.contradicted.append(key)
