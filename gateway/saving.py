"""Brings what is in force to the disk, beside everything else: nobody waits for a disk that stalls.

Invariants: one thing is written at a time, and of several that wait the newest; what could not be
written is kept until it can be, or something newer is in force.
"""

from __future__ import annotations

import asyncio
import logging

from gateway.checkpoint import Checkpoint
from gateway.clock import Clock, ClockOffset
from gateway.live import Live
from gateway.snapshot import Received

log = logging.getLogger(__name__)


class Saver:
    """Of one ``Live``. Used from the loop's thread; the writing is done in another."""

    def __init__(
        self, checkpoint: Checkpoint, live: Live, clock: Clock, offset: ClockOffset
    ) -> None:
        self._checkpoint = checkpoint
        self._live = live
        self._clock = clock
        self._offset = offset
        self._unsaved: Received | None = None
        self._saved = live.in_force.epoch, live.in_force.generation
        self._saving: asyncio.Task[None] | None = None
        self.settled = asyncio.Event()
        """Cleared while what is in force is being brought to the disk."""
        self.settled.set()

    @property
    def generation(self) -> int:
        """Of the epoch in force, the newest one that a restart would begin with."""
        epoch, generation = self._saved
        return generation if epoch == self._live.in_force.epoch else 0

    def put(self, received: Received) -> None:
        """This is in force now."""
        self._unsaved = received
        self.again()

    def again(self) -> None:
        """Try once more what could not be written."""
        if self._unsaved is not None and (self._saving is None or self._saving.done()):
            self.settled.clear()
            self._saving = asyncio.create_task(self._save())

    async def _save(self) -> None:
        try:
            while (received := self._unsaved) is not None:
                offset, last_good = self._offset.offset_s or 0.0, self._live.last_good()
                await asyncio.to_thread(
                    self._checkpoint.save, received.raw, self._clock.wall(), offset, last_good
                )
                self._saved = received.epoch, received.generation
                if self._unsaved is received:
                    self._unsaved = None
        except OSError as error:
            # It is in force all the same, reports say both, and the next poll tries again.
            log.error("the configuration in force is not on the disk: %s", error)
        finally:
            self._live.on_change()
            self.settled.set()
