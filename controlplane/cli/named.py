"""Names on the command line, as this program prints them.

Invariant: what ``-o name`` or a verb prints, such as ``override/NAME``, every verb takes for NAME.
"""

from __future__ import annotations

import argparse

from controlplane.cli.client import USAGE, Failed
from controlplane.cli.kinds import kind_of

_ONE_KIND = {
    **dict.fromkeys(("approve", "withdraw", "acknowledge", "release", "extend"), "override"),
    "allow-shrink": "gateway",
}
_KIND_AND_NAME = ("get", "watch", "describe", "history", "rollback", "delete")


def read_names(options: argparse.Namespace) -> None:
    """Put the bare kind and name into ``options``. Raises ``Failed`` for what cannot be meant."""
    if kind := _ONE_KIND.get(options.verb):
        if getattr(options, "name", None):
            options.name = _bare_name(kind, options.name)
        if getattr(options, "names", None):
            options.names = [_bare_name(kind, name) for name in options.names]
    elif options.verb in _KIND_AND_NAME:
        options.kind, options.name = _as_printed(options.kind, options.name)
        if options.name is None and options.verb not in ("get", "watch"):
            raise Failed(
                f"{options.verb}: give the kind and the name, or {options.kind}/NAME", USAGE
            )


def _as_printed(word: str, name: str | None) -> tuple[str, str | None]:
    """The kind and the name of ``policy/chat``, as ``-o name`` prints it; else the two as given."""
    kind, slash, rest = word.partition("/")
    return (kind, rest or None) if name is None and slash else (word, name)


def _bare_name(kind: str, text: str) -> str:
    """The name in ``override/NAME`` or NAME. Another kind before it is bad use."""
    before, slash, name = text.partition("/")
    if not slash:
        return text
    if before.lower() not in kind_of(kind).names or not name:
        article = "an" if kind[0] in "aeiou" else "a"
        raise Failed(f"{text} is not {article} {kind}", USAGE)
    return name
