"""The numbered batches of one boot that the control plane has not acknowledged, oldest first.

Invariants: a batch's events and number never change once it is here; batches leave in the order of
their numbers, except those that are given up when a bound is reached (the oldest, those without a
transition first), which shows at the control plane as a gap, and those that are held because they
fail where others do not. What is given up is counted by kind.
What the control plane turns out to have forgotten (a restored backup, so a new epoch) goes out
again, under its old number.
"""

from __future__ import annotations

import logging
import os
from collections import Counter, deque
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import msgspec

from gateway import records
from gateway.kept import Kept

log = logging.getLogger(__name__)

KEPT_ASIDE = 16
"""Refused batches kept for a person to look at."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose batches these are: they are sent under the boot that wrote them."""

    instance: UUID
    slot: str
    gateway: str


@dataclass(slots=True)
class Sealed:
    """One batch: a file, or on a full disk its text. ``events`` is -1 until it has been read."""

    seq: int
    path: Path | None
    text: bytes | None
    events: int
    size: int
    since: datetime | None = None
    damaged: int = 0
    """Records that cannot be sent, as far as it has been read and they are not counted yet."""
    again: bool = False
    """It was acknowledged before, and what it lacks counted then."""
    tries: int = 0
    """How often it has failed."""
    blamed: int = 0
    """How often it has failed again although others had been accepted meanwhile."""
    held_until: float = 0.0
    """Others go before it until then, on the monotonic clock."""
    _accepted: int = 0

    def read(self) -> records.Records:
        """Its records. Raises ``OSError`` when the file cannot be read."""
        if self.text is not None:
            return records.read(self.text)
        assert self.path is not None
        return records.read(self.path.read_bytes())

    def failed(self, accepted: int, patience: int) -> None:
        """It has failed, when so many others had been accepted in all."""
        self.tries += 1
        if self.tries > patience and accepted > self._accepted:
            self.blamed += 1
        self._accepted = accepted


