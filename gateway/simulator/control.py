"""Setting a provider's conditions from outside, for tests and for playing by hand.

Invariant: a control message is applied whole or refused with the field that is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from gateway.simulator.scenario import Conditions, Fate

Share = Annotated[float, Meta(ge=0, le=1)]
Milliseconds = Annotated[float, Meta(ge=0, le=600_000)]
Seconds = Annotated[float, Meta(ge=0, le=86_400)]
Weight = Annotated[float, Meta(ge=0)]


class Control(Struct, frozen=True, forbid_unknown_fields=True):
    """What to change; absent fields stay. ``next`` fixes the fates of the next calls, in order."""

    provider: str = "*"
    error_rate: Share | None = None
    latency_ms: Milliseconds | None = None
    sigma: Annotated[float, Meta(ge=0, le=3)] | None = None
    chunk_ms: Milliseconds | None = None
    faults: dict[Fate, Weight] | None = None
    retry_after_s: Seconds | None = None
    output_tokens: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    next: Annotated[list[Fate], Meta(max_length=10_000)] | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A checked control message: the new conditions of the providers that it names."""

    conditions: Mapping[str, Conditions]
    fates: tuple[Fate, ...] | None


def read(body: bytes, current: Mapping[str, Conditions]) -> Change:
    """Check a message against the current conditions. Raises ``ValueError`` naming the field."""
    try:
        asked = msgspec.json.decode(body, type=Control)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error
    except msgspec.DecodeError as error:
        raise ValueError(f"not JSON: {error}") from error
    providers = tuple(current) if asked.provider == "*" else (asked.provider,)
    unknown = set(providers) - current.keys()
    if unknown:
        raise ValueError(f"provider: unknown, known are {', '.join(current)}")
    if asked.faults is not None and not sum(asked.faults.values()) > 0:
        raise ValueError("faults: at least one weight must be above 0")
    values = {
        name: value
        for name, value in msgspec.structs.asdict(asked).items()
        if value is not None and name not in ("provider", "next")
    }
    changed = {name: replace(current[name], **values) for name in providers}
    return Change(changed, None if asked.next is None else tuple(asked.next))
