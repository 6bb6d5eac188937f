"""What a route may say, and what each part says when it is wrong.

Invariant: what passes here reads as ``wire.desired.RouteItem``; a target that is approved says by
whom and since when, and one that is not approved is never used by a gateway.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from controlplane.actions._fields import Faults, unknown_field
from controlplane.wire.desired import RouteTarget

MOST_TARGETS = 20
LONGEST_S = 3600.0
_DEFAULTS: dict[str, Any] = {"targets": [], "deadline_seconds": 60, "attempt_seconds": 30}
_TEXTS = ("provider", "model", "region", "approved_by", "transfer_mechanism")
_LISTS = ("features", "processing_regions")


def route_spec(given: Mapping[str, Any], base: Mapping[str, Any], faults: Faults) -> dict[str, Any]:
    """``given`` over ``base`` over the defaults, checked field by field."""
    for name in given:
        if name not in _DEFAULTS:
            faults.add(name, unknown_field(name, _DEFAULTS))
    spec = {**_DEFAULTS, **base, **{n: v for n, v in given.items() if n in _DEFAULTS}}
    for name in ("deadline_seconds", "attempt_seconds"):
        value = spec[name]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0.01 <= value <= LONGEST_S:
            faults.add(name, f"write seconds from 0.01 to {LONGEST_S:g}")
    spec["targets"] = _targets(spec["targets"], faults)
    return spec


def _targets(value: object, faults: Faults) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_TARGETS:
        faults.add("targets", f"write 1 to {MOST_TARGETS} targets, in the order of their use")
        return []
    found = [_target(item, f"targets.{place}", faults) for place, item in enumerate(value)]
    names = [(t.get("provider"), t.get("model"), t.get("region")) for t in found]
    if len(set(names)) < len(names):
        faults.add("targets", "each target once")
    return found


def _target(item: object, path: str, faults: Faults) -> dict[str, Any]:
    if not isinstance(item, Mapping):
        faults.add(path, "write an object with provider and model")
        return {}
    known = {_snake(name): value for name, value in item.items()}
    fields = RouteTarget.__struct_fields__
    for name in known:
        if name not in fields:
            faults.add(f"{path}.{name}", unknown_field(name, fields))
    try:
        read = msgspec.convert({n: v for n, v in known.items() if n in fields}, RouteTarget)
    except msgspec.ValidationError as error:
        faults.add(path, str(error))
        return {}
    _check(read, path, faults)
    return dict(msgspec.to_builtins(read))


def _check(target: RouteTarget, path: str, faults: Faults) -> None:
    for name in _TEXTS:
        if faults.name(f"{path}.{name}", getattr(target, name)) != getattr(target, name):
            faults.add(f"{path}.{name}", "write it without blanks around it")
    for name in _LISTS:
        for word in getattr(target, name)[:100]:
            faults.name(f"{path}.{name}", word)
    if not target.provider or not target.model:
        faults.add(path, "a target needs a provider and a model")
    for name in ("approved_at", "approved_until"):
        at: datetime | None = getattr(target, name)
        if at is not None and at.tzinfo is None:
            faults.add(f"{path}.{name}", "write a time with its offset")
    if target.retention_days is not None and not 0 <= target.retention_days <= 36_500:
        faults.add(f"{path}.retention_days", "write days from 0 to 36500")


def _snake(name: object) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in str(name))
