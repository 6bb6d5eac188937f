"""Looking: ``get``, ``describe``, ``history``, ``audit``, ``report``.

Invariant: what is shown is what the API said at that moment; ``--watch`` prints a line only when
something is different.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from controlplane.cli import task, telemetry
from controlplane.cli.client import DIFFERS, OK, USAGE, Client, Failed, path_of
from controlplane.cli.force import follow
from controlplane.cli.kinds import Kind, kind_of, name_of, refusals, refused_parts, rejected, target
from controlplane.cli.show import (
    Column,
    age,
    cells,
    complain,
    dump,
    grid,
    lines,
    moment,
    say,
    table,
)

WATCH_EVERY_S = 1.0
_FOLLOWED = ("overrides", "probes", "policies", "budgets", "routes")


def get(client: Client, options: argparse.Namespace) -> int:
    """List a kind, or show one. DIFFERS when an instance refuses something that is shown."""
    if options.kind.lower() in task.NAMES:
        return task.get(client, options)
    if options.kind.lower() in telemetry.NAMES:
        return telemetry.get(client, options)
    kind = kind_of(options.kind)
    if options.name and options.watch and kind.path in _FOLLOWED:
        return follow(client, kind.path, options.name, options.timeout)
    if options.watch and options.output in ("table", "wide"):
        return _watch(client, kind, options)
    said, began = "", time.monotonic()
    while True:
        found = _read(client, kind, options)
        text = repr(found.get("items", found))
        if text != said:
            _print(kind, found, options)
            said = text
        if not options.watch or _is_over(began, options):
            return _refused(kind, found)
        time.sleep(WATCH_EVERY_S)


def _watch(client: Client, kind: Kind, options: argparse.Namespace) -> int:
    """The table once, then each row whose cells are other than before."""
    columns = _columns(kind, options)
    shown: dict[str, list[str]] = {}
    began, widths = time.monotonic(), None
    while True:
        found = _read(client, kind, options)
        rows = {name_of(item): cells(item, columns) for item in found.get("items", [found])}
        fresh = [line for name, line in rows.items() if shown.get(name) != line]
        gone = [[name, "(gone)"] for name in shown if name not in rows]
        if widths is None:
            widths = grid([[title for title, _ in columns], *fresh])
        else:
            grid([*fresh, *gone], widths)
        shown = rows
        if _is_over(began, options):
            return _refused(kind, found)
        time.sleep(WATCH_EVERY_S)


def _is_over(began: float, options: argparse.Namespace) -> bool:
    return options.timeout is not None and time.monotonic() - began >= options.timeout


def _refused(kind: Kind, found: Any) -> int:
    """Say which of what is shown an instance refuses, where, and why."""
    status = OK
    for item in found.get("items", [found]):
        for one in refusals(item)[:1]:
            field = f" at {one['fieldPath']}" if one.get("fieldPath") else ""
            said = f": {one['message']}" if one.get("message") else ""
            complain(
                f"{kind.names[1]}/{name_of(item)}: {rejected(item)}:"
                f" {one['gateway']}/{one['slot']}: {one['reason']}{field}{said}"
            )
            status = DIFFERS
        for words in refused_parts(item):
            complain(f"{kind.names[1]}/{name_of(item)}: {words}")
            status = DIFFERS
    return status


def _read(client: Client, kind: Kind, options: argparse.Namespace) -> Any:
    if options.name:
        return client.get(path_of(kind.path, options.name))
    if kind.path == "overrides" and not options.all:
        return client.get("/overrides", active=True)
    return client.get(f"/{kind.path}")


def _columns(kind: Kind, options: argparse.Namespace) -> list[Column]:
    return [*kind.columns, *(kind.wide if options.output == "wide" else ())]


def _print(kind: Kind, found: Any, options: argparse.Namespace) -> None:
    if options.output in ("json", "yaml"):
        dump(found, options.output)
        return
    items = found.get("items", [found])
    if options.output == "name":
        for item in items:
            say(f"{kind.names[1]}/{name_of(item)}")
        return
    if items:
        table(items, _columns(kind, options))
    else:
        say(f"no {kind.path}")
    for one in found.get("pending") or []:
        by, name = one["metadata"]["createdBy"], one["metadata"]["name"]
        say(
            f"pending: {one['spec']['mode']} {target(one)} asked for by {by}, in force nowhere;"
            f" within {age(one['status']['approveBefore'])}: switchgear approve {name}"
        )
    for one in found.get("local") or []:
        spec = one["spec"]
        say(
            f"local: {spec['mode']} {target(one)} on the host {spec['host']} of {spec['gateway']}"
            f" by {one['metadata']['createdBy']}, since {moment(one['metadata']['createdAt'])},"
            f" ends in {age(spec['expiresAt'])}: {spec['reason']}"
        )


def describe(client: Client, options: argparse.Namespace) -> int:
    """Everything about one object. DIFFERS when an instance refuses it."""
    kind = kind_of(options.kind)
    found = client.get(path_of(kind.path, options.name))
    if options.output in ("json", "yaml"):
        dump(found, options.output)
        return OK
    if words := _in_words(found):
        say(words)
    lines(found)
    return _refused(kind, found)


def _in_words(item: Any) -> str:
    """What ObserveOnly would have done to a circuit, in one sentence; '' where none lies on it."""
    would = item["status"].get("wouldHaveRefused")
    modes = {one["mode"] for one in item["status"].get("instances") or [] if "mode" in one}
    if not would or not (would["calls"] or "ObserveOnly" in modes):
        return ""
    calls = f"{would['calls']:,} call{'' if would['calls'] == 1 else 's'}"
    return f"ObserveOnly: would have refused {calls} in the last {would['minutes']} min"


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
    """The weekly report: each line beside the week before."""
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
    spec, status = found["spec"], found["status"]
    before = {line["name"]: line for line in status["before"]["lines"]}
    rows = [line | {"before": before.get(line["name"])} for line in status["lines"]]
    rows.append(status["total"] | {"name": "(total)", "before": status["before"]["total"]})
    still = ", still running" if status["running"] else ""
    say(f"{spec['week']} ({spec['zone']}{still}) by {spec['by']}; before: {_week_of(status)}")
    table(rows, [*_FIGURES, *(_MORE_FIGURES if options.output == "wide" else ())])
    if status["simulated"]:
        say("simulated history is part of these figures")
    return OK


def _week_of(status: Any) -> str:
    return str(status["before"]["week"])


def _money(name: str, of: str = "") -> Column:
    def text(row: Any) -> object:
        row = row.get(of) if of else row
        amount = (row or {}).get(name)
        return None if amount is None else f"{float(amount):,.4f}"

    return ("£/TASK BEFORE" if of else _TITLES[name], text)


def _ratio(name: str) -> Column:
    return (
        _TITLES[name],
        lambda row: None if row[name] is None else f"{float(row[name]) * 100:.1f}%",
    )


_TITLES = {
    "costPerSuccessfulTaskGbp": "£/TASK",
    "costGbp": "£",
    "wastedGbp": "£ WASTED",
    "retryRatio": "RETRIES",
    "failedRatio": "FAILED",
}
_FIGURES: tuple[Column, ...] = (
    ("NAME", lambda row: row["name"] or "(none)"),
    ("TASKS OK", lambda row: f"{row['tasksSucceeded']:,}"),
    ("TASKS FAILED", lambda row: f"{row['tasksFailed']:,}"),
    _money("costPerSuccessfulTaskGbp"),
    _money("costPerSuccessfulTaskGbp", "before"),
    _money("costGbp"),
    ("UNPRICED", lambda row: f"{row['unpricedAttempts']:,}"),
    _money("wastedGbp"),
    _ratio("retryRatio"),
)
_MORE_FIGURES: tuple[Column, ...] = (
    _ratio("failedRatio"),
    ("ATTEMPTS", lambda row: f"{row['attempts']:,}"),
    ("REFUSED", lambda row: f"{row['refusals']:,}"),
    ("WOULD REFUSE", lambda row: f"{row['wouldRefuse']:,}"),
    ("OPENINGS", lambda row: f"{row['openings']:,}"),
)
