"""Events and batches as a gateway would send them: plain dictionaries with sensible defaults."""

from __future__ import annotations

import itertools
import random
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from controlplane.wire.events import mint_id

_random = random.Random(20261130)
_offsets = itertools.count()


def now() -> datetime:
    """The real time, aware."""
    return datetime.now(UTC)


def event(kind: str, at: datetime | None = None, **fields: Any) -> dict[str, Any]:
    """One event with an id of its own time."""
    at = at or now() - timedelta(seconds=5)
    return {
        "kind": kind,
        "id": str(mint_id(at, _random.getrandbits(74))),
        "occurred_at": at.isoformat(),
    } | fields


def attempt(at: datetime | None = None, **fields: Any) -> dict[str, Any]:
    """A first, successful, served attempt on openai/gpt-4o."""
    return event(
        "attempt",
        at,
        **{
            "request": str(uuid.uuid4()),
            "ordinal": 1,
            "role": "first",
            "provider": "openai",
            "model": "gpt-4o",
            "tenant": "acme",
            "route": "chat",
            "status": 200,
            "verdict": "success",
            "ended_ms": 800,
            "tokens": {"input": 100, "cached_read": 20, "output": 40},
            "billing": "billed",
            "served": True,
        }
        | fields,
    )


def refusal(at: datetime | None = None, **fields: Any) -> dict[str, Any]:
    """A call that an open breaker stopped."""
    return event(
        "refusal",
        at,
        **{
            "request": str(uuid.uuid4()),
            "provider": "openai",
            "model": "gpt-4o",
            "tenant": "acme",
            "route": "chat",
            "gate": "breaker",
            "detail": "open for 3 s more",
        }
        | fields,
    )


def outcome(at: datetime | None = None, **fields: Any) -> dict[str, Any]:
    """The good end of a request."""
    at = at or now() - timedelta(seconds=4)
    return event(
        "outcome",
        at,
        **{
            "request": str(uuid.uuid4()),
            "tenant": "acme",
            "route": "chat",
            "success": True,
            "started_at": (at - timedelta(seconds=1)).isoformat(),
            "ended_at": at.isoformat(),
            "latency_ms": 1000,
        }
        | fields,
    )


def transition(number: int, to: str, at: datetime | None = None, **fields: Any) -> dict[str, Any]:
    """One change of the breaker of openai/gpt-4o."""
    return event(
        "transition",
        at,
        **{
            "provider": "openai",
            "model": "gpt-4o",
            "number": number,
            "from": "Closed" if to == "Open" else "Open",
            "to": to,
            "cause": "ConsecutiveFailures" if to == "Open" else "OpenPeriodOver",
            "counters": {"calls": 9, "failures": 5, "consecutive": 5},
        }
        | fields,
    )


def budget(at: datetime | None = None, **fields: Any) -> dict[str, Any]:
    """The system's bucket."""
    return event(
        "budget",
        at,
        **{"scope": "system/", "balance": 40, "earned": 400, "spent": 3, "window_s": 60} | fields,
    )


def batch(
    *events: dict[str, Any], seq: int = 1, boot: uuid.UUID | None = None, **fields: Any
) -> dict[str, Any]:
    """A batch of one instance."""
    return {
        "instance": str(boot or uuid.UUID(int=1)),
        "slot": "host-a/0",
        "seq": seq,
        "sent_at": now().isoformat(),
        "events": list(events),
    } | fields


def encoded(content: Any) -> bytes:
    """JSON bytes."""
    return msgspec.json.encode(content)
