"""The one table from aiohttp's, asyncio's and the system's exceptions to our phase and cause.

Invariant: every exception that a call to a provider can raise comes out as a ``Fault``; where the
table has no row the phase is what was seen last and the cause is ``other``.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from dataclasses import dataclass

import aiohttp
from aiohttp.http_exceptions import ContentEncodingError

from controlplane.domain.classify import Cause, Fault, Phase
from gateway import trust


class MalformedStream(Exception):
    """What the provider sends is no event stream: an event without an end."""


class NoConnection(TimeoutError):
    """Name, connection and handshake were not done in the time that they have by themselves."""


class NotHTTP(aiohttp.ClientPayloadError):
    """What followed the begin of an answer's body is no HTTP."""


class AnswerTooLarge(Exception):
    """A plain answer above the size that this gateway keeps in memory."""


# Off their class they cost a hundred times as much (``domain.request``).
AWAITING, READING = Phase.AWAITING_HEADERS, Phase.READING_BODY


@dataclass(slots=True)
class Progress:
    """How far one call has come, kept up to date by the connector. ``secure``: TLS is spoken."""

    phase: Phase = Phase.CONNECTING
    reused: bool = False
    secure: bool = False

    @property
    def left_us(self) -> bool:
        """True when a byte of the request may have reached the provider."""
        return self.phase is AWAITING or self.phase is READING


# The first row whose type fits wins. A phase of None: as far as the call had come.
_TABLE: tuple[tuple[type[BaseException], Phase | None, Cause | None], ...] = (
    (aiohttp.ConnectionTimeoutError, Phase.CONNECTING, Cause.TIMEOUT),
    (aiohttp.ServerTimeoutError, None, Cause.TIMEOUT),
    (aiohttp.ClientConnectorDNSError, Phase.RESOLVING, Cause.NAME),
    (aiohttp.ClientConnectorCertificateError, Phase.TLS, None),
    (aiohttp.ClientSSLError, Phase.TLS, Cause.OTHER),
    (aiohttp.ClientConnectorError, None, None),
    (aiohttp.ServerDisconnectedError, None, Cause.CLOSED),
    (aiohttp.ClientConnectionResetError, None, Cause.RESET),
    (aiohttp.ClientOSError, None, None),
    (NotHTTP, Phase.READING_BODY, Cause.MALFORMED),
    (aiohttp.ClientPayloadError, Phase.READING_BODY, Cause.CLOSED),
    (aiohttp.ClientResponseError, None, Cause.MALFORMED),
    (MalformedStream, Phase.READING_BODY, Cause.MALFORMED),
    (AnswerTooLarge, Phase.READING_BODY, Cause.TOO_LARGE),
    (asyncio.CancelledError, None, Cause.CANCELLED),
    (ssl.SSLError, Phase.TLS, Cause.OTHER),
    (TimeoutError, None, Cause.TIMEOUT),
    (ConnectionError, None, None),
    (OSError, None, None),
)
_BY_ERRNO = {
    errno.ECONNREFUSED: Cause.REFUSED,
    errno.EHOSTUNREACH: Cause.UNREACHABLE,
    errno.ENETUNREACH: Cause.UNREACHABLE,
    errno.ETIMEDOUT: Cause.TIMEOUT,
    errno.ECONNRESET: Cause.RESET,
    errno.EPIPE: Cause.RESET,
    errno.EMFILE: Cause.LOCAL_LIMIT,
    errno.ENFILE: Cause.LOCAL_LIMIT,
    errno.ENOMEM: Cause.LOCAL_LIMIT,
    errno.ENOBUFS: Cause.LOCAL_LIMIT,
    errno.EADDRNOTAVAIL: Cause.LOCAL_LIMIT,
}


def fault_of(error: BaseException, progress: Progress, *, self_inflicted: bool = False) -> Fault:
    """The fault that an exception is, given how far the call had come."""
    phase, cause = next(
        ((phase, cause) for kind, phase, cause in _TABLE if isinstance(error, kind)),
        (None, Cause.OTHER),
    )
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = Cause.CERTIFICATE if trust.known_here(error) else Cause.UNTRUSTED
    elif isinstance(error.__cause__, ContentEncodingError):
        cause = Cause.MALFORMED  # the library tells it like a body that was cut
    elif cause is None:
        number = error.errno if isinstance(error, OSError) else None
        cause = _BY_ERRNO.get(number or 0, Cause.RESET if progress.left_us else Cause.OTHER)
    return Fault(
        phase=phase or progress.phase,
        cause=cause,
        reused_connection=progress.reused,
        request_bytes_acked=None if progress.left_us else 0,
        self_inflicted=self_inflicted,
    )
