"""``Idempotency-Key``: a write that is sent again is done once and answered as before.

Invariant: the answer is kept in the transaction of the write. Two at once: the second waits for the
first and gets its answer. The same key with another body is an error, never a second write.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, OperationalError, transaction
from django.http import HttpRequest, HttpResponse
from psycopg.errors import LockNotAvailable

from controlplane.actions.actor import Actor
from controlplane.api.door import answer
from controlplane.errors import Busy, Conflict, InvalidInput
from controlplane.models import IdempotentAnswer

KEPT = timedelta(hours=24)


def once(
    request: HttpRequest, actor: Actor, now: datetime, act: Callable[[], tuple[int, Any]]
) -> HttpResponse:
    """Run ``act`` (status and body), or give back what it answered to this key before.

    Errors are not kept: what failed wrote nothing, so it may be tried again with the same key.
    """
    key = request.headers.get("Idempotency-Key")
    if key is None:
        status, body = act()
        return answer(body, status)
    if not 1 <= len(key) <= 200 or not key.isprintable():
        fault = {"field": "Idempotency-Key", "message": "write 1 to 200 printable characters"}
        raise InvalidInput("Idempotency-Key: 1 to 200 printable characters", errors=[fault])
    said = f"{request.method} {request.get_full_path()}\n".encode() + request.body
    digest = hashlib.sha256(said).digest()
    with transaction.atomic():
        kept = _claim(actor.name, key, digest, now)
        if kept is not None:
            if bytes(kept.request_sha256) != digest:
                raise Conflict(
                    f"Idempotency-Key {key} was used for another request; take a new one.",
                    code="key_reused",
                )
            return answer(kept.body, kept.status, Idempotent_Replayed="true")
        status, body = act()
        response = answer(body, status)
        IdempotentAnswer.objects.filter(actor=actor.name, key=key).update(
            status=status, body=json.loads(response.content)
        )
        return response


def _claim(actor: str, key: str, digest: bytes, now: datetime) -> IdempotentAnswer | None:
    """The answer kept for this key, or None after the key was claimed for this request."""
    IdempotentAnswer.objects.filter(created_at__lt=now - KEPT).delete()
    try:
        with transaction.atomic():
            IdempotentAnswer.objects.create(
                actor=actor, key=key, request_sha256=digest, created_at=now
            )
    except IntegrityError:
        return IdempotentAnswer.objects.get(actor=actor, key=key)
    except OperationalError as error:
        if isinstance(error.__cause__, LockNotAvailable):
            raise Busy("The first request with this key still runs.", retry_after_s=1) from error
        raise
    return None
