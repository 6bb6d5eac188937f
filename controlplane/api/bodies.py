"""The bodies that people send: ``{metadata, spec}`` as in Kubernetes, or the spec's fields alone.

Invariant: an unknown field is an error, because a typo in a command must not be ignored. JSON names
are camelCase, and the snake_case of our own code is understood. What the values mean is checked by
the actions; here only their types.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from ninja import Schema
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)
from pydantic.alias_generators import to_camel

from controlplane.domain.circuit import parse_circuit
from controlplane.domain.durations import duration
from controlplane.errors import InvalidInput

_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(2200, 1, 1, tzinfo=UTC)
_HEAD = {"kind", "apiVersion", "metadata", "spec", "status"}


def _tellable(at: datetime) -> datetime:
    """In UTC, for Postgres reads no offset of 16 hours, which ISO 8601 allows.

    At the ends of what Python can hold, a change of zone or a day more is an overflow.
    """
    if not _EARLIEST <= at <= _LATEST:
        raise ValueError("write a time between the years 1970 and 2200")
    return at.astimezone(UTC)


def _written(at: object) -> object:
    """A number is no time here: seconds or milliseconds, since when, and where?"""
    if isinstance(at, str | datetime):
        return at
    raise ValueError("write a time such as 2026-11-30T04:00:00Z")


Moment = Annotated[
    AwareDatetime, Field(strict=False), BeforeValidator(_written), AfterValidator(_tellable)
]
"""A time that a person wrote, with its zone; any arithmetic with it stays within the calendar."""


class Strict(Schema):
    """A part of a body without room for unknown fields, nor for ``"yes"`` where true is meant."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", strict=True
    )


class Metadata(Strict):
    """What names an object. Of these only name, labels and resourceVersion are read; the rest is
    what an answer carries, so that one can be edited and sent back.
    """

    name: str | None = None
    labels: dict[str, str] | None = None
    resource_version: int | str | None = None
    uid: str | None = None
    generation: int | None = None
    created_at: str | None = None
    created_by: str | None = None
    updated_at: str | None = None
    updated_by: str | None = None
    managers: dict[str, str] | None = None

    def version(self) -> int | None:
        """The resourceVersion as a number."""
        if self.resource_version is None:
            return None
        return version_of(str(self.resource_version), "metadata.resourceVersion")


class Envelope(Strict):
    """``kind``, ``metadata`` and ``spec``; a body without a ``spec`` is the spec itself."""

    kind: str | None = None
    api_version: str | None = None
    metadata: Metadata = Field(default_factory=Metadata)
    status: dict[str, Any] | None = Field(None, description="What was observed; never read.")

    @model_validator(mode="before")
    @classmethod
    def _wrap(cls, body: Any) -> Any:
        found = getattr(body, "_obj", body)
        if isinstance(found, dict) and "spec" not in found:
            head = {name: value for name, value in found.items() if name in _HEAD}
            return head | {"spec": {n: v for n, v in found.items() if n not in _HEAD}}
        return found


class Match(Strict):
    """What an object selects; ``circuit`` stands for provider, model and region together."""

    gateway: str = ""
    selector: str = ""
    provider: str = ""
    model: str = ""
    region: str = ""
    circuit: str | None = None

    def parts(self) -> dict[str, str]:
        """The match as the actions take it."""
        parts = {
            "gateway": self.gateway,
            "selector": self.selector,
            "provider": self.provider,
            "model": self.model,
            "region": self.region,
        }
        if self.circuit is None:
            return parts
        if self.provider or self.model or self.region:
            raise _fault("circuit", "write circuit, or provider, model and region, not both")
        try:
            found = parse_circuit(self.circuit)
        except ValueError as error:
            raise _fault("circuit", str(error)) from error
        return parts | {
            "provider": found.provider,
            "model": found.model,
            "region": found.region or "-",
        }


class Lifetime(Strict):
    """How long from now, as ``30m``, ``1h30m`` or seconds; or until when."""

    expires_in: str | float | None = Field(None, examples=["30m"])
    expires_at: Moment | None = None

    def until(self) -> dict[str, timedelta | datetime | None]:
        """``expires_in`` and ``expires_at`` as the actions take them."""
        return {"expires_in": seconds_of(self.expires_in), "expires_at": self.expires_at}


class OverrideSpec(Match, Lifetime):
    """A hand on circuits."""

    mode: str = Field("", examples=["ForceOpen"])
    reason: str = Field("", examples=["provider answers 529 since 03:02"])
    ticket: str = ""
    allow_last_healthy: bool = False
    replace: str = ""
    break_glass: bool = Field(False, description="fleet-wide at once, without a second person")


class OverrideIn(Envelope):
    """Body of ``POST /overrides``."""

    spec: OverrideSpec = Field(default_factory=OverrideSpec)


class ExtendSpec(Lifetime):
    """A new end."""

    reason: str = ""


class ExtendIn(Envelope):
    """Body of ``POST /overrides/{name}/extend``."""

    spec: ExtendSpec = Field(default_factory=ExtendSpec)


class ReasonIn(Strict):
    """Why."""

    reason: str = ""


class ReleaseIn(Strict):
    """Body of ``POST /overrides/{name}/release``; it may be left out."""

    reason: str = ""
    resource_version: int | str | None = None


class RollbackIn(Strict):
    """Body of ``POST /{kind}/{name}/rollback``. The generations stand in ``/history``."""

    to_generation: int
    reason: str = ""


class ProbeSpec(Match):
    """Open breakers that are to try again now."""

    reason: str = Field("", examples=["the provider says that it has recovered"])


class ProbeIn(Envelope):
    """Body of ``POST /probes``."""

    spec: ProbeSpec = Field(default_factory=ProbeSpec)


class SettingIn(Envelope):
    """Body of a policy or a budget: in ``spec`` the numbers, and ``SettingHead`` beside them."""

    spec: dict[str, Any] = Field(default_factory=dict)


class SettingHead(Strict):
    """What is beside the numbers in a setting's spec."""

    match: SettingMatch | None = None
    level: str | None = None
    reason: str = ""


class SettingMatch(Match):
    """A budget may name a tenant."""

    tenant: str = ""

    def parts(self) -> dict[str, str]:
        """The match as the actions take it."""
        return super().parts() | {"tenant": self.tenant}


SettingHead.model_rebuild()


def seconds_of(value: str | float | None) -> timedelta | None:
    """``30m``, ``1h30m``, ``90`` or ``"90"`` as a duration. Raises ``InvalidInput``."""
    if value is None:
        return None
    seconds = float(value) if isinstance(value, int | float) else _read(value)
    if seconds is None or not math.isfinite(seconds) or abs(seconds) > 10**9:
        raise _fault("expires_in", "write a duration such as 30m, 1h30m or 90 (seconds)")
    return timedelta(seconds=seconds)


def _read(text: str) -> float | None:
    plain = text.strip()
    return float(plain) if plain.isascii() and plain.isdigit() else duration(plain)


def version_of(text: str, field: str) -> int:
    """A resourceVersion, with or without an ETag's quotes. Raises ``InvalidInput``."""
    plain = text.strip().removeprefix("W/").strip('"')
    if not (plain.isascii() and plain.isdigit() and len(plain) <= 18):
        fault = {"field": field, "message": "write the resourceVersion that you read"}
        raise InvalidInput(f"{field}: write the resourceVersion that you read", errors=[fault])
    return int(plain)


def _fault(field: str, message: str) -> InvalidInput:
    return InvalidInput(f"{field}: {message}", errors=[{"field": field, "message": message}])
