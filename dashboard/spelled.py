"""An override as a person would type it elsewhere: for ``switchgear``, as YAML, for ``curl``.

Invariant: what is copied makes the same override again and holds no secret: the token is the
shell's ``$SWITCHGEAR_TOKEN``. Every value is quoted for where it goes. Pure.
"""

from __future__ import annotations

import json
import shlex
from typing import Any

import yaml

from controlplane.domain.circuit import Circuit, format_circuit
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
    if row.break_glass:
        found["breakGlass"] = True
    return found


def as_yaml(row: Override) -> str:
    """The object, as ``-o yaml`` writes one."""
    named = {"metadata": {"name": row.name}} if row.name else {}
    whole = {"kind": "Override"} | named | {"spec": spec(row)}
    return str(yaml.safe_dump(whole, sort_keys=False, allow_unicode=True))


_VERBS = {"ForceOpen": "force-open", "ForceClosed": "force-closed", "ObserveOnly": "observe"}


def as_cli(row: Override) -> str:
    """One ``switchgear`` command that makes the same override and follows it."""
    words = spec(row)
    about = target(row.provider, row.model, row.region)
    # Behind the dashes a name that begins with one is still a name.
    first, last = ("", f" -- {shlex.quote(about)}") if about.startswith("-") else (about, "")
    parts = ["switchgear", _VERBS[row.mode], *([shlex.quote(first)] if first else [])]
    for option in ("gateway", "selector"):
        if option in words:
            parts.append(f"--{option}={shlex.quote(words[option])}")
    # argparse throws away a value that is "--" alone, and reasons lose their outer spaces anyway.
    reason = "-- " if row.reason == "--" else row.reason
    parts += [f"--reason={shlex.quote(reason)}", f"--for={words['expiresIn']}"]
    if row.allow_last_healthy:
        parts.append("--allow-last-healthy")
    if row.break_glass:
        parts.append("--break-glass")
    return f"{' '.join([*parts, '--watch'])}{last}"


def target(provider: str, model: str, region: str) -> str:
    """``PROVIDER[/MODEL[@REGION]]`` as the command line reads it; ``*`` stands for any."""
    if not (provider or model or region):
        return "all"
    if not (model or region):
        return provider
    return format_circuit(Circuit(provider or "*", model or "*", region))


def as_curl(row: Override, site: str) -> str:
    """One command that makes the same override (under a name that the server chooses)."""
    body = json.dumps({"spec": spec(row)}, ensure_ascii=False)
    return (
        f"curl -s {shlex.quote(site + '/api/v1/overrides')} "
        '-H "Authorization: Bearer $SWITCHGEAR_TOKEN" '
        f"-H 'content-type: application/json' -d {shlex.quote(body)}"
    )
