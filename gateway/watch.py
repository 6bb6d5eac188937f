"""Follows the desired state: a stream of full snapshots, and a slow poll that trusts no stream.

Invariants: what runs is only ever replaced by a snapshot that was read whole; a lower generation of
the same epoch is ignored; a snapshot that was refused for good is not asked for a second time;
a snapshot is in force at once, and reported once it is on the disk, or as not being there; no fault
of the control plane, the network or the disk ends this or touches what is in force.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from datetime import datetime

import msgspec

from controlplane.domain.backoff import BackoffPolicy
from controlplane.wire.desired import Bookmark
from controlplane.wire.status import ConfigSource
from gateway import snapshot, sse
from gateway.checkpoint import Checkpoint
from gateway.clock import Clock, ClockOffset
from gateway.contact import Contact, NoAnswer, Stream
from gateway.live import Live
from gateway.saving import Saver
from gateway.snapshot import InForce, Received, SnapshotRefused

log = logging.getLogger(__name__)

SILENCE_S = 25.0
RECONCILE_S = 60.0
POLL_S = 5.0
FRUITLESS_S = 1.0
"""The least time between two fetches that somebody asked for and that brought nothing."""
REFUSED = (401, 403)
REFUSED_WAIT_S = 30.0

BACKOFF = BackoffPolicy(base_seconds=0.5, factor=2.0, cap_seconds=8.0)


class Watcher:
    """Keeps one ``Live`` at what the control plane wants."""

    def __init__(
        self,
        contact: Contact,
        live: Live,
        checkpoint: Checkpoint,
        clock: Clock,
        offset: ClockOffset,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._contact = contact
        self._live = live
        self._clock = clock
        self._offset = offset
        self._draw = draw
        self._fetch = asyncio.Event()
        self._failures = 0
        self._reading_since: float | None = None
        """While the stream is waited for: since when."""
        self._saver = Saver(checkpoint, live, clock, offset)
        self.settled = self._saver.settled
        self.on_epoch: Callable[[str], None] = _nothing
        """Called with the control plane's epoch, whenever an answer names it."""
        self.streaming = False
        self.alive = asyncio.Event()
        """Set with every frame: the control plane is there. Who waits for it clears it first."""
        self.received_generation = live.in_force.generation
        self.refused: SnapshotRefused | None = None
        """Why the newest snapshot was refused as a whole; None once another one is in force."""

    def fetch_soon(self) -> None:
        """Somebody has heard of another generation or epoch than ours."""
        self._fetch.set()

    @property
    def checkpointed_generation(self) -> int:
        """Of the epoch in force, the newest one that a restart would begin with."""
        return self._saver.generation

    def heard(self, epoch: str, generation: int, instances: int) -> None:
        """An answer said what the control plane has; fetch when it is more than ours."""
        ours = self._live.in_force
        self.heard_of(epoch, generation)
        if (epoch, generation) == (ours.epoch, ours.generation):
            self._live.confirmed(self._source, instances)

    def heard_of(self, epoch: str, generation: int) -> None:
        """As ``heard``, of an answer that does not say how many instances live."""
        ours = self._live.in_force
        if epoch:
            self.on_epoch(epoch)
        if self._refused_for_good and self._refused_for_good[:2] == (epoch, generation):
            return
        if epoch != ours.epoch or generation > ours.generation:
            self.fetch_soon()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            tasks.create_task(self._reconcile())

    # --- the stream ---------------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            floor: float | None = None
            try:
                floor = await self._one_stream()
            except NoAnswer as error:
                self._fails(str(error))
            except (msgspec.DecodeError, UnicodeDecodeError, sse.TooLong) as error:
                self._fails(f"the watch is not understood: {error}")
            finally:
                self.streaming = False
            # The first draw is up to half a second also after a stream that ended well: a restart
            # of the control plane must not bring every gateway back in the same instant.
            await self._clock.sleep(BACKOFF.wait(max(1, self._failures), self._draw(), floor))

    async def _one_stream(self) -> float | None:
        """Follow one stream to its end; returns the least time to wait before the next."""
        async with self._contact.watch(*self._seen) as stream:
            if stream.status == 410:
                self.fetch_soon()
                self._fails("410: the stream wants a fresh start")
                return None
            if stream.status in REFUSED:
                self._fails(f"{stream.status}: check the gateway's token")
                return REFUSED_WAIT_S
            if stream.status != 200:
                self._fails(f"{stream.status}")
                return stream.retry_after_s
            silence = asyncio.create_task(self._end_when_silent(stream))
            try:
                await self._read(stream)
            finally:
                silence.cancel()
                self._reading_since = None
            if not self.streaming:
                self._fails("the stream ended without a word")
            return None

    async def _read(self, stream: Stream) -> None:
        """To the end. Raises ``NoAnswer``, also after 25 s of silence."""
        frames = sse.Frames()
        while True:
            self._reading_since = self._clock.monotonic()
            piece = await stream.read()
            self._reading_since = None
            if not piece:
                return
            for frame in frames.feed(piece):
                self._failures = 0
                self.streaming = True
                self.alive.set()
                self._frame(frame)

    async def _end_when_silent(self, stream: Stream) -> None:
        """One timer for a stream: one for each piece cost more than the reading of it (measured).

        While we do not read, nobody else is silent.
        """
        while True:
            since, now = self._reading_since, self._clock.monotonic()
            left = SILENCE_S if since is None else since + SILENCE_S - now
            if left <= 0:
                stream.give_up(f"nothing heard for {SILENCE_S:g} s")
                return
            await self._clock.sleep(left)

    def _frame(self, frame: sse.Frame) -> None:
        if frame.event == "snapshot":
            self._offer(frame.data, "Stream")
        elif frame.event == "bookmark":
            seen = msgspec.json.decode(frame.data, type=Bookmark)
            self.heard(seen.epoch, seen.generation, seen.instances)

    def _fails(self, why: str) -> None:
        self._failures += 1
        if self._failures & (self._failures - 1) == 0:
            log.warning("the watch is down, try %d: %s", self._failures, why)

    # --- the poll -----------------------------------------------------------------------------

    async def _reconcile(self) -> None:
        while True:
            wait = RECONCILE_S if self.streaming else POLL_S
            # Spread over the period, or every gateway polls in the same second for ever.
            asked = await self._clock.first(self._fetch, wait * (0.75 + self._draw() / 2))
            self._fetch.clear()
            self._saver.again()
            before, floor = self._live.in_force, 0.0
            try:
                floor = await self._poll(unconditional=asked)
            except NoAnswer as error:
                log.debug("the poll had no answer: %s", error)
            if asked and self._live.in_force == before:
                # Whoever asked may ask again with every answer that it hears.
                floor = max(floor, FRUITLESS_S)
            if floor:
                await self._clock.sleep(floor)

    async def _poll(self, unconditional: bool) -> float:
        ours = self._live.in_force
        known = [] if unconditional or not ours.hash else [(ours.generation, ours.hash)]
        if self._refused_for_good:
            known.append(self._refused_for_good[1:])
        etags = ", ".join(f'"{generation}-{hash_}"' for generation, hash_ in known)
        answer = await self._contact.fetch(etags or None)
        if answer.status == 200:
            self._offer(answer.body, "Poll")
        elif answer.status == 304:
            if self.refused is None:
                self._live.confirmed(self._source, None)
        elif answer.status in REFUSED:
            return REFUSED_WAIT_S
        return answer.retry_after_s or 0.0

    @property
    def _seen(self) -> tuple[str, int, str]:
        """Epoch, generation and hash of the newest snapshot that was read, refused or not."""
        ours = self._live.in_force
        return self._refused_for_good or (ours.epoch, ours.generation, ours.hash)

    @property
    def _refused_for_good(self) -> tuple[str, int, str] | None:
        return self.refused.of if self.refused is not None and self.refused.for_good else None

    @property
    def _source(self) -> ConfigSource:
        return "Stream" if self.streaming else "Poll"

    # --- taking a snapshot --------------------------------------------------------------------

    def _offer(self, raw: bytes, source: ConfigSource) -> None:
        """Put a snapshot in force, and then on the disk, for which nothing here waits: what comes
        next is in force at once however long a disk stalls."""
        try:
            received = snapshot.read(raw, self._live.config.gateway.name)
            self.on_epoch(received.epoch)
            ours = self._live.in_force
            snapshot.check_shrink(received, ours)
        except SnapshotRefused as error:
            self._refuse(error)
            return
        self.received_generation = received.generation
        if not supersedes(received, ours):
            if received.generation == ours.generation:
                self._live.confirmed(source, received.instances)
            return
        self.refused = None
        now = self._clock.monotonic()
        if received.remaining_s and (server := self._offset.server_time(now)) is not None:
            # Remaining seconds are of when it was sent, which over a slow stream is not now.
            travelled = (server - received.server_time).total_seconds()
            received = received.aged(max(0.0, travelled))
        self._live.apply(received, source, now, self._control_plane_wall())
        self._saver.put(received)

    def _refuse(self, error: SnapshotRefused) -> None:
        if self.refused is None or self.refused.of != error.of:
            log.error("a snapshot is refused, what runs stays: %s", error)
            self.refused = error
            self._live.on_change()

    def _control_plane_wall(self) -> datetime:
        return self._offset.corrected(self._clock.wall())


def _nothing(_epoch: str) -> None:
    """Nobody listens yet."""


def supersedes(received: Received, ours: InForce) -> bool:
    """True when a snapshot is to replace what is in force: another epoch, or a later generation."""
    return received.epoch != ours.epoch or received.generation > ours.generation
