"""Putting answers on a terminal: tables, JSON, YAML.

Invariant: text from outside is shown, never obeyed: what a terminal would take for a command
(escape sequences, carriage returns, bidirectional marks) becomes a question mark. JSON and YAML
hold the data as it is, since their own escapes keep it harmless.
"""

from __future__ import annotations

import json
import re
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
    grid([[title for title, _ in columns], *(cells(row, columns) for row in rows)])


def cells(row: Item, columns: Sequence[Column]) -> list[str]:
    """One line of a table."""
    return [plain(value(row)) for _, value in columns]


def grid(
    rows: Sequence[Sequence[str]], widths: Sequence[int] | None = None, pad: str = ""
) -> list[int]:
    """Lines of cells, as wide as the widest or as ``widths``; returns the widths."""
    wide = max((len(row) for row in rows), default=0)
    held = list(widths or [])
    held += [0] * (wide - len(held))
    if widths is None:
        held = [max(len(row[n]) for row in rows if n < len(row)) for n in range(wide)]
    for row in rows:
        line = "  ".join(cell.ljust(held[n]) for n, cell in enumerate(row))
        print(f"{pad}{line}".rstrip(), flush=True)
    return held


_MOMENT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.\d+(Z|[+-]\d\d:\d\d)")


def moment(text: object) -> str:
    """A time without the part of the second that nobody reads; other text as it is."""
    return _MOMENT.sub(r"\1\2", plain(text))


def lines(value: Any, depth: int = 0, name: str = "") -> None:
    """An object line by line; a list of objects is a table of what they hold."""
    pad = "  " * depth
    if isinstance(value, dict) and value:
        if name:
            print(f"{pad}{plain(name)}:")
        for key, inner in value.items():
            lines(inner, depth + bool(name), key)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        print(f"{pad}{plain(name)}:")
        held = [key for key in value[0] if any(one.get(key) not in _EMPTY for one in value)]
        rows = [[_cell(one.get(key)) for key in held] for one in value]
        titles = [_WORDS.sub(" ", key).upper() for key in held]
        grid([titles, *rows], pad=f"{pad}  ")
    else:
        text = ", ".join(map(str, value)) if isinstance(value, list) else value
        print(f"{pad}{plain(name)}: {moment(None if text in ([], {}) else text)}")


def _cell(value: Any) -> str:
    """A value inside a table: of a list of objects how many, of an object its parts."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return str(len(value))
    if isinstance(value, dict) and value:
        return ", ".join(f"{plain(key)} {moment(inner)}" for key, inner in value.items())
    return moment(value)


_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_EMPTY: tuple[object, ...] = (None, "", [], {})


def age(text: str | None) -> str:
    """How long ago, or until, a time is: ``3m``, ``2h``, ``5d``."""
    if not text:
        return "-"
    seconds = abs((datetime.now(UTC) - datetime.fromisoformat(text)).total_seconds())
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"
