"""The circuit breakers of LLM gateways, from a terminal: look, force, follow, tune.

  switchgear get circuits
  switchgear force-open openai/gpt-4o --reason "529s since 03:02" --for 30m --watch
  switchgear release --mine
  switchgear get task batch-7          its attempts, refusals, waits and cost
  switchgear explain override          what an object's fields mean

It reads SWITCHGEAR_URL and SWITCHGEAR_TOKEN, or ~/.config/switchgear/config.toml.

Exit status: 0 done (with --watch: enforced by all); 1 something differs, is refused by an instance,
or is not enforced by all; 2 bad use; 3 no such object; 4 refused, with the field; 5 conflict;
6 not permitted; 7 the control plane does not answer.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from controlplane.cli import files, force, read, write
from controlplane.cli.client import UNAVAILABLE, Client, Failed, Settings, environment
from controlplane.cli.completion import completion
from controlplane.cli.explain import explain, kinds
from controlplane.cli.named import read_names
from controlplane.cli.show import complain

Run = Callable[[Client, argparse.Namespace], int]


def main(arguments: list[str] | None = None) -> int:
    """The exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        read_names(options)
        if offline := getattr(options, "offline", None):
            return int(offline(options))
        run: Run = options.run
        return run(Client(Settings.read(environment())), options)
    except Failed as error:
        complain(f"switchgear: {error}")
        return error.exit_status
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        # Something answered that is not our API: an old version, or another server.
        complain(f"switchgear: the answer is not understood: {type(error).__name__}: {error}")
        return UNAVAILABLE
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 141


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="switchgear",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    _reading(verbs)
    _forcing(verbs)
    _writing(verbs)
    _offline(verbs, parser)
    return parser


def _offline(verbs: Any, parser: argparse.ArgumentParser) -> None:
    """What needs no control plane."""
    about = "what a kind is, and what its fields mean"
    one = verbs.add_parser("explain", help=about, description=about)
    one.add_argument("kind", metavar="KIND[.FIELD]", help=", ".join(kinds()))
    one.set_defaults(offline=explain)
    about = "print a script that completes verbs, kinds and names"
    one = verbs.add_parser("completion", help=about, description=about)
    one.add_argument("shell", choices=["bash", "zsh"])
    one.set_defaults(offline=lambda options: completion(options, parser))


def _verb(verbs: Any, name: str, run: Run, about: str, forms: str = "table wide json yaml") -> Any:
    one = verbs.add_parser(name, help=about, description=about)
    one.add_argument("-o", "--output", default="table", choices=forms.split())
    one.set_defaults(run=run)
    return one


def _reading(verbs: Any) -> None:
    for name, watches in (("get", False), ("watch", True)):
        about = "the same as get --watch: print what changes" if watches else "list, or show one"
        one = _verb(verbs, name, read.get, about, "table wide json yaml name")
        one.add_argument(
            "kind",
            help="gateways, circuits, overrides, policies, budgets, routes, task, telemetry ...",
        )
        one.add_argument("name", nargs="?")
        one.add_argument("-a", "--all", action="store_true", help="overrides that ended, too")
        if not watches:
            one.add_argument("--gateway", default="", help="of a task that several know")
            one.add_argument("--tenant", default="", help="of a task that several know")
        _watching(one)
        one.set_defaults(**({"watch": True, "gateway": "", "tenant": ""} if watches else {}))
    one = _verb(verbs, "describe", read.describe, "everything about one object")
    one.add_argument("kind")
    one.add_argument("name", nargs="?")
    one = _verb(verbs, "history", read.history, "every generation of a policy, budget or route")
    one.add_argument("kind")
    one.add_argument("name", nargs="?")
    one = _verb(verbs, "audit", read.audit, "who did what, when and why", "table csv json yaml")
    for option in ("kind", "name", "actor", "action", "search", "since", "until"):
        one.add_argument(f"--{option}", default="")
    one.add_argument("--limit", type=int, default=100)
    one = _verb(verbs, "report", read.report, "a week's figures", "table wide csv json yaml")
    for option in ("week", "zone", "by"):
        one.add_argument(f"--{option}", default="")


