"""Approving a route's target, or withdrawing that, as a command that an admin pastes.

Invariant: a command holds the route's whole list of targets as recorded, with one of them changed,
so nothing else changes; the name and the time of whoever approves stand in it, and an end. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import yaml

from controlplane.api.door import answer

# An approval that nobody looks at again is none; the file may say another end.
LASTS = timedelta(days=90)
SOON = timedelta(days=14)
_MANAGER = "file"  # whose fields an ``apply`` writes without ``--force``
_BY, _AT, _UNTIL = "approvedBy", "approvedAt", "approvedUntil"


def command(body: Mapping[str, Any], place: int, *, approve: bool, by: str, now: datetime) -> str:
    """The command for the target at ``place`` of a route as the API answers it."""
    route = json.loads(answer(body).content)
    targets = [_plain(target) for target in route["spec"]["targets"]]
    changed = {k: v for k, v in targets[place].items() if k not in (_BY, _AT, _UNTIL)}
    changed["approved"] = approve
    if approve:
        at = now.replace(microsecond=0)
        changed |= {_BY: by, _AT: at.isoformat(), _UNTIL: (at + LASTS).isoformat()}
    targets[place] = changed
    name = route["metadata"]["name"]
    spec = {"targets": targets}
    whole = {"kind": "Route", "metadata": {"name": name}, "spec": spec}
    text = yaml.safe_dump(whole, sort_keys=False, allow_unicode=True)
    owner = route["metadata"]["managers"].get("targets", _MANAGER)
    forced = "" if owner == _MANAGER else " --force"
    # A quoted end: the shell reads nothing of the text as its own.
    return f"switchgear apply{forced} --watch -f - <<'END_OF_ROUTE'\n{text}END_OF_ROUTE\n"


def _plain(target: Mapping[str, Any]) -> dict[str, Any]:
    """A recorded target as a file says it; what is not set is left out."""
    return {_camel(name): value for name, value in target.items() if value not in (None, "", [])}


def _camel(name: str) -> str:
    first, *more = name.split("_")
    return first + "".join(word.capitalize() for word in more)