class Outbox:
    """Batches waiting for their receipts. Used from the loop's thread."""

    def __init__(self, identity: Identity, max_bytes: int, max_memory: int) -> None:
        self.identity = identity
        self.dropped: Counter[str] = Counter()
        self.kept = Kept()
        """What has a receipt already."""
        self.transitions: set[int] = set()
        """Numbers of batches with a transition, of those that are not sent yet."""
        self._max_bytes = max_bytes
        self._max_memory = max_memory
        self._waiting: deque[Sealed] = deque()
        self._sending: Sealed | None = None
        self._asked = ""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def events(self) -> int:
        """Events in batches that have been counted."""
        return sum(max(0, batch.events) for batch in self._waiting)

    @property
    def size(self) -> int:
        """Bytes waiting, on disk and in memory."""
        return sum(batch.size for batch in self._waiting)

    @property
    def oldest_at(self) -> datetime | None:
        """When the oldest waiting batch was begun."""
        return self._waiting[0].since if self._waiting else None

    def add(self, batch: Sealed) -> None:
        """Take a sealed batch; the oldest go when a bound is passed, those with a transition last:
        they are few, and a history without them explains nothing.
        """
        self._waiting.append(batch)
        size = self.size
        memory = sum(held.size for held in self._waiting if held.path is None)
        if size <= self._max_bytes and memory <= self._max_memory:
            return
        for held in sorted(self._waiting, key=lambda one: one.seq in self.transitions):
            in_memory = held.path is None
            over = size > self._max_bytes or (in_memory and memory > self._max_memory)
            # Memory is not freed by giving up what is on the disk, which may well be older.
            if not over or held is self._sending or len(self._waiting) == 1:
                continue
            size -= held.size
            memory -= held.size if in_memory else 0
            self._give_up(held, "the spool's bound is reached")

    def head(self, now: float = 0.0) -> Sealed | None:
        """The batch to send now, on the monotonic clock: the oldest that is not held.

        It is not given up while it is under way.
        """
        self._sending = next((one for one in self._waiting if one.held_until <= now), None)
        return self._sending

    def other_than(self, batch: Sealed, now: float) -> Sealed | None:
        """The batch to send in the place of one that fails: of the rest, what was tried least."""
        others = [o for o in self._waiting if o is not batch and o.held_until <= now]
        self._sending = min(others, key=lambda one: one.tries, default=None)
        return self._sending

    @property
    def due_at(self) -> float | None:
        """When a batch is to be sent, on the monotonic clock; None: there is none."""
        return min((batch.held_until for batch in self._waiting), default=None)

    def body(
        self, batch: Sealed, epoch: str, generation: int, now: datetime | None = None
    ) -> bytes:
        """The batch as it goes over the wire. Raises ``OSError`` when it cannot be read."""
        found = batch.read()
        batch.events = len(found.events)
        batch.damaged = 0 if batch.again else found.damaged
        who, now = self.identity, now or datetime.now(UTC)
        head = msgspec.json.encode(
            {
                "instance": who.instance,
                "slot": who.slot,
                "seq": batch.seq,
                "epoch": epoch,
                "generation": generation,
                "sent_at": now,
                "acknowledged": self.kept.highest(epoch, now),
            }
        )
        events = b",".join(payload for _, payload in found.events)
        return head[:-1] + b',"events":[' + events + b"]}"

    def acknowledge(self, batch: Sealed, epoch: str = "", at: datetime | None = None) -> None:
        """The control plane of this epoch has it: keep it aside; without an epoch, forget it.

        What of it could not be sent, because its checksum was wrong, is counted as lost.
        """
        self._leave(batch)
        if batch.damaged:
            self.dropped["damaged"] += batch.damaged
        if epoch and at is not None:
            self.kept.add(batch.seq, batch.path, batch.size, epoch, at)
        else:
            _unlink(batch.path)

    def told(self, epoch: str, contiguous: int) -> int:
        """A receipt says what the database has; returns how many batches go out again for it."""
        self._asked = ""
        if not self.kept.of_another(epoch):
            return 0
        return self._put_back(self.kept.take_after(contiguous, epoch))

    def ask(self, epoch: str, *, always: bool = False) -> bool:
        """Send the newest kept batch again, if its receipt is of another epoch (or ``always``).

        The receipt for it says from where on the database lacks what is kept. Once an epoch.
        """
        if self._asked == epoch or not (always or self.kept.of_another(epoch)):
            return False
        newest = self.kept.take_newest()
        if newest is None:
            return False
        self._asked = epoch
        return bool(self._put_back([newest]))

    def set_aside(self, batch: Sealed, reason: str) -> None:
        """It will never be accepted: keep the file for a person, count its events as lost."""
        self._count(batch)
        self._leave(batch)
        log.error("batch %d of %s set aside: %s", batch.seq, self.identity.instance, reason)
        if batch.path is None:
            return
        aside = batch.path.with_suffix(".aside")
        try:
            os.replace(batch.path, aside)
            for old in sorted(aside.parent.glob("*.aside"))[:-KEPT_ASIDE]:
                old.unlink()
        except OSError as error:
            log.warning("cannot keep a refused batch: %s", error)

    def _put_back(self, batches: list[tuple[int, Path, int]]) -> int:
        back = [Sealed(seq, path, None, -1, size, again=True) for seq, path, size in batches]
        if back:
            self._waiting = deque(sorted([*self._waiting, *back], key=lambda one: one.seq))
        return len(back)

    def _give_up(self, batch: Sealed, reason: str) -> None:
        self._count(batch)
        self._leave(batch)
        _unlink(batch.path)
        log.warning("batch %d of %s given up: %s", batch.seq, self.identity.instance, reason)

    def _leave(self, batch: Sealed) -> None:
        if self._sending is batch:
            self._sending = None
        if batch in self._waiting:
            self._waiting.remove(batch)
        self.transitions.discard(batch.seq)

    def _count(self, batch: Sealed) -> None:
        try:
            found = batch.read()
        except OSError:
            self.dropped["unreadable batch"] += 1
            return
        self.dropped.update(records.KINDS[letter] for letter, _ in found.events)
        if found.damaged:
            self.dropped["damaged"] += found.damaged


def _unlink(path: Path | None) -> None:
    if path is not None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("cannot delete %s: %s", path.name, error)
