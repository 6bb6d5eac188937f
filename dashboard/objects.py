"""An object's page: its tabs, its conditions, and itself as text.

Invariant: conditions and YAML are those of the API's own answer, so the page, ``switchgear get -o
yaml`` and a script can never say different things. Pure.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

from controlplane.api.door import answer
from controlplane.cli.show import as_yaml
from dashboard.events import Event

# Conditions of which False is the good news.
_WELL_WHEN_FALSE = {"Stuck", "LocalOverride"}


@dataclass(frozen=True, slots=True)
class Line:
    """One condition as it is shown. ``looks``: somebody should look at it."""

    type: str
    status: str
    reason: str
    message: str
    since: datetime | None
    generation: int | None
    looks: bool

    @property
    def tone(self) -> str:
        """The tone's name."""
        if self.status == "Unknown":
            return "unk"
        return "open" if self.looks else "closed"

    @property
    def glyph(self) -> str:
        """The glyph's name."""
        if self.status == "Unknown":
            return "unknown"
        return "rejected" if self.looks else "tick"


@dataclass(frozen=True, slots=True)
class Conditions:
    """The table of conditions; a column that no line fills is left out."""

    conditions: list[Line]

    @property
    def looks(self) -> int:
        """How many conditions somebody should look at."""
        return sum(line.looks for line in self.conditions)

    @property
    def has_ages(self) -> bool:
        """Whether it is known since when of any."""
        return any(line.since for line in self.conditions)

    @property
    def has_generations(self) -> bool:
        """Whether any is about a generation."""
        return any(line.generation is not None for line in self.conditions)


@dataclass(frozen=True, slots=True)
class Page(Conditions):
    """What every object's page has beside its own parts."""

    kind: str
    events: list[Event]
    yaml: str
    cli: str
    curl: str


def page(body: Mapping[str, Any], path: str, events: list[Event], site: str) -> Page:
    """The page of an object as the API answers it at ``/api/v1/{path}/{name}``."""
    name = str(body["metadata"]["name"])
    address = f"{site}/api/v1/{path}/{quote(name, safe='')}"
    return Page(
        kind=str(body["kind"]),
        conditions=conditions(body),
        events=events,
        yaml=yaml_of(body),
        cli=f"switchgear get {path} {shlex.quote(name)} -o yaml",
        curl=f'curl -s {shlex.quote(address)} -H "Authorization: Bearer $SWITCHGEAR_TOKEN"',
    )


def conditions(body: Mapping[str, Any]) -> list[Line]:
    """The conditions of an API object, those to look at first."""
    active = body["status"].get("active", True)
    lines = [_line(found, bool(active)) for found in body["status"].get("conditions", [])]
    return sorted(lines, key=lambda line: (not line.looks, line.status != "Unknown"))


def _line(found: Mapping[str, Any], active: bool) -> Line:
    # What has ended is not enforced any more, and nobody has to look at that.
    well = "False" if found["type"] in _WELL_WHEN_FALSE or not active else "True"
    status = str(found["status"])
    return Line(
        found["type"],
        status,
        found["reason"],
        found["message"],
        found["lastTransitionTime"],
        found["observedGeneration"],
        looks=status not in (well, "Unknown"),
    )


def yaml_of(body: Mapping[str, Any]) -> str:
    """An API object as ``switchgear get … -o yaml`` prints it."""
    return as_yaml(json.loads(answer(body).content))
