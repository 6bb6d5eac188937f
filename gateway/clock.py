"""The one place where this half of the product reads a clock or sleeps.

Invariant: ``monotonic`` never steps and measures every duration and deadline; ``wall`` is aware
UTC, may step, and is only for people, for ids and for a restart. Seconds.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol


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


DRIFT_S = 0.1
"""More than two sound clocks drift apart while a sample is kept."""


class _Sample(NamedTuple):
    """One round trip. ``server_at``: the monotonic time at which ``server`` was read, as believed:
    the middle."""

    rtt_s: float
    offset_s: float
    server: datetime
    server_at: float

    def agrees(self, other: _Sample) -> bool:
        """False when one of the clocks was set, or ours stood still, between the two: they differ
        by more than their round trips leave open."""
        passed = (other.server - self.server).total_seconds()
        by_wall = abs(other.offset_s - self.offset_s)
        by_monotonic = abs(passed - (other.server_at - self.server_at))
        return max(by_wall, by_monotonic) <= (self.rtt_s + other.rtt_s) / 2 + DRIFT_S


class ClockOffset:
    """How far the control plane's clock is ahead of ours, from round trips.

    The answer with the shortest of the last eight round trips is believed, because half of its
    trip bounds the error (the filter of RFC 5905 section 10). None until something was measured.
    """

    KEPT = 8

    def __init__(self) -> None:
        self._samples: list[_Sample] = []

    def measured(self, sent: datetime, server: datetime, rtt_s: float, sent_at: float) -> None:
        """``server`` was read by the other side between ``sent`` and ``sent + rtt_s``; ``sent_at``
        is ``sent`` as our monotonic clock told it."""
        offset = (server - sent).total_seconds() - rtt_s / 2
        sample = _Sample(rtt_s, offset, server, sent_at + rtt_s / 2)
        # One from before a clock was set, or this machine slept, is wrong however short it was.
        still = [kept for kept in self._samples if kept.agrees(sample)]
        self._samples = [*still[1 - self.KEPT :], sample]

    @property
    def _believed(self) -> _Sample | None:
        return min(self._samples) if self._samples else None

    @property
    def offset_s(self) -> float | None:
        """Control plane minus gateway."""
        return believed.offset_s if (believed := self._believed) else None

    @property
    def rtt_s(self) -> float | None:
        """The round trip of the believed sample; half of it bounds the error of the others."""
        return believed.rtt_s if (believed := self._believed) else None

    def server_time(self, now: float) -> datetime | None:
        """The control plane's time of day at a monotonic moment of ours, whatever our own time of
        day does meanwhile."""
        believed = self._believed
        if believed is None:
            return None
        return believed.server + timedelta(seconds=now - believed.server_at)

    def corrected(self, wall: datetime) -> datetime:
        """Our wall time as the control plane would read it."""
        return wall + timedelta(seconds=self.offset_s or 0.0)
