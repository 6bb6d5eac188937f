"""How many requests one worker lets in at once, and who is turned away first.

Invariant: ``reserved`` places of ``in_flight`` are never taken by ordinary requests, so that what
someone marked as urgent still gets in when the rest is full; health checks take no place at all.
"""

from __future__ import annotations

from enum import StrEnum

from controlplane.domain.limits import LOW_SHARE, Concurrency, concurrency, share
from gateway.config import Limits, Provider


class Priority(StrEnum):
    """What the caller says of a request in ``x-switchgear-priority``."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"


def places(provider: Provider, instances: int) -> Concurrency:
    """How many calls one of so many live instances may have at a provider at one time."""
    most = provider.connections
    if provider.max_concurrent is not None:
        most = min(most, share(provider.max_concurrent, instances))
    return concurrency(most)


class Admission:
    """The count of one worker. Used from the loop's thread."""

    def __init__(self, limits: Limits) -> None:
        ordinary = limits.in_flight - limits.reserved
        self._most = {
            Priority.LOW: max(1, int(ordinary * LOW_SHARE)),
            Priority.NORMAL: ordinary,
            Priority.HIGH: limits.in_flight,
        }
        self.in_flight = 0

    def enter(self, priority: Priority) -> bool:
        """Take a place; False when there is none for this priority. Then ``leave`` is not due."""
        if self.in_flight >= self._most[priority]:
            return False
        self.in_flight += 1
        return True

    def leave(self) -> None:
        """Give the place back."""
        self.in_flight -= 1
