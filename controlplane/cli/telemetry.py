"""``get telemetry``: the work behind the figures, and what is missing of each instance.

Invariant: DIFFERS while a condition is one to look at, so that a script can ask once an hour.
"""

from __future__ import annotations

import argparse

from controlplane.cli.client import DIFFERS, OK, USAGE, Client, Failed
from controlplane.cli.show import Column, dump, moment, say, table

NAMES = ("telemetry",)


def get(client: Client, options: argparse.Namespace) -> int:
    """Show both tables."""
    if options.name or options.watch:
        raise Failed("telemetry has no names and is not watched: switchgear get telemetry", USAGE)
    found = client.get("/telemetry")
    conditions = found["status"]["conditions"]
    if options.output in ("json", "yaml"):
        dump(found, options.output)
    elif options.output == "name":
        for one in found["items"]:
            say(f"telemetry/{one['gateway']}/{one['slot']}")
    else:
        table(conditions, _CONDITIONS)
        if found["items"]:
            print(flush=True)
            table(found["items"], _LOST)
        else:
            say("nothing is missing of any instance")
    return DIFFERS if any(one["status"] == "False" for one in conditions) else OK


_CONDITIONS: tuple[Column, ...] = (
    ("CONDITION", lambda one: one["type"]),
    ("STATUS", lambda one: one["status"]),
    ("REASON", lambda one: one["reason"]),
    ("SINCE", lambda one: one["lastTransitionTime"] and moment(one["lastTransitionTime"])),
    ("MESSAGE", lambda one: one["message"]),
)
_LOST: tuple[Column, ...] = (
    ("GATEWAY", lambda one: one["gateway"]),
    ("INSTANCE", lambda one: one["slot"]),
    ("LOST BATCHES", lambda one: one["missingBatches"]),
    ("DROPPED", lambda one: one["dropped"]),
    ("DEAD LETTERS", lambda one: one["deadLetters"]),
    ("LATE", lambda one: one["late"]),
    ("AHEAD", lambda one: one["skewed"]),
    ("BOOT", lambda one: one["bootId"][:8]),
)
