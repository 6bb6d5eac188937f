"""Who calls: tenant, task, priority and deadline out of a request's headers (design 4.8).

Invariant: what comes out can stand in an event: at most 200 characters, no control character, text
that UTF-8 can write. A tenant that the caller names counts only with a trusted key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from math import isfinite

from msgspec import Struct
from multidict import istr

from gateway.admission import Priority
from gateway.config import Caller, Config

DEFAULT_TENANT = "default"
# Looked up for each request: an ``istr`` spares the folding of its case.
_TASK, _TENANT = istr("x-switchgear-task"), istr("x-switchgear-tenant")
_PRIORITY, _TIMEOUT = istr("x-switchgear-priority"), istr("x-switchgear-timeout")
_IDEMPOTENCY, _AUTHORIZATION = istr("idempotency-key"), istr("authorization")
_SDK_RETRY = istr("x-stainless-retry-count")
_MOST = 200
_NORMAL = Priority.NORMAL  # off its class it costs a hundred times as much (``domain.request``)


class Refused(Exception):
    """A request cannot be accepted: 400 for a header, 401 for a key, 408 for a slow body."""

    def __init__(self, status: int, field: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.field = field


class Identity(Struct, frozen=True, gc=False):
    """One request's own words about itself. ``timeout_s``: the caller's whole patience."""

    tenant: str
    task: str | None
    priority: Priority
    timeout_s: float | None
    idempotency_key: str | None
    sdk_retry: bool

    @property
    def delivery(self) -> str:
        """What stays the same when the caller sends the same request again; empty if unknown."""
        if self.idempotency_key is None:
            return ""
        text = f"{self.tenant}\0{self.idempotency_key}".encode("utf-8", "surrogateescape")
        return hashlib.blake2b(text, digest_size=16).hexdigest()


class Callers:
    """The configured keys, found by their hash."""

    def __init__(self, config: Config) -> None:
        self._known = {caller.key_sha256: caller for caller in config.callers}
        self._require = config.gateway.require_key

    def identify(self, headers: Mapping[str, str]) -> Identity:
        """Read a request's headers. Raises ``Refused``."""
        task = _label(headers, _TASK)
        return Identity(
            tenant=self.tenant(headers),
            task=task or None,
            priority=_priority(headers),
            timeout_s=_timeout(headers),
            idempotency_key=headers.get(_IDEMPOTENCY) or None,
            sdk_retry=headers.get(_SDK_RETRY, "0") not in ("0", ""),
        )

    def tenant(self, headers: Mapping[str, str]) -> str:
        """The tenant that this request is counted under. Raises ``Refused``."""
        caller = self._caller(headers) if self._known else None
        if caller is None:
            if self._require:
                raise Refused(401, "authorization", "this gateway does not know that key")
            return DEFAULT_TENANT
        named = _label(headers, _TENANT) if caller.trusted else ""
        return named or caller.tenant

    def _caller(self, headers: Mapping[str, str]) -> Caller | None:
        scheme, _, key = headers.get(_AUTHORIZATION, "").partition(" ")
        if scheme.lower() != "bearer":
            key = headers.get("x-api-key") or headers.get("api-key") or ""
        digest = hashlib.sha256(key.strip().encode("utf-8", "surrogateescape")).hexdigest()
        return self._known.get(digest)


def label(text: str) -> bool:
    """True for text that may stand in an event as a name."""
    return len(text) <= _MOST and (text.isascii() or _is_utf8(text)) and text.isprintable()


def _label(headers: Mapping[str, str], name: str) -> str:
    text = headers.get(name, "")
    if text and not label(text):
        raise Refused(400, name, f"{name}: at most {_MOST} printable characters")
    return text


def _is_utf8(text: str) -> bool:
    # aiohttp hands on bytes that are not UTF-8 as lone surrogates.
    return not any(0xD800 <= ord(char) <= 0xDFFF for char in text)


def _priority(headers: Mapping[str, str]) -> Priority:
    text = headers.get(_PRIORITY)
    if text is None:
        return _NORMAL
    try:
        return Priority(text.lower())
    except ValueError:
        words = ", ".join(Priority)
        raise Refused(400, "x-switchgear-priority", f"expected one of {words}") from None


def _timeout(headers: Mapping[str, str]) -> float | None:
    text = headers.get(_TIMEOUT)
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not (isfinite(seconds) and seconds > 0):
        raise Refused(400, "x-switchgear-timeout", "x-switchgear-timeout: seconds above 0")
    return seconds
