"""Looking: ``get``, ``describe``, ``history``, ``audit``, ``report``.

Invariant: what is shown is what the API said at that moment; ``--watch`` prints a line only when
something is different.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from controlplane.cli.client import OK, USAGE, Client, Failed, path_of
from controlplane.cli.force import follow
from controlplane.cli.kinds import Kind, kind_of, name_of
from controlplane.cli.show import age, dump, plain, say, table

WATCH_EVERY_S = 1.0
_FOLLOWED = ("overrides", "probes", "policies", "budgets", "routes")


def get(client: Client, options: argparse.Namespace) -> int:
    """List a kind, or show one."""
    kind = kind_of(options.kind)
    if options.name and options.watch and kind.path in _FOLLOWED:
        return follow(client, kind.path, options.name, options.timeout)
    said = ""
    while True:
        found = _read(client, kind, options)
        text = repr(found.get("items", found))
        if text != said:
            _print(kind, found, options)
            said = text
        if not options.watch:
            return OK
        time.sleep(WATCH_EVERY_S)


def _read(client: Client, kind: Kind, options: argparse.Namespace) -> Any:
    if options.name:
        return client.get(path_of(kind.path, options.name))
    if kind.path == "overrides" and not options.all:
        return client.get("/overrides", active=True)
    return client.get(f"/{kind.path}")


def _print(kind: Kind, found: Any, options: argparse.Namespace) -> None:
    if options.output in ("json", "yaml"):
        dump(found, options.output)
        return
    items = found.get("items", [found])
    if options.output == "name":
        for item in items:
            say(f"{kind.names[1]}/{name_of(item)}")
        return
    columns = [*kind.columns, *(kind.wide if options.output == "wide" else ())]
    if items:
        table(items, columns)
    else:
        say(f"no {kind.path}")
    for one in found.get("local") or []:
        spec = one["spec"]
        say(
            f"on the host {spec['host']} of {spec['gateway']}: {spec['mode']}"
            f" {spec['provider'] or '*'}/{spec['model'] or '*'} by {one['metadata']['createdBy']}:"
            f" {spec['reason']}"
        )


def describe(client: Client, options: argparse.Namespace) -> int:
    """Everything about one object, line by line."""
    kind = kind_of(options.kind)
    found = client.get(path_of(kind.path, options.name))
    if options.output in ("json", "yaml"):
        dump(found, options.output)
    else:
        _lines(found, 0)
    return OK


def _lines(value: Any, depth: int, name: str = "") -> None:
    pad = "  " * depth
    if isinstance(value, dict) and value:
        if name:
            print(f"{pad}{plain(name)}:")
        for key, inner in value.items():
            _lines(inner, depth + bool(name), key)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        print(f"{pad}{plain(name)}:")
        for inner in value:
            shown = [f"{k}={plain(v)}" for k, v in inner.items() if v not in (None, "", [], {})]
            print(f"{pad}  - " + "  ".join(shown))
    else:
        text = ", ".join(map(str, value)) if isinstance(value, list) else value
        print(f"{pad}{plain(name)}: {plain(None if text in ([], {}) else text)}")


def history(client: Client, options: argparse.Namespace) -> int:
    """Every generation of a setting."""
    kind = kind_of(options.kind)
    found = client.get(path_of(kind.path, options.name, "history"))
    if options.output in ("json", "yaml"):
        dump(found, options.output)
        return OK
    rows = found["items"]
    table(
        rows,
        [
            ("GENERATION", lambda i: i["metadata"]["generation"]),
            ("AGE", lambda i: age(i["metadata"]["updatedAt"])),
            ("BY", lambda i: i["metadata"]["updatedBy"]),
            ("ACTION", lambda i: i["status"]["action"]),
            ("CHANGED", lambda i: _changed(i, rows)),
            ("REASON", lambda i: i["status"]["reason"]),
        ],
    )
    return OK


def _changed(item: Any, rows: list[Any]) -> str:
    """The fields that differ from the generation before."""
    place = rows.index(item)
    if place + 1 == len(rows):
        return "(first)"
    before = rows[place + 1]["spec"]
    return ",".join(name for name, value in item["spec"].items() if before.get(name) != value)


def audit(client: Client, options: argparse.Namespace) -> int:
    """Who did what; ``-o csv`` is the export."""
    query = {
        "kind": options.kind,
        "name": options.name,
        "actor": options.actor,
        "action": options.action,
        "q": options.search,
        "from": options.since,
        "to": options.until,
        "limit": options.limit,
    }
    if options.output == "csv":
        print(client.text("/audit.csv", **(query | {"limit": None})), end="")
        return OK
    found = client.get("/audit", **query)
    if options.output in ("json", "yaml"):
        dump(found, options.output)
        return OK
    table(
        found["items"],
        [
            ("AT", lambda i: i["at"][:19]),
            ("ACTOR", lambda i: i["actor"]),
            ("ACTION", lambda i: i["action"]),
            ("OBJECT", lambda i: f"{i['objectKind']}/{i['objectName']}"),
            ("REASON", lambda i: i["reason"]),
        ],
    )
    return OK


def report(client: Client, options: argparse.Namespace) -> int:
    """The weekly report."""
    query = {"week": options.week, "zone": options.zone, "by": options.by}
    if options.output == "csv":
        print(client.text("/reports/weekly.csv", **query), end="")
        return OK
    found = client.get("/reports/weekly", **query)
    if options.output in ("json", "yaml"):
        dump(found, options.output)
        return OK
    if options.output not in ("table", "wide"):
        raise Failed("-o: write table, csv, json or yaml", USAGE)
    _lines(found, 0)
    return OK
