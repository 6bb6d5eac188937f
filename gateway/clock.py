"""The one place where this half of the product reads a clock or sleeps.

Invariant: ``monotonic`` never steps and measures every duration and deadline; ``wall`` is aware
UTC, may step, and is only for people, for ids and for a restart. Seconds.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """What tests replace so that no test waits for real time."""

    def monotonic(self) -> float:
        """Seconds since an unknown start; never steps."""
        ...

    def wall(self) -> datetime:
        """Aware UTC time of day; may step."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after that much monotonic time."""
        ...

    async def first(self, event: asyncio.Event, seconds: float) -> bool:
        """Wait for the event, at most that long; True when it is set."""
        ...


class SystemClock:
    """The machine's own clocks and the event loop's timer."""

    # Not wrapped in a method: a request asks a dozen times.
    monotonic = staticmethod(time.monotonic)

    def wall(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def first(self, event: asyncio.Event, seconds: float) -> bool:
        # A timer; a task for each of the two was a tenth of what a report costs (measured).
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()
        return event.is_set()


class ClockOffset:
    """How far the control plane's clock is ahead of ours, from round trips.

    The answer with the shortest of the last eight round trips is believed, because half of its
    trip bounds the error (the filter of RFC 5905 section 10). None until something was measured.
    """

    KEPT = 8

    def __init__(self) -> None:
        self._samples: list[tuple[float, float]] = []

    def measured(self, sent: datetime, server: datetime, rtt_s: float) -> None:
        """``server`` was read by the other side between ``sent`` and ``sent + rtt_s``."""
        offset = (server - sent).total_seconds() - rtt_s / 2
        self._samples = [*self._samples[1 - self.KEPT :], (rtt_s, offset)]

    @property
    def offset_s(self) -> float | None:
        """Control plane minus gateway."""
        return min(self._samples)[1] if self._samples else None

    @property
    def rtt_s(self) -> float | None:
        """The round trip of the believed sample."""
        return min(self._samples)[0] if self._samples else None

    def corrected(self, wall: datetime) -> datetime:
        """Our wall time as the control plane would read it."""
        return wall + timedelta(seconds=self.offset_s or 0.0)
