"""``get task ID``: what happened to one task, in order, and what it cost.

Invariant: an id that several gateways or tenants know is never guessed: all of them are listed, and
nothing is shown (exit status 5).
"""

from __future__ import annotations

import argparse
import shlex
from decimal import Decimal

from controlplane.cli.client import OK, USAGE, Client, Failed, path_of
from controlplane.cli.show import Column, Item, dump, say, table

NAMES = ("task", "tasks")


def get(client: Client, options: argparse.Namespace) -> int:
    """Show one task, by its id or a request's."""
    if not options.name:
        raise Failed("name the task: switchgear get task ID (a request's id finds its task)", USAGE)
    if options.watch:
        raise Failed("a task cannot be watched; ask for it again", USAGE)
    try:
        found = client.get(
            path_of("tasks", options.name), gateway=options.gateway, tenant=options.tenant
        )
    except Failed as error:
        raise _with_candidates(error, options.name) from error
    if options.output in ("json", "yaml"):
        dump(found, options.output)
    elif options.output == "name":
        say(f"task/{found['metadata']['name']}")
    else:
        say(_in_words(found))
        table(found["items"], [*_COLUMNS, *(_WIDE if options.output == "wide" else ())])
    return OK


def _with_candidates(error: Failed, name: str) -> Failed:
    """The same, with the commands that would each show one of them."""
    if error.problem.get("code") != "ambiguous":
        return error
    lines = [
        f"  switchgear get task {shlex.quote(name)} --gateway {shlex.quote(one['gateway'])}"
        f" --tenant {shlex.quote(one['tenant'])}"
        for one in error.problem["candidates"]
    ]
    return Failed("\n".join([str(error), *lines]), error.exit_status, error.problem)


def _in_words(found: Item) -> str:
    about, status = found["metadata"], found["status"]
    ended = {True: "succeeded", False: "failed", None: "no result yet"}[status["success"]]
    unpriced = f" + {status['unpriced']:,} attempts unpriced" if status["unpriced"] else ""
    cost = f"£{Decimal(status['costGbp']):,.4f}{unpriced}"
    return f"{about['name']} of {about['tenant']} at {about['gateway']}: {ended}, {cost}"


def _kind(row: Item) -> str:
    if row["kind"] == "attempt":
        return f"attempt {row['ordinal']}, {row['role']}"
    if row["kind"] == "outcome":
        return "caller's word" if row["explicit"] else "request ended"
    return str(row["kind"])


def _result(row: Item) -> str:
    if row["kind"] == "refusal":
        return str(row["gate"])
    if row["kind"] == "outcome":
        return "succeeded" if row["success"] else "failed"
    return str(row["verdict"])


def _ms(name: str) -> Column:
    titles = {"waitedMs": "WAITED MS", "endedMs": "MS", "firstByteMs": "FIRST BYTE MS"}
    return titles[name], lambda row: row.get(name)


def _cost(row: Item) -> str | None:
    if row["kind"] != "attempt":
        return None
    amount = row["costGbp"]
    return str(row["costStatus"]) if amount is None else f"{Decimal(amount):,.4f}"


_COLUMNS: tuple[Column, ...] = (
    ("AT", lambda row: row["at"][:23].rstrip("Z")),
    ("WHAT", _kind),
    ("CIRCUIT", lambda row: row.get("circuit")),
    ("RESULT", _result),
    ("STATUS", lambda row: row.get("status")),
    ("REASON", lambda row: row.get("reason") or row.get("detail")),
    _ms("waitedMs"),
    _ms("endedMs"),
    ("£", _cost),
)
_WIDE: tuple[Column, ...] = (
    _ms("firstByteMs"),
    ("SERVED", lambda row: {True: "yes", False: "no", None: None}[row.get("served")]),
    ("COST", lambda row: row.get("costStatus")),
    ("REQUEST", lambda row: row.get("request")),
    ("ID", lambda row: row["id"]),
)
