"""The table from library exceptions to phase and cause."""

from __future__ import annotations

import asyncio
import errno
import ssl
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from controlplane.domain.classify import Cause, Phase
from gateway.faults import AnswerTooLarge, Progress, fault_of

WHERE: Any = SimpleNamespace(host="p", port=1, ssl=True, is_ssl=True)
RESET = ConnectionResetError(errno.ECONNRESET, "reset")


def connector(number: int) -> aiohttp.ClientConnectorError:
    return aiohttp.ClientConnectorError(WHERE, OSError(number, "x"))


@pytest.mark.parametrize(
    ("error", "reached", "phase", "cause"),
    [
        (connector(errno.ECONNREFUSED), Phase.CONNECTING, Phase.CONNECTING, Cause.REFUSED),
        (connector(errno.ENETUNREACH), Phase.CONNECTING, Phase.CONNECTING, Cause.UNREACHABLE),
        (connector(errno.EMFILE), Phase.CONNECTING, Phase.CONNECTING, Cause.LOCAL_LIMIT),
        (
            aiohttp.ClientConnectorDNSError(WHERE, OSError(-2, "x")),
            Phase.RESOLVING,
            Phase.RESOLVING,
            Cause.NAME,
        ),
        (
            aiohttp.ClientConnectorCertificateError(WHERE, ssl.CertificateError("x")),
            Phase.CONNECTING,
            Phase.TLS,
            Cause.CERTIFICATE,
        ),
        (
            aiohttp.ClientConnectorSSLError(WHERE, ssl.SSLError(1, "x")),
            Phase.CONNECTING,
            Phase.TLS,
            Cause.OTHER,
        ),
        (
            aiohttp.ServerDisconnectedError(),
            Phase.AWAITING_HEADERS,
            Phase.AWAITING_HEADERS,
            Cause.CLOSED,
        ),
        (
            aiohttp.ClientOSError(errno.ECONNRESET, "x"),
            Phase.AWAITING_HEADERS,
            Phase.AWAITING_HEADERS,
            Cause.RESET,
        ),
        (aiohttp.ClientPayloadError("x"), Phase.READING_BODY, Phase.READING_BODY, Cause.CLOSED),
        (RESET, Phase.READING_BODY, Phase.READING_BODY, Cause.RESET),
        (TimeoutError(), Phase.AWAITING_HEADERS, Phase.AWAITING_HEADERS, Cause.TIMEOUT),
        (TimeoutError(), Phase.CONNECTING, Phase.CONNECTING, Cause.TIMEOUT),
        (asyncio.CancelledError(), Phase.READING_BODY, Phase.READING_BODY, Cause.CANCELLED),
        (AnswerTooLarge("x"), Phase.READING_BODY, Phase.READING_BODY, Cause.TOO_LARGE),
        (ValueError("x"), Phase.CONNECTING, Phase.CONNECTING, Cause.OTHER),
    ],
)
def test_exception_becomes_phase_and_cause(
    error: BaseException, reached: Phase, phase: Phase, cause: Cause
) -> None:
    fault = fault_of(error, Progress(phase=reached))
    assert (fault.phase, fault.cause) == (phase, cause)


def test_request_that_never_left_is_said_to_have_no_byte_acknowledged() -> None:
    assert fault_of(TimeoutError(), Progress()).request_bytes_acked == 0
    sent = Progress(phase=Phase.AWAITING_HEADERS, reused=True)
    fault = fault_of(aiohttp.ServerDisconnectedError(), sent)
    assert fault.request_bytes_acked is None
    assert fault.reused_connection
