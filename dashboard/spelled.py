"""An override as a person would type it elsewhere: as YAML, as a ``curl`` command.

Invariant: what is copied makes the same override again and holds no secret: the token is the
shell's ``$SWITCHGEAR_TOKEN``. Every value is quoted for where it goes. Pure.
"""

from __future__ import annotations

import json
import shlex
from typing import Any

import yaml

from controlplane.models import Override

_PARTS = ("gateway", "selector", "provider", "model", "region")


def spec(row: Override) -> dict[str, Any]:
    """The spec that would make it: what it matches, and for how long in all."""
    minutes = max(1, round((row.expires_at - row.updated_at).total_seconds() / 60))
    found: dict[str, Any] = {"mode": row.mode}
    found |= {part: getattr(row, part) for part in _PARTS if getattr(row, part)}
    found |= {"reason": row.reason, "expiresIn": f"{minutes}m"}
    if row.allow_last_healthy:
        found["allowLastHealthy"] = True
    return found


def as_yaml(row: Override) -> str:
    """The object, as ``-o yaml`` writes one."""
    whole = {"kind": "Override", "metadata": {"name": row.name}, "spec": spec(row)}
    return str(yaml.safe_dump(whole, sort_keys=False, allow_unicode=True))


def as_curl(row: Override, site: str) -> str:
    """One command that makes the same override (under a name that the server chooses)."""
    body = json.dumps({"spec": spec(row)}, ensure_ascii=False)
    return (
        f"curl -s {shlex.quote(site + '/api/v1/overrides')} "
        '-H "Authorization: Bearer $SWITCHGEAR_TOKEN" '
        f"-H 'content-type: application/json' -d {shlex.quote(body)}"
    )
