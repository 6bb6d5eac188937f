"""The other writes: rollback, delete, create, allow-shrink.

Invariant: a secret is printed once, alone on standard output, so that a script can keep it.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta

from controlplane.cli.client import OK, USAGE, Client, Failed, path_of
from controlplane.cli.force import follow, read_duration
from controlplane.cli.kinds import SETTINGS, Kind, kind_of, name_of
from controlplane.cli.show import Column, age, complain, dump, moment, say, table


def rollback(client: Client, options: argparse.Namespace) -> int:
    """Write an earlier generation again, as a new one."""
    kind = _setting(options.kind)
    body = {"toGeneration": options.to, "reason": options.reason}
    made = client.post(path_of(kind.path, options.name, "rollback"), body)
    if options.output in ("json", "yaml") and not options.watch:
        dump(made, options.output)
        return OK
    generation = made["metadata"]["generation"]
    say(f"{kind.path}/{name_of(made)} is generation {generation}, as {options.to} was")
    if options.watch:
        return follow(client, kind.path, options.name, options.timeout)
    return OK


def delete(client: Client, options: argparse.Namespace) -> int:
    """Remove a setting; what it matched falls to the next in precedence."""
    kind = _setting(options.kind)
    found = client.get(path_of(kind.path, options.name))
    version = found["metadata"]["resourceVersion"]
    client.delete(path_of(kind.path, options.name), version, reason=options.reason)
    say(f"{kind.path}/{options.name} deleted")
    return OK


def create(client: Client, options: argparse.Namespace) -> int:
    """A gateway or a service token; its secret is shown once."""
    if options.kind == "gateway":
        labels = dict(_label(text) for text in options.label)
        made = client.post("/gateways", {"name": options.name, "labels": labels})
    else:
        body = {"name": options.name, "role": options.role}
        made = client.post("/tokens", body | _ends(options))
    if options.output in ("json", "yaml"):
        dump(made, options.output)
        return OK
    complain(f"{options.kind}/{options.name} created; its token is shown once:")
    print(made["status"]["token"])
    return OK


def rotate(client: Client, options: argparse.Namespace) -> int:
    """A further token of a gateway; the older ones stay valid until they are revoked."""
    path = path_of("gateways", options.name, "tokens")
    made = client.post(path, _ends(options))
    if options.output in ("json", "yaml"):
        dump(made, options.output)
        return OK
    name = options.name
    complain(f"token {made['metadata']['id']} of gateway/{name}; it is shown once.")
    complain(f"When every instance uses it, revoke the older: switchgear revoke gateway {name}")
    print(made["status"]["token"])
    return OK


def revoke(client: Client, options: argparse.Namespace) -> int:
    """End a token. Of a gateway without an id: say which there are."""
    if options.kind == "token":
        client.remove(path_of("tokens", options.name))
        say(f"token/{options.name} revoked")
        return OK
    path = path_of("gateways", options.name, "tokens")
    if options.id is None:
        found = client.get(path)
        if options.output in ("json", "yaml"):
            dump(found, options.output)
        else:
            table(found["items"], _TOKENS)
        return OK
    client.remove(f"{path}/{options.id}")
    say(f"token {options.id} of gateway/{options.name} revoked; it is valid for at most 5 s more")
    return OK


_TOKENS: tuple[Column, ...] = (
    ("ID", lambda item: item["metadata"]["id"]),
    ("STATE", lambda item: item["status"]["state"]),
    ("AGE", lambda item: age(item["metadata"]["createdAt"])),
    ("BY", lambda item: item["metadata"]["createdBy"]),
    ("EXPIRES", lambda item: moment(item["spec"]["expiresAt"])),
)


def _ends(options: argparse.Namespace) -> dict[str, str]:
    if options.lasts is None:
        return {}
    lasts = timedelta(seconds=read_duration("--for", options.lasts))
    return {"expiresAt": (datetime.now(UTC) + lasts).isoformat()}


def allow_shrink(client: Client, options: argparse.Namespace) -> int:
    """Let a gateway's instances take a configuration that holds much less."""
    client.post(path_of("gateways", options.name, "allow-shrink"), {"reason": options.reason})
    say(f"gateway/{options.name}: the present configuration may shrink")
    return OK


def _setting(word: str) -> Kind:
    kind = kind_of(word)
    if kind not in SETTINGS:
        known = ", ".join(one.names[0] for one in SETTINGS)
        raise Failed(f"{word}: write one of {known}", USAGE)
    return kind


def _label(text: str) -> tuple[str, str]:
    key, equal, value = text.partition("=")
    if not equal:
        raise Failed(f"--label: write KEY=VALUE, not {text!r}", USAGE)
    return key, value
