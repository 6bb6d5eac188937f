"""Who is calling a hot path: a gateway, by its bearer token.

Invariant: only the SHA-256 of a token is looked up or kept; a token in a URL is refused. A token's
answer is cached for 5 s (the longest that a revoked one still works), and callers who ask for the
same one at the same time share a look-up: hundreds of instances have one token.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from controlplane.api.hot.http import Scope, header
from controlplane.errors import Forbidden, Problem, Unauthenticated
from controlplane.models.pool import pool

CACHE_SECONDS = 5.0
_CACHE_LIMIT = 10_000
_FIND = """
SELECT g.id, g.name FROM gateway_token t JOIN gateway g ON g.id = t.gateway_id
WHERE t.sha256 = %s AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())
"""


@dataclass(frozen=True, slots=True)
class Caller:
    """The gateway that a token belongs to."""

    gateway_id: int
    gateway: str
    digest: bytes = b""

    def must_be(self, name: str) -> None:
        """``Forbidden`` unless the path names the caller itself."""
        if name != self.gateway:
            raise Forbidden(f"This token is of gateway {self.gateway}, not of {name}.")


_Asking = dict[bytes, "asyncio.Task[Caller | None]"]

_cache: dict[bytes, tuple[float, Caller | None]] = {}
_asking: WeakKeyDictionary[asyncio.AbstractEventLoop, _Asking] = WeakKeyDictionary()


async def authenticate(scope: Scope) -> Caller:
    """The calling gateway; ``Unauthenticated`` or 400 (token in the URL) otherwise."""
    query = scope.get("query_string", b"").lower()
    if b"token=" in query or b"api_key=" in query or b"authorization=" in query:
        raise Problem(
            "A credential in a URL ends up in logs: send it as a header, and rotate this one.",
            code="token_in_url",
        )
    scheme, _, token = header(scope, b"authorization").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("Send the gateway's token as Authorization: Bearer <token>.")
    caller = await _caller_of(hashlib.sha256(token.strip().encode()).digest())
    if caller is None:
        raise Unauthenticated("This token is not known, was revoked, or has expired.")
    return caller


async def is_valid(caller: Caller) -> bool:
    """False once the caller's token was revoked or has expired (within ``CACHE_SECONDS``)."""
    return await _caller_of(caller.digest) is not None


async def _caller_of(digest: bytes) -> Caller | None:
    hit = _cache.get(digest)
    if hit is not None and hit[0] >= time.monotonic():
        return hit[1]
    asking = _asking.setdefault(asyncio.get_running_loop(), {})
    if digest not in asking:
        asking[digest] = asyncio.create_task(_look_up(digest))
        asking[digest].add_done_callback(lambda _: asking.pop(digest, None))
    # Shielded: one caller that goes away must not take the answer from the others.
    return await asyncio.shield(asking[digest])


async def _look_up(digest: bytes) -> Caller | None:
    now = time.monotonic()
    async with (await pool()).connection() as connection:
        row = await (await connection.execute(_FIND, (digest,))).fetchone()
    if len(_cache) >= _CACHE_LIMIT:
        _cache.clear()
    caller = Caller(row[0], row[1], digest) if row else None
    _cache[digest] = (now + CACHE_SECONDS, caller)
    return caller


def forget_tokens() -> None:
    """Empty the cache (tests; a revocation in this process)."""
    _cache.clear()
