"""Overrides that a person makes on this host when the control plane cannot be reached (design 4.5).

Invariants: the same rules as everywhere: a reason, an end within the longest time, the local floor;
it ends on time by itself and survives restarts of every worker. It stands before what the control
plane says, because it is narrower than any gateway's name: this host. The control plane hears of
each, ended ones included, until it has confirmed the end.

One file for all workers of the gateway on this host, changed under a lock; the request path never
waits for it. Deadlines are monotonic seconds, times in the file are aware UTC.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
from msgspec import Struct

from controlplane.domain.overrides import OverrideMode, in_words, lifetime_fault
from controlplane.domain.precedence import Selection, precedence
from controlplane.domain.text import readable
from controlplane.wire.desired import Match, OverrideItem
from controlplane.wire.events import Mode
from controlplane.wire.status import LocalOverride
from gateway.clock import Clock
from gateway.overrides import Armed

log = logging.getLogger(__name__)

KEPT = timedelta(days=7)
MOST = 100
"""Records in the file, ended ones included; the oldest ended ones go first."""


class Refused(Exception):
    """It breaks a rule; the text says which and what to do."""


class Record(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One override as the file holds it."""

    uid: str
    mode: Mode
    provider: str = ""
    model: str = ""
    region: str = ""
    reason: str
    made_by: str
    created_at: datetime
    expires_at: datetime
    allow_last_healthy: bool = False
    ended_at: datetime | None = None
    end_cause: str = ""

    @property
    def selection(self) -> Selection:
        """What it names."""
        return Selection(provider=self.provider, model=self.model, region=self.region)

    def is_active(self, wall: datetime) -> bool:
        """Neither ended by anybody nor past its end."""
        return self.ended_at is None and wall < self.expires_at

    def told(self) -> LocalOverride:
        """As a status report says it."""
        return LocalOverride(
            uid=self.uid,
            mode=self.mode,
            provider=self.provider,
            model=self.model,
            region=self.region,
            reason=self.reason,
            made_by=self.made_by,
            created_at=self.created_at,
            expires_at=self.expires_at,
            ended_at=self.ended_at,
            end_cause=self.end_cause,
        )


class Store:
    """The file, shared by the workers of one host. Blocks for the disk. Raises ``OSError``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / "overrides.json"

    def load(self) -> list[Record]:
        """What is recorded; a file that cannot be read is as none, and said."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=list[Record])
        except FileNotFoundError:
            return []
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            log.error("the overrides of this host cannot be read: %s: %s", self._path, error)
            return []

    def put(self, changed: Sequence[Record]) -> None:
        """Write these over what is recorded, by uid."""
        with self._locked():
            held = {record.uid: record for record in self.load()}
            for record in changed:
                old = held.get(record.uid)
                # Another worker may have written the end already.
                if old is None or old.ended_at is None:
                    held[record.uid] = record
            self._write(sorted(held.values(), key=_newest_last)[-MOST:])

    def _write(self, records: list[Record]) -> None:
        temporary = self._path.with_suffix(".new")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(fd, "wb") as file:
            file.write(msgspec.json.encode(records))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._path)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


class LocalOverrides:
    """One worker's view of them. Used from the loop's thread.

    ``hold`` puts a list in force before the control plane's (``Live.hold_local``).
    """

    def __init__(
        self, store: Store, hold: Callable[[Sequence[Armed], float], None], clock: Clock
    ) -> None:
        self._store = store
        self._hold = hold
        self._clock = clock
        self._records: dict[str, Record] = {}
        self._armed: dict[str, Armed] = {}

    def load(self) -> None:
        """Put in force what the file holds and has not ended."""
        wall = self._clock.wall()
        for record in self._store.load():
            if record.expires_at > wall - KEPT:
                self._take(record)
        self._put_in_force()

    def force(self, record: Record, take_over: bool = False) -> Armed:
        """Put one in force now. Raises ``Refused``. ``save`` it afterwards."""
        self._check(record)
        for other in self.active():
            same = other.selection == record.selection
            if same and other.uid != record.uid and not take_over:
                left = in_words(other.expires_at - self._clock.wall())
                raise Refused(
                    f"{other.selection.circuits} is {other.mode} by {other.made_by} for another"
                    f" {left}: {other.reason}. Release {other.uid}, or add --take-over"
                )
            if same and other.uid != record.uid:
                self._end(other, "Replaced")
        self._take(record)
        self._put_in_force()
        return self._armed[record.uid]

    def release(self, uids: Sequence[str]) -> list[Record]:
        """End these now; unknown and ended ones are left out of what is returned."""
        ended = [self._end(r, "Released") for r in self.active() if r.uid in uids]
        self._put_in_force()
        return ended

    def save(self) -> None:
        """Write every record to the file. Blocks: not in the loop's thread. Raises ``OSError``."""
        self._store.put(list(self._records.values()))

    def active(self) -> list[Record]:
        """Those in force or held back by the floor, the narrowest first."""
        self._settle()
        found = [r for r in self._records.values() if r.ended_at is None]
        return sorted(found, key=lambda r: precedence(r.selection, r.uid, r.mode))

    def armed(self, uid: str) -> Armed | None:
        """How one stands here."""
        return self._armed.get(uid)

    def report(self) -> list[LocalOverride]:
        """What a status report says: all that the control plane may not know yet."""
        self._settle()
        return [record.told() for record in self._records.values()]

    def heard(self, reported: Sequence[LocalOverride]) -> None:
        """The control plane has taken a report with these: ended ones need not be said again."""
        for one in reported:
            if one.ended_at is not None:
                self._records.pop(one.uid, None)
                self._armed.pop(one.uid, None)

    def _take(self, record: Record) -> None:
        self._records[record.uid] = record
        if record.is_active(self._clock.wall()):
            left = (record.expires_at - self._clock.wall()).total_seconds()
            self._armed[record.uid] = Armed(_item(record), self._clock.monotonic() + left, True)

    def _settle(self) -> None:
        """Note the ends that came by time."""
        now = self._clock.monotonic()
        for uid, record in list(self._records.items()):
            armed = self._armed.get(uid)
            if record.ended_at is None and (armed is None or armed.until <= now):
                self._records[uid] = msgspec.structs.replace(
                    record, ended_at=record.expires_at, end_cause="Expired"
                )
                self._armed.pop(uid, None)

    def _end(self, record: Record, cause: str) -> Record:
        ended = msgspec.structs.replace(record, ended_at=self._clock.wall(), end_cause=cause)
        self._records[record.uid] = ended
        self._armed.pop(record.uid, None)
        return ended

    def _put_in_force(self) -> None:
        held = [self._armed[r.uid] for r in self.active() if r.uid in self._armed]
        self._hold(held, self._clock.monotonic())

    def _check(self, record: Record) -> None:
        if not readable(record.reason):
            raise Refused("write a reason: --reason '...'")
        wall = self._clock.wall()
        if fault := lifetime_fault(OverrideMode(record.mode), record.expires_at - wall):
            raise Refused(fault)
        if len(self.active()) >= MOST // 2:
            raise Refused(f"{MOST // 2} overrides of this host are active; release some")


def _newest_last(record: Record) -> tuple[bool, datetime]:
    return record.ended_at is None, record.created_at


def _item(record: Record) -> OverrideItem:
    return OverrideItem(
        uid=record.uid,
        name=record.uid,
        generation=1,
        match=Match(provider=record.provider, model=record.model, region=record.region),
        mode=record.mode,
        reason=record.reason,
        expires_at=record.expires_at,
        allow_last_healthy=record.allow_last_healthy,
    )
