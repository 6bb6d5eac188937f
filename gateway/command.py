"""Throw a breaker on this gateway's host when the control plane cannot be reached.

  switchgear-gateway force-open openai/gpt-4o --reason "529s since 03:02" [--for 30m]
  switchgear-gateway force-close PROVIDER[/MODEL[@REGION]] --reason ... [--for 10m]
  switchgear-gateway release UID... | --all
  switchgear-gateway status

--config FILE or --data-dir DIR says which gateway (of "make up": --data-dir var/gateway).
It asks every worker of the gateway through its unix socket (the gateway's own user, or root) and
says what each did. Exit status 0: all of them; 1: not all; 2: bad use; 3: no gateway answers.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import msgspec

from controlplane.domain.circuit import parse_circuit
from controlplane.domain.durations import duration
from controlplane.domain.overrides import LIFETIMES, OverrideMode, in_words
from controlplane.domain.text import readable
from gateway.local_control import SECONDS, Reply, Request, address
from gateway.local_overrides import Record
from gateway.table import ConfigError, Table

_MODES = {
    "force-open": OverrideMode.FORCE_OPEN,
    "force-close": OverrideMode.FORCE_CLOSED,
    "force-closed": OverrideMode.FORCE_CLOSED,
}
_NAMED = "name it with --config, or its data with --data-dir"
_FOLDER = "control"


class BadUse(Exception):
    """The command line is wrong; the text says how."""


def main(arguments: list[str] | None = None) -> int:
    """The exit status."""
    options = _parser().parse_args(arguments)
    try:
        request = _request(options)
        replies, silent = ask(_data_dir(options) / _FOLDER, request)
    except (BadUse, ConfigError) as error:
        print(f"switchgear-gateway: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"switchgear-gateway: {error}", file=sys.stderr)
        return 3
    if options.json:
        print(msgspec.json.encode(replies).decode())
    else:
        for reply in replies:
            _print(reply, options.verb)
    for name in silent:
        print(f"{name}: no answer", file=sys.stderr)
    if not replies:
        print("switchgear-gateway: no worker of this gateway answers", file=sys.stderr)
        return 3
    return 0 if not silent and all(map(_fine, replies)) else 1


def ask(folder: Path, request: Request) -> tuple[list[Reply], list[str]]:
    """Every worker's answer, and the names of those that gave none. Raises ``OSError``."""
    replies, silent = [], []
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in sorted(n for n in os.listdir(descriptor) if n.endswith(".control")):
            try:
                replies.append(_ask_one(address(folder, descriptor, name), request))
            except (OSError, msgspec.DecodeError):
                silent.append(name)
    finally:
        os.close(descriptor)
    return replies, silent


def _ask_one(path: str, request: Request) -> Reply:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as own:
        own.settimeout(SECONDS)
        own.connect(path)
        own.sendall(msgspec.json.encode(request) + b"\n")
        with own.makefile("rb") as answer:
            return msgspec.json.decode(answer.readline(), type=Reply)


def _request(options: argparse.Namespace) -> Request:
    by = f"sudo {os.environ['SUDO_USER']}" if os.environ.get("SUDO_USER") else ""
    if options.verb == "status":
        return Request(do="status")
    if options.verb == "release":
        if bool(options.uids) == options.all:
            raise BadUse("release: name the overrides (see status), or --all")
        return Request(do="release", uids=options.uids, everything=options.all, by=by)
    return Request(do="force", record=_record(options), take_over=options.take_over, by=by)


def _record(options: argparse.Namespace) -> Record:
    mode = _MODES[options.verb]
    if not readable(options.reason):
        raise BadUse("--reason: say why")
    lasts = LIFETIMES[mode].default.total_seconds()
    if options.lasts is not None:
        lasts = duration(options.lasts) or 0.0
        if not 0 < lasts <= 10**7:
            raise BadUse(f"--for: write a duration such as 30m or 1h30m, not {options.lasts!r}")
    provider, model, region = _target(options.target)
    now = datetime.now(UTC)
    return Record(
        uid=f"local-{uuid4()}",
        mode=mode.value,
        provider=provider,
        model=model,
        region=region,
        reason=readable(options.reason)[:1000],
        made_by="",
        created_at=now,
        expires_at=now + timedelta(seconds=lasts),
        allow_last_healthy=options.allow_last_healthy,
    )