def _forcing(verbs: Any) -> None:
    for name, mode in force.VERBS.items():
        one = _verb(verbs, name, force.force, f"{mode.value} circuits until it ends by itself")
        _about(one)
        one.add_argument("--for", dest="lasts", help=f"such as 30m (default {force.lifetimes()})")
        one.add_argument("--allow-last-healthy", action="store_true")
        one.add_argument("--ticket", default="")
        one.add_argument("--take-over", action="store_true", help="end the one on this match")
        one.add_argument("--break-glass", action="store_true", help="without the second person")
        one.add_argument("--dry-run", action="store_true", help="say what it would touch")
        _watching(one)
    one = _verb(verbs, "approve", force.approve, "put in force what another operator asked for")
    one.add_argument("name")
    _watching(one)
    for name, about in (
        ("withdraw", "take back what waits for approval"),
        ("acknowledge", "say that a broken glass was seen"),
    ):
        one = _verb(verbs, name, force.decide, about)
        one.add_argument("name")
    one = _verb(verbs, "probe", force.probe, "let open breakers try again now")
    _about(one)
    _watching(one)
    one = _verb(verbs, "release", force.release, "end overrides")
    one.add_argument("names", nargs="*")
    one.add_argument("--mine", action="store_true", help="all that I recorded")
    one.add_argument("--reason", default="")
    _watching(one)
    one = _verb(verbs, "extend", force.extend, "move an override's end")
    one.add_argument("name")
    one.add_argument("--for", dest="lasts", required=True)
    one.add_argument("--reason", default="")
    _watching(one)


def _writing(verbs: Any) -> None:
    for name, run, about in (
        ("apply", files.apply, "write the settings of a file"),
        ("diff", files.diff, "what apply would change; status 1 when it would"),
    ):
        one = _verb(verbs, name, run, about)
        one.add_argument("-f", "--file", required=True, help="YAML or JSON; - for standard input")
        one.add_argument("--force", action="store_true", help="also fields that others wrote")
        one.add_argument("--field-manager", default="file")
        if name == "apply":
            one.add_argument("--dry-run", action="store_true", help="check it, change nothing")
            _watching(one)
    one = _verb(verbs, "rollback", write.rollback, "write an earlier generation again")
    one.add_argument("kind")
    one.add_argument("name", nargs="?")
    one.add_argument("--to", type=int, required=True, metavar="GENERATION")
    one.add_argument("--reason", required=True)
    _watching(one)
    one = _verb(verbs, "delete", write.delete, "remove a policy, budget or route")
    one.add_argument("kind")
    one.add_argument("name", nargs="?")
    one.add_argument("--reason", default="")
    one = _verb(verbs, "create", write.create, "create gateway NAME | create token NAME")
    one.add_argument("kind", choices=["gateway", "token"])
    one.add_argument("name")
    one.add_argument("--label", action="append", default=[], metavar="KEY=VALUE")
    one.add_argument("--role", default="viewer", choices=["viewer", "operator", "admin"])
    one.add_argument("--for", dest="lasts", help="a token ends after it, such as 90d; none: never")
    one = _verb(verbs, "rotate", write.rotate, "rotate gateway NAME: a further token of it")
    one.add_argument("kind", choices=["gateway"])
    one.add_argument("name")
    one.add_argument("--for", dest="lasts", help="it ends after it, such as 90d; none: never")
    one = _verb(verbs, "revoke", write.revoke, "revoke token NAME | revoke gateway NAME [ID]")
    one.add_argument("kind", choices=["gateway", "token"])
    one.add_argument("name")
    one.add_argument("id", nargs="?", type=int, help="without it: which tokens the gateway has")
    one = _verb(verbs, "allow-shrink", write.allow_shrink, "its configuration is meant to shrink")
    one.add_argument("name", help="the gateway")
    one.add_argument("--reason", required=True)


def _about(one: Any) -> None:
    one.add_argument("target", help="PROVIDER[/MODEL[@REGION]], * for any of a part; or all")
    one.add_argument("--reason", required=True)
    one.add_argument("--gateway", default="")
    one.add_argument("--selector", "-l", default="", help="gateways by label, such as tier=eu")


def _watching(one: Any) -> None:
    one.add_argument("-w", "--watch", action="store_true", help="follow it to every instance")
    one.add_argument("--timeout", type=float, help="seconds to follow it (30; a list: for ever)")
