"""Who wrote which field of a setting, and when that stops somebody else's ``apply`` (design 7).

Invariant: a field that one manager wrote is changed by another manager's apply only when that one
says ``force``; a person's own edit is never stopped, and takes what it changed. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Clash:
    """A field that an apply would change, and whose it is."""

    field: str
    manager: str
    current: Any
    wanted: Any


@dataclass(frozen=True, slots=True)
class Applied:
    """What an apply comes to. With ``clashes`` nothing is to be written."""

    fields: dict[str, Any]
    managers: dict[str, str]
    clashes: tuple[Clash, ...]


def edited(managers: Mapping[str, str], before: Fields, after: Fields, by: str) -> dict[str, str]:
    """The managers after an edit: what it changed is ``by``'s, the rest stays whose it was."""
    changed = {name for name, value in after.items() if before.get(name) != value}
    return {**managers, **dict.fromkeys(changed, by)}


def applied(
    managers: Mapping[str, str],
    current: Fields,
    wanted: Fields,
    defaults: Fields,
    by: str,
    *,
    force: bool,
) -> Applied:
    """Lay ``wanted`` over ``current`` as the manager ``by``.

    What ``by`` wrote before and does not want any more goes back to its default. A field with the
    wanted value already keeps its manager, so that two files may agree.
    """
    clashes = tuple(
        Clash(name, managers[name], current.get(name), value)
        for name, value in wanted.items()
        if current.get(name) != value and managers.get(name, by) != by
    )
    if clashes and not force:
        return Applied(dict(current), dict(managers), clashes)
    dropped = {n for n, owner in managers.items() if owner == by and n not in wanted}
    fields = {**current, **{n: defaults[n] for n in dropped if n in defaults}, **wanted}
    kept = {n: owner for n, owner in managers.items() if n not in dropped}
    taken = {n for n, value in wanted.items() if n not in kept or current.get(n) != value}
    return Applied(fields, {**kept, **dict.fromkeys(taken, by)}, ())
