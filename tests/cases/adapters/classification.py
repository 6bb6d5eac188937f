"""Classification cases through ``domain.classify``.

The cases name library exceptions; ``FAULTS`` plays the part of a transport's own table from
exceptions to causes, for the libraries that the reports used.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from controlplane.domain.classify import (
    Cause,
    Context,
    Fault,
    Observation,
    Phase,
    StreamEvent,
    classify,
)

NOT_ASSERTED = {"advice": ""}
NOW = datetime(2026, 1, 1, tzinfo=UTC)

# Searched in "type message cause", lower case; the first that is found.
FAULTS = (
    (r"emfile|enfile|too many open files|eaddrnotavail|cannot assign requested", Cause.LOCAL_LIMIT),
    (r"refused_stream|goaway", Cause.NOT_PROCESSED),
    (r"certificate|cert_|self[- ]signed|certverif", Cause.CERTIFICATE),
    (r"time[d]?[ _-]?out|deadline", Cause.TIMEOUT),
    (r"cancel|aborterror|was aborted|clientdisconnect|generatorexit", Cause.CANCELLED),
    (r"getaddrinfo|name resolution|name or service|eai_again|enotfound|gaierror|dns", Cause.NAME),
    (r"refused", Cause.REFUSED),
    (r"unreach|no route", Cause.UNREACHABLE),
    (r"reset|broken pipe|epipe|readerror|writeerror", Cause.RESET),
    (r"incomplete|disconnect|aborted|closed|hang up|eof|payload", Cause.CLOSED),
    (r"protocol|malformed|invalid http|badstatusline", Cause.MALFORMED),
)


# Other words for where a call stood; what is written stands before the headers of the answer.
PHASES = {
    "dns": "resolving",
    "connect": "connecting",
    "handshake": "tls",
    "pool": "pool_checkout",
    "writing_body": "awaiting_headers",
    "sending": "awaiting_headers",
    "reading_headers": "awaiting_headers",
    "streaming": "reading_body",
}


def run(case: dict[str, Any]) -> dict[str, Any]:
    """The verdict on the case's input, field by field."""
    given = case["input"]
    stream = given.get("stream")
    verdict = classify(
        Observation(
            provider=given.get("provider") or "",
            model=given.get("model") or "",
            now=NOW,
            status=given.get("status"),
            headers=given.get("headers") or {},
            body=given.get("body"),
            stream=None if stream is None else [_event(event) for event in stream],
            fault=_fault(given.get("exception")),
            context=_context(given.get("context") or {}),
        )
    )
    return {
        "kind": verdict.kind.value,
        "retryable": verdict.retryable,
        "counts_against_breaker": verdict.counts_against_breaker,
        "scope": verdict.scope.value,
        "retry_after_s": verdict.retry_after_s,
        "reason": verdict.reason,
    }


def _event(event: dict[str, Any]) -> StreamEvent:
    return StreamEvent(event.get("event"), event.get("data"), event.get("comment"))


def _context(context: dict[str, Any]) -> Context:
    return Context(**{name: context[name] for name in Context.__match_args__ if name in context})


def _fault(exception: dict[str, Any] | None) -> Fault | None:
    if exception is None:
        return None
    text = " ".join(str(exception.get(k) or "") for k in ("type", "message", "cause")).lower()
    phase = exception.get("phase") or "awaiting_headers"
    return Fault(
        Phase(PHASES.get(phase, phase)),
        next((cause for pattern, cause in FAULTS if re.search(pattern, text)), Cause.OTHER),
        reused_connection=bool(exception.get("reused_connection")),
        request_bytes_acked=exception.get("request_bytes_acked"),
        self_inflicted=bool(exception.get("self_inflicted")),
    )