def _target(text: str) -> tuple[str, str, str]:
    """``provider``, ``provider/model`` or ``provider/model@region``; a part left out is any."""
    if "/" not in text:
        return text, "", ""
    try:
        found = parse_circuit(text)
    except ValueError as error:
        raise BadUse(f"{text}: {error}") from error
    return found.provider, found.model, found.region


def _data_dir(options: argparse.Namespace) -> Path:
    """The gateway's data directory; of the file only that one line is needed, and no secret."""
    if options.data_dir is not None:
        return Path(options.data_dir)
    try:
        values = tomllib.loads(options.config.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadUse(f"{options.config}: {error.strerror}; {_NAMED}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadUse(f"{options.config}: {error}") from error
    table = Table(values.get("gateway", {}), "gateway", os.environ)
    try:
        return Path(table.text("data_dir", "var/gateway", longest=4000))
    except ConfigError as error:
        raise BadUse(f"{options.config}: {error}; set it, or say --data-dir") from error


def _fine(reply: Reply) -> bool:
    return not reply.error and all(held.verdict == "Applied" for held in reply.held)


def _print(reply: Reply, verb: str) -> None:
    if reply.error:
        print(f"{reply.slot}: refused: {_plain(reply.error)}")
    if reply.warning:
        print(f"{reply.slot}: {_plain(reply.warning)}")
    for uid in reply.released:
        print(f"{reply.slot}: released {uid}")
    if verb == "release" and not reply.released and not reply.error:
        print(f"{reply.slot}: nothing to release")
    if verb == "status":
        print(f"{reply.slot}: generation {reply.generation} from {reply.source}")
        if reply.trouble:
            print(f"{reply.slot}: no word of the control plane: {_plain(reply.trouble)}")
        for circuit in reply.circuits:
            name = f"{circuit.provider}/{circuit.model}" + (
                f"@{circuit.region}" if circuit.region else ""
            )
            print(f"  {_plain(name):40} {circuit.state:9} {circuit.mode:12} {circuit.cause}")
    for held in reply.held:
        record = held.record
        left = in_words(record.expires_at - datetime.now(UTC))
        print(
            f"{reply.slot}: {record.uid} {record.mode} {_plain(record.selection.circuits)}"
            f" on this host by {_plain(record.made_by)}, {left} left, {held.verdict}"
            f" ({_plain(held.message)}): {_plain(record.reason)}"
        )


def _plain(text: str) -> str:
    """Text from outside without what a terminal would obey."""
    return "".join(char if char.isprintable() else "?" for char in text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="switchgear-gateway",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--config", type=Path, default=Path("gateway.toml"))
    common.add_argument("--data-dir", help="instead of the file's gateway.data_dir")
    common.add_argument("--json", action="store_true", help="the workers' answers as JSON")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, mode in _MODES.items():
        force = verbs.add_parser(verb, parents=[common], help=f"{mode.value} on this host")
        force.add_argument("target", help="PROVIDER[/MODEL[@REGION]]")
        force.add_argument("--reason", required=True)
        default, longest = (in_words(d) for d in LIFETIMES[mode])
        force.add_argument(
            "--for", dest="lasts", help=f"such as 30m ({default}; at most {longest})"
        )
        force.add_argument("--allow-last-healthy", action="store_true")
        force.add_argument("--take-over", action="store_true", help="end the one on this match")
    release = verbs.add_parser("release", parents=[common], help="end overrides of this host")
    release.add_argument("uids", nargs="*")
    release.add_argument("--all", action="store_true")
    verbs.add_parser("status", parents=[common], help="what this host's workers enforce")
    return parser


if __name__ == "__main__":
    sys.exit(main())
