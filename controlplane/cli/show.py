"""Putting answers on a terminal: tables, JSON, YAML.

Invariant: text from outside is shown, never obeyed: what a terminal would take for a command
(escape sequences, carriage returns, bidirectional marks) becomes a question mark. JSON and YAML
hold the data as it is, since their own escapes keep it harmless.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

from controlplane.cli.client import USAGE, Failed

Item = dict[str, Any]
Column = tuple[str, Callable[[Item], object]]


def plain(text: object) -> str:
    """``text`` on one line without what a terminal would obey; None is a dash."""
    if text is None or text == "":
        return "-"
    return "".join(c if _is_harmless(c) else "?" for c in str(text))


def _is_harmless(char: str) -> bool:
    return char == " " or unicodedata.category(char)[0] not in "CZ"


def say(text: str, to: TextIO | None = None) -> None:
    """One line of text from outside."""
    print(plain(text), file=to or sys.stdout, flush=True)


def complain(text: str) -> None:
    """A message to standard error; its own line ends stay."""
    for line in text.split("\n"):
        print(line[: len(line) - len(line.lstrip())] + plain(line.strip()), file=sys.stderr)


def dump(value: Any, form: str) -> None:
    """JSON or YAML."""
    if form == "json":
        print(json.dumps(value, indent=2, ensure_ascii=True))
        return
    print(as_yaml(value), end="")


def as_yaml(value: Any) -> str:
    """YAML with keys in their order; escapes keep control characters harmless."""
    yaml = _yaml()
    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=False, width=100))


def read_yaml(text: str) -> list[Any]:
    """Every document of a YAML (or JSON) text."""
    yaml = _yaml()
    try:
        return [document for document in yaml.safe_load_all(text) if document is not None]
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise Failed(f"not YAML: {error}", USAGE) from error


def _yaml() -> Any:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError as error:
        raise Failed("YAML needs PyYAML: pip install pyyaml, or use -o json", USAGE) from error
    return yaml


def table(rows: Sequence[Item], columns: Sequence[Column]) -> None:
    """Columns as wide as their widest cell."""
    lines = [[title for title, _ in columns]]
    lines += [[plain(value(row)) for _, value in columns] for row in rows]
    widths = [max(len(line[n]) for line in lines) for n in range(len(columns))]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        print("  ".join(cells).rstrip())


def age(text: str | None) -> str:
    """How long ago, or until, a time is: ``3m``, ``2h``, ``5d``."""
    if not text:
        return "-"
    seconds = abs((datetime.now(UTC) - datetime.fromisoformat(text)).total_seconds())
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"
