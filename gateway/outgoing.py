"""What one turn of the event loop tells, to disk, callers and providers, goes at its end together.

A write to a socket wakes the process that reads it. Written one by one between the work of many
requests, each write wakes a process that has gone to sleep again since the last; at 32 connections
that was 8 (plain) to 15 % (streams) of the worker's processor time a request (measured).

Invariants: nothing is sent before what was put into the spool up to then is written, so that a
begin mark is on disk when its call leaves, and a request's events when the last byte of its answer
does: ``flush`` has the order, and whoever sends past ``send`` calls it first. At most one piece of
a connection waits, for at most one turn of the loop, and none that is long; what is sent to a
connection leaves in order; a closed connection gets nothing. Whoever closes a connection after
sending calls ``flush`` first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger(__name__)

_LONG = 64 * 1024


class Deferring(Protocol):
    """The spool, as it is seen from here."""

    defer: Callable[[], bool]

    def flush(self) -> None:
        """Write what was deferred."""


class Outgoing:
    """Of one worker. Used from the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[asyncio.Transport, bytes] = {}
        self._due = False
        self._write_spool: Callable[[], None] = _nothing
        self.alone = False
        """True while no other call is in flight: there is nothing to leave together with."""

    def write_first(self, spool: Deferring) -> None:
        """From now on what is put into this spool in one turn is one write, before all else."""
        self._write_spool, spool.defer = spool.flush, self._later

    def send(self, transport: asyncio.Transport, data: bytes) -> None:
        """Write at the end of this turn; at once what is alone, long or follows what waits."""
        if transport in self._waiting or len(data) >= _LONG or not self._later():
            self.flush()
            transport.write(data)
        else:
            self._waiting[transport] = data

    def holds(self, transport: asyncio.Transport) -> bool:
        """True while a piece for this connection waits."""
        return transport in self._waiting

    def flush(self) -> None:
        """Write what waits: the spool first, then what others are told."""
        try:
            self._write_spool()
        except Exception:
            # A full disk is none of these. Nobody is kept waiting for a fault of the spool.
            log.exception("the spool could not be written")
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, {}
        for transport, data in waiting.items():
            if transport.is_closing():
                continue
            try:
                transport.write(data)
            except Exception:
                # One connection's fault must not keep the others' pieces.
                log.exception("a connection could not be written to")
                transport.abort()

    def _later(self) -> bool:
        """See to it that this turn ends with ``flush``; False when there is nothing to share it."""
        if not self._due:
            if self.alone:
                return False
            self._due = True
            self._loop.call_soon(self._at_the_end)
        return True

    def _at_the_end(self) -> None:
        self._due = False
        self.flush()


def _nothing() -> None:
    """There is no spool."""
