"""What each reason means for the request, the key, the model and the provider.

Invariant: one reason, one meaning. A row of the provider table may move the scope, nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.domain.verdict import Kind, Scope


@dataclass(frozen=True, slots=True)
class Rule:
    """The meaning of one reason, before any output has gone to the client.

    ``lasting``: a fault of our own that stays until a person mends it.
    """

    kind: Kind
    counts: bool
    scope: Scope
    lasting: bool = False

    @property
    def retryable(self) -> bool:
        """The same request may succeed later: passing faults, the provider's or our own."""
        return self.kind in (Kind.RETRYABLE, Kind.LOCAL_FAULT) and not self.lasting


_RETRY, _NEVER, _OURS = Kind.RETRYABLE, Kind.PERMANENT, Kind.LOCAL_FAULT
_REQUEST, _KEY, _MODEL, _PROVIDER = Scope.REQUEST, Scope.KEY, Scope.MODEL, Scope.PROVIDER

RULES: dict[str, Rule] = {
    # The key: another one may be tried at once. Only a rate limit is evidence of load.
    "rate_limited": Rule(_RETRY, True, _KEY),
    "quota_exhausted": Rule(_NEVER, False, _KEY),
    "spend_cap": Rule(_NEVER, False, _KEY),
    "auth": Rule(_NEVER, False, _KEY),
    "permission": Rule(_NEVER, False, _KEY),
    # The request: refused again by every key.
    "invalid_request": Rule(_NEVER, False, _REQUEST),
    "context_length": Rule(_NEVER, False, _REQUEST),
    "request_too_large": Rule(_NEVER, False, _REQUEST),
    "content_filtered": Rule(_NEVER, False, _REQUEST),
    "not_found": Rule(_NEVER, False, _REQUEST),
    "not_implemented": Rule(_NEVER, False, _REQUEST),
    "conflict": Rule(_RETRY, False, _REQUEST),
    "not_processed": Rule(_RETRY, False, _REQUEST),
    # The model's words were no call and no JSON: drawn anew they may be, and nobody else is hurt.
    "unusable_output": Rule(_RETRY, False, _REQUEST),
    # The model.
    "model_not_found": Rule(_NEVER, False, _MODEL),
    "model_not_ready": Rule(_RETRY, True, _MODEL),
    "model_overloaded": Rule(_RETRY, True, _MODEL),
    "model_error": Rule(_RETRY, True, _MODEL),
    "upstream_error": Rule(_RETRY, True, _MODEL),
    # The provider.
    "overloaded": Rule(_RETRY, True, _PROVIDER),
    "server_error": Rule(_RETRY, True, _PROVIDER),
    "timeout": Rule(_RETRY, True, _PROVIDER),
    "truncated_stream": Rule(_RETRY, True, _PROVIDER),
    "malformed_answer": Rule(_RETRY, True, _PROVIDER),
    "dns": Rule(_RETRY, True, _PROVIDER),
    "connect": Rule(_RETRY, True, _PROVIDER),
    "tls": Rule(_RETRY, True, _PROVIDER),
    "reset": Rule(_RETRY, True, _PROVIDER),
    # A certificate that does not verify now will not verify in a second, and nobody can call.
    "certificate": Rule(_NEVER, True, _PROVIDER),
    "blocked_at_edge": Rule(_NEVER, False, _PROVIDER),
    "redirected": Rule(_NEVER, False, _PROVIDER),
    # Us: no byte of it says anything about the provider.
    "stale_connection": Rule(_RETRY, False, _REQUEST),
    "local_pool": Rule(_OURS, False, _REQUEST),
    "local_limit": Rule(_OURS, False, _REQUEST),
    "local_proxy": Rule(_OURS, False, _REQUEST),
    # It is as large the next time, and paid for again.
    "answer_too_large": Rule(_OURS, False, _REQUEST, lasting=True),
    "local_cancelled": Rule(_OURS, False, _REQUEST),
    "no_observation": Rule(_OURS, False, _REQUEST),
    # This host lacks an authority, has a wrong clock, or something on its way reads along: the
    # provider is well, and another one may be reached.
    "untrusted_certificate": Rule(_OURS, False, _PROVIDER, lasting=True),
    # The client.
    "client_cancelled": Rule(Kind.CLIENT_CANCELLED, False, _REQUEST),
    "client_deadline": Rule(Kind.CLIENT_DEADLINE, False, _REQUEST),
    "ok": Rule(Kind.SUCCESS, False, _REQUEST),
}
