"""The part of a breaker that the workers of one gateway on one host have in common (design 4).

Invariants: a worker that opens or closes tells its siblings; half-open probes are leased once for
the host, not once for each worker; without siblings, or when the directory cannot be used, every
breaker does what it would do alone. Counts are not shared, and nothing between hosts is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from controlplane.domain.breaker import Permit, Transition
from controlplane.domain.circuit import Circuit
from controlplane.domain.gate import Refusal
from gateway.circuits import Entry
from gateway.leases import ProbeLeases
from gateway.siblings import Heard, Siblings

log = logging.getLogger(__name__)


class Host:
    """One worker's place among its siblings. Used from the loop's thread."""

    def __init__(self, directory: Path, boot: str, now: Callable[[], float]) -> None:
        self._siblings = Siblings(directory, boot, now)
        self._leases = ProbeLeases(directory)
        self._directory = directory

    def start(self, heard: Heard) -> None:
        """Listen to the siblings from now on."""
        try:
            self._siblings.start(heard)
        except OSError as error:
            log.warning("breakers are not shared on this host: %s: %s", self._directory, error)

    def close(self) -> None:
        """Leave."""
        self._siblings.close()

    def tell(self, circuit: Circuit, done: Transition) -> None:
        """A breaker of this worker changed."""
        self._siblings.tell(circuit, done)

    def admit(self, entry: Entry, now: float) -> Permit | Refusal:
        """As the breaker's own ``admit``; a probe needs a lease of the host besides."""
        breaker = entry.breaker
        if not breaker.probing(now) or not self._siblings.others():
            return breaker.admit(now)
        policy = entry.policy
        lease = self._leases.take(
            entry.circuit, policy.half_open_probes, policy.probe_lease_seconds, now
        )
        if isinstance(lease, Refusal):
            return lease
        answer = breaker.admit(now)
        if isinstance(answer, Refusal):
            self._leases.release(lease)
            return answer
        for permit in [held for held, one in entry.leases.items() if one.until <= now]:
            del entry.leases[permit]  # a probe that never reported
        entry.leases[answer] = lease
        return answer

    def done(self, entry: Entry, permit: Permit) -> None:
        """A call is over, and told: if it was a probe, another one may go."""
        lease = entry.leases.pop(permit, None)
        if lease is not None:
            self._leases.release(lease)
