"""Connections that failed: from (phase, cause) and whose doing it was to a reason.

Invariant: what we or the client did is never the provider's failure.
"""

from __future__ import annotations

from controlplane.domain.classify.observation import Cause, Context, Fault, Phase

# Clocks and schedulers are not exact: a timer may fire this many seconds before its deadline.
_EARLY_S = 0.05
_BY_CAUSE = {
    Cause.CANCELLED: "local_cancelled",
    Cause.LOCAL_LIMIT: "local_limit",
    Cause.MALFORMED: "malformed_answer",
    Cause.TOO_LARGE: "answer_too_large",
    Cause.CERTIFICATE: "certificate",
    Cause.UNTRUSTED: "untrusted_certificate",
    Cause.NAME: "dns",
    Cause.NOT_PROCESSED: "not_processed",
}
_BY_PHASE = {
    Phase.POOL_CHECKOUT: "local_pool",
    Phase.RESOLVING: "dns",
    Phase.CONNECTING: "connect",
    Phase.TLS: "tls",
}


def reason_of(fault: Fault, context: Context) -> str:
    """The reason for a failed connection; the client's leaving and its deadline come first."""
    if not context.client_connected:
        return "client_cancelled"
    if fault.phase is Phase.POOL_CHECKOUT:
        return "local_pool"
    if fault.cause in (Cause.TIMEOUT, Cause.CANCELLED) or fault.self_inflicted:
        if _callers_own_deadline(context, fault.phase):
            return "client_deadline"
        if fault.self_inflicted and fault.cause is not Cause.TIMEOUT:
            return "local_cancelled"
    if fault.cause in _BY_CAUSE:
        return _BY_CAUSE[fault.cause]
    if fault.phase in _BY_PHASE:
        return _BY_PHASE[fault.phase]
    if fault.cause is Cause.TIMEOUT:
        return "timeout"
    return "stale_connection" if _was_dead_already(fault) else "reset"


def _callers_own_deadline(context: Context, phase: Phase) -> bool:
    """True when the caller's limit ran out before the provider had had its own time.

    A wait for headers as long as the provider's own timeout is the provider's failure, however
    soon after it the caller's deadline comes.
    """
    deadline, elapsed = context.caller_deadline_s, context.elapsed_s
    if deadline is None or elapsed is None or elapsed + _EARLY_S < deadline:
        return False
    limit = context.provider_header_timeout_s
    return phase is not Phase.AWAITING_HEADERS or limit is None or deadline < limit


def _was_dead_already(fault: Fault) -> bool:
    """A kept-alive connection that the peer had closed before our request reached it."""
    return (
        fault.reused_connection
        and fault.phase is Phase.AWAITING_HEADERS
        and not fault.request_bytes_acked
    )
