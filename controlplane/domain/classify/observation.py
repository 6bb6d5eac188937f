"""What was seen of one attempt: the whole input of ``classify``, in our own words.

Each transport has one table from its library's exceptions to ``Phase`` and ``Cause``; nothing of a
library comes further than that. Times are seconds.

Invariant: data only. A stream's reader looks at a completion as it passes and never keeps it.

What is made for every request is a ``value`` here and a msgspec struct in the gateway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from controlplane.domain.classify.stream import StreamEvent, StreamProgress
from controlplane.domain.value import value

_NOTHING: Mapping[str, str] = MappingProxyType({})


class Phase(StrEnum):
    """How far a call had come when its connection failed."""

    RESOLVING = "resolving"
    CONNECTING = "connecting"
    TLS = "tls"
    POOL_CHECKOUT = "pool_checkout"
    AWAITING_HEADERS = "awaiting_headers"
    READING_BODY = "reading_body"


class Cause(StrEnum):
    """What ended the connection."""

    TIMEOUT = "timeout"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    RESET = "reset"
    CLOSED = "closed"  # by the peer, before the answer was complete
    MALFORMED = "malformed"  # what came is not HTTP, or not in the encoding that it names
    TOO_LARGE = "too_large"  # a whole answer above what we keep in memory
    NAME = "name"  # the resolver failed
    CERTIFICATE = "certificate"  # expired, or of another name
    UNTRUSTED = "untrusted"  # of no authority that this host knows, or from its future
    NOT_PROCESSED = "not_processed"  # HTTP/2 REFUSED_STREAM, or GOAWAY below our stream
    CANCELLED = "cancelled"
    LOCAL_LIMIT = "local_limit"  # our own files, ports, memory or pool
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Fault:
    """A connection that failed. ``request_bytes_acked`` None: not known."""

    phase: Phase
    cause: Cause = Cause.OTHER
    reused_connection: bool = False
    request_bytes_acked: int | None = None
    self_inflicted: bool = False


@value
class Context:
    """Our side of the call: the client, what it already has, and whose time limit it was."""

    client_connected: bool = True
    bytes_sent_to_client: int = 0
    streaming: bool = False
    caller_deadline_s: float | None = None
    elapsed_s: float | None = None
    provider_header_timeout_s: float | None = None


@value
class Observation:
    """Everything that is known of one attempt.

    ``status``: None without a response. ``body``: a parsed object, text, or None when it was not
    kept. ``stream``: its events, or the ``StreamProgress`` that watched them go by. ``now``: aware,
    for waits that are written as dates.
    """

    provider: str
    now: datetime
    model: str = ""
    status: int | None = None
    headers: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    body: Any = None
    stream: Sequence[StreamEvent] | StreamProgress | None = None
    fault: Fault | None = None
    context: Context = Context()
