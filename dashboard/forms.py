"""Numbers of a policy or a budget as a person types them: labels, units, and back again.

Invariant: a field that was not sent is not changed, and an empty one switches its part off where
that is possible; what may stand in a field is decided by ``actions``, here only how it is written.
Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["number", "whole", "percent", "per_mille", "pounds", "flag"]


@dataclass(frozen=True, slots=True)
class Field:
    """One field. ``name``: in the form; ``spec``: in the object; ``optional``: may be empty."""

    name: str
    spec: str
    label: str
    unit: str = ""
    kind: Kind = "number"
    optional: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Fields that belong together."""

    title: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """A field with what is recorded, what was typed, and what is wrong with it."""

    field: Field
    recorded: str
    typed: str
    fault: str = ""
    manager: str = ""

    @property
    def differs(self) -> bool:
        """What was typed is not what is recorded."""
        return self.recorded != self.typed


def fields_of(groups: Iterable[Group]) -> list[Field]:
    """Every field, in order."""
    return [field for group in groups for field in group.fields]


def shown(field: Field, spec: Mapping[str, Any]) -> str:
    """A field's value as it is typed; empty: that part is off."""
    value = spec[field.spec]
    if value is None:
        return ""
    if field.kind == "flag":
        return "yes" if value else "no"
    if field.kind == "percent":
        return f"{value * 100:.6g}"
    if field.kind == "per_mille":
        return f"{value / 10:g}"
    if field.kind == "pounds":
        return str(value)
    return str(value) if isinstance(value, int) else f"{value:.12g}"


def read(
    fields: Iterable[Field], typed: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The spec of what was typed, and what cannot be read, by the form's names."""
    spec: dict[str, Any] = {}
    faults: dict[str, str] = {}
    for field in fields:
        if field.name not in typed:
            continue
        text = typed[field.name].strip()
        if not text and field.optional:
            spec[field.spec] = None
            continue
        try:
            spec[field.spec] = _value(field, text)
        except ValueError as error:
            faults[field.name] = str(error)
    return spec, faults


def _value(field: Field, text: str) -> Any:
    if field.kind == "flag":
        if text not in ("yes", "no"):
            raise ValueError("choose yes or no")
        return text == "yes"
    if field.kind == "pounds":
        return text.removeprefix("£").strip()
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or "_" in text:
        raise ValueError("write a number")
    if field.kind == "percent":
        return round(value / 100, 8)
    if field.kind == "per_mille":
        tenths = round(value * 10)
        if abs(tenths - value * 10) > 1e-6:
            raise ValueError("at most one decimal")
        return tenths
    if field.kind == "whole":
        if int(value) != value:
            raise ValueError("write a whole number")
        return int(value)
    return value


def by_name(fields: Iterable[Field], faults: Mapping[str, str]) -> dict[str, str]:
    """Faults of an action, which names fields as the object does, under the form's names."""
    names = {field.spec: field.name for field in fields}
    found = {}
    for where, message in faults.items():
        short = where.removeprefix("spec.")
        found[names.get(short, short)] = message
    return found
