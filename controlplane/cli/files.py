"""``apply`` and ``diff``: settings as files.

Invariant: ``diff`` asks the server what an apply would make (a dry run), so the two never differ;
overrides are never in a file. A field that somebody else wrote is changed only with ``--force``.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from pathlib import Path
from typing import Any

from controlplane.cli.client import DIFFERS, NOT_FOUND, OK, USAGE, Client, Failed, path_of
from controlplane.cli.force import follow
from controlplane.cli.kinds import Kind, kind_of_object
from controlplane.cli.show import as_yaml, complain, plain, read_yaml, say

_LARGEST = 4 * 2**20
_UNCHANGED = "unchanged"


def apply(client: Client, options: argparse.Namespace) -> int:
    """Lay each object over what is there; all are tried, and the worst status is returned."""
    worst, changed = OK, []
    for kind, name, spec in _objects(options.file):
        try:
            before = _present(client, kind, name)
            made = _apply(client, kind, name, spec, dry=options.dry_run, options=options)
        except Failed as error:
            complain(f"{kind.path}/{name}: {error}")
            worst = max(worst, error.exit_status)
            continue
        word = _word(before, made)
        say(f"{kind.path}/{name} {word}{' (dry run)' if options.dry_run else ''}")
        if word != _UNCHANGED:
            changed.append((kind, name))
    if options.watch and not options.dry_run:
        for kind, name in changed:
            prefix = f"{kind.path}/{name}: "
            followed = follow(client, kind.path, name, options.timeout, prefix=prefix)
            worst = max(worst, followed)
    return worst


def diff(client: Client, options: argparse.Namespace) -> int:
    """What an apply would change; all are tried. Status 1 when something would be different.

    Of fields that somebody else wrote it says whose they are, and what ``--force`` would make.
    """
    worst = OK
    for kind, name, spec in _objects(options.file):
        try:
            before = _present(client, kind, name)
            after = _apply(client, kind, name, spec, dry=True, options=options)
        except Failed as error:
            complain(f"{kind.path}/{name}: {error}")
            worst = max(worst, error.exit_status)
            if error.problem.get("code") != "field_conflict":
                continue
            after = _apply(client, kind, name, spec, dry=True, options=options, force=True)
        differs = _show_difference(kind, name, before, after)
        worst = max(worst, DIFFERS if differs else OK)
    return worst


def _show_difference(kind: Kind, name: str, before: Any, after: Any) -> bool:
    into = f"{kind.path}/{name}"
    told = list(
        difflib.unified_diff(
            _lines(before), _lines(after), f"{into} (in force)", "the file", lineterm=""
        )
    )
    for line in told:
        print(plain(line))
    return bool(told)


def _apply(
    client: Client,
    kind: Kind,
    name: str,
    spec: dict[str, Any],
    *,
    dry: bool,
    options: argparse.Namespace,
    force: bool = False,
) -> Any:
    forced = options.force or force
    told = {"fieldManager": options.field_manager, "force": forced, "dryRun": dry}
    return client.post(path_of(kind.path, name, "apply"), {"spec": spec}, **told)


def _present(client: Client, kind: Kind, name: str) -> Any:
    try:
        return client.get(path_of(kind.path, name))
    except Failed as error:
        if error.exit_status == NOT_FOUND:
            return None
        raise


def _word(before: Any, after: Any) -> str:
    if before is None:
        return "created"
    same = before["metadata"]["generation"] == after["metadata"]["generation"]
    return _UNCHANGED if same else "configured"


def _lines(item: Any) -> list[str]:
    """The spec in one order, so that only what differs is a difference."""
    if item is None:
        return []
    return as_yaml(json.loads(json.dumps(item["spec"], sort_keys=True))).splitlines()


def _objects(source: str) -> list[tuple[Kind, str, dict[str, Any]]]:
    """Kind, name and spec of each object; what ``get -o yaml`` adds to them is left out."""
    found = []
    for number, document in enumerate(read_yaml(_text(source)), 1):
        items = document.get("items") if isinstance(document, dict) else None
        for item in items if isinstance(items, list) else [document]:
            found.append(_object(item, number))
    if not found:
        raise Failed(f"{source}: no object in it", USAGE)
    return found


def _object(item: Any, number: int) -> tuple[Kind, str, dict[str, Any]]:
    if not isinstance(item, dict) or not isinstance(item.get("spec"), dict):
        raise Failed(f"document {number}: expected kind, metadata.name and spec", USAGE)
    kind = kind_of_object(str(item.get("kind", "")))
    metadata = item.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not name:
        raise Failed(f"document {number}: metadata.name is missing", USAGE)
    return kind, name, item["spec"]


def _text(source: str) -> str:
    try:
        if source == "-":
            return sys.stdin.read(_LARGEST)
        with Path(source).open(encoding="utf-8") as file:
            return file.read(_LARGEST)
    except OSError as error:
        raise Failed(f"{source}: {error.strerror}", USAGE) from error
    except UnicodeDecodeError as error:
        raise Failed(f"{source}: not UTF-8", USAGE) from error
