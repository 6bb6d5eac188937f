"""What one turn of the event loop sends, to callers and to providers, leaves at its end together.

A write to a socket wakes the process that reads it. Written one by one between the work of many
requests, each write wakes a process that has gone to sleep again since the last; at 32 connections
that was 8 (plain) to 15 % (streams) of the worker's processor time a request (measured).

Invariants: at most one piece of a connection waits, for at most one turn of the loop, and none that
is long; what is sent to a connection leaves in order; a closed connection gets nothing. Whoever
closes a connection after sending calls ``flush`` first.
"""

from __future__ import annotations

import asyncio
import logging

log = logging.getLogger(__name__)

_LONG = 64 * 1024


class Outgoing:
    """Of one worker. Used from the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[asyncio.Transport, bytes] = {}
        self.alone = False
        """True while no other call is in flight: there is nothing to leave together with."""

    def send(self, transport: asyncio.Transport, data: bytes) -> None:
        """Write at the end of this turn; at once what is alone, long or follows what waits."""
        if self.alone and not self._waiting:
            transport.write(data)
            return
        if len(data) >= _LONG or transport in self._waiting:
            self.flush()
            transport.write(data)
            return
        if not self._waiting:
            self._loop.call_soon(self.flush)
        self._waiting[transport] = data

    def holds(self, transport: asyncio.Transport) -> bool:
        """True while a piece for this connection waits."""
        return transport in self._waiting

    def flush(self) -> None:
        """Write what waits."""
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
