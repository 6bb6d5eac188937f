"""Good answers of the last ten minutes, for routes that would rather say those than nothing
(design 4.4).

Invariants: an answer is only ever given to the tenant that got it, for the very same request, by
the same route and path, and marked; what is held is bounded in time, number and bytes, in memory
alone. Monotonic seconds.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

from gateway.asked import Asked
from gateway.opaque import Opaque
from gateway.operations import Operation

KEPT_S = 600.0
MOST = 2_000
MOST_BYTES = 32 * 2**20
LARGEST = 256 * 1024

DECISION = "last_good"
AGE = "x-switchgear-last-good-age"


class Held(NamedTuple):
    """One answer as the provider gave it."""

    at: float
    headers: Mapping[str, str]
    body: bytes


class LastGood:
    """Of one worker, least recently given first."""

    def __init__(self) -> None:
        self._held: OrderedDict[bytes, Held] = OrderedDict()
        self._size = 0

    def keep(self, key: bytes, headers: Mapping[str, str], body: bytes, now: float) -> None:
        """Keep a good answer in the place of an older one."""
        self._forget(key)
        if len(body) > LARGEST:
            return
        self._held[key] = Held(now, headers, body)
        self._size += len(body)
        while len(self._held) > MOST or self._size > MOST_BYTES:
            self._forget(next(iter(self._held)))

    def find(self, key: bytes, now: float) -> Held | None:
        """The answer to this very request, if it is not too old."""
        held = self._held.get(key)
        if held is not None and now - held.at >= KEPT_S:
            self._forget(key)
            return None
        if held is not None:
            self._held.move_to_end(key)
        return held

    def _forget(self, key: bytes) -> None:
        held = self._held.pop(key, None)
        if held is not None:
            self._size -= len(held.body)


def key_of(asked: Asked | Opaque, operation: Operation, tenant: str, route: str) -> bytes | None:
    """What has to be the same for an answer to be given again; None for what has no such answer:
    a stream, a body that is not read, a request with effects of its own."""
    if isinstance(asked, Opaque) or asked.stream or not operation.repeatable(asked):
        return None
    digest = hashlib.blake2b(digest_size=16)
    for part in (tenant, route, operation.path):
        digest.update(part.encode("utf-8", "surrogateescape") + b"\0")
    digest.update(asked.body_for(asked.model, False))
    return digest.digest()
