"""Read a parsed TOML table strictly: every key is known, every error names the key's path.

Invariant: a value is read once, and ``done`` fails on any key that nobody asked for, so that a
misspelt setting can never be silently without effect. ``${NAME}`` and ``${NAME:-default}`` inside a
text are replaced from the environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import Any, TypeVar

_PLACEHOLDER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_REQUIRED: Any = object()
T = TypeVar("T")


class ConfigError(Exception):
    """The file cannot be used; the text says which key, and what would be right."""


class Table:
    """One table of the file, at ``path``."""

    def __init__(self, values: Mapping[str, Any], path: str, env: Mapping[str, str]) -> None:
        self._values = dict(values)
        self._path = path
        self._env = env
        self._asked: set[str] = set()

    def text(self, key: str, default: str = _REQUIRED, *, longest: int = 200) -> str:
        """A text without control characters, placeholders replaced; may be empty by default."""
        value = self._take(key, default)
        if not isinstance(value, str):
            raise self.error(key, f"expected text, got {_kind(value)}")
        value = _PLACEHOLDER.sub(lambda found: self._variable(key, found), value)
        if len(value) > longest or any(ord(char) < 32 for char in value):
            raise self.error(key, f"expected at most {longest} characters, no control characters")
        if not value and default is _REQUIRED:
            raise self.error(key, "must not be empty")
        return value

    def one_of(self, key: str, words: tuple[str, ...], default: str = _REQUIRED) -> str:
        """A text out of a closed list."""
        value = self.text(key, default)
        if value not in words:
            raise self.error(key, f"expected one of {', '.join(words)}, got {value!r}")
        return value

    def whole(self, key: str, default: int = _REQUIRED, *, least: int, most: int) -> int:
        """A whole number in a range. Text is accepted so that a placeholder can give it."""
        value = self._take(key, default)
        if isinstance(value, str):
            text = _PLACEHOLDER.sub(lambda found: self._variable(key, found), value)
            value = int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else text
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key, f"expected a whole number, got {value!r}")
        if not least <= value <= most:
            raise self.error(key, f"expected {least} to {most}, got {value}")
        return value

    def maybe_whole(self, key: str, *, most: int) -> int | None:
        """A whole number from 0; None when it is not given."""
        return self.whole(key, least=0, most=most) if self.has(key) else None

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; an absent one is empty."""
        value = self._take(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(key, "expected a list of texts")
        if any(not item or len(item) > 200 or not item.isprintable() for item in value):
            raise self.error(key, "expected texts of 1 to 200 printable characters")
        return tuple(value)

    def seconds(self, key: str, default: float = _REQUIRED, *, most: float = 86_400) -> float:
        """A duration above 0 in seconds."""
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(key, f"expected seconds, got {_kind(value)}")
        if not 0 < value <= most:
            raise self.error(key, f"expected above 0 and at most {most:g} seconds, got {value}")
        return float(value)

    def flag(self, key: str, default: bool = _REQUIRED) -> bool:
        """true or false."""
        value = self._take(key, default)
        if not isinstance(value, bool):
            raise self.error(key, f"expected true or false, got {_kind(value)}")
        return value

    def moment(self, key: str) -> datetime | None:
        """A date and time with its offset; None when it is not given."""
        value = self._take(key, None)
        if value is None:
            return None
        if not isinstance(value, datetime) or value.tzinfo is None:
            raise self.error(key, "expected a date and time with offset, 2026-11-30T12:00:00Z")
        return value

    def table(self, key: str) -> Table:
        """A sub-table; an absent one is empty."""
        value = self._take(key, {})
        if not isinstance(value, dict):
            raise self.error(key, f"expected a table, got {_kind(value)}")
        return Table(value, self._at(key), self._env)

    def tables(self, key: str) -> list[Table]:
        """A list of tables; an absent one is empty."""
        value = self._take(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.error(key, "expected a list of tables, [[" + self._at(key) + "]]")
        return [
            Table(item, f"{self._at(key)}[{place}]", self._env) for place, item in enumerate(value)
        ]

    def variable(self, name: str) -> str:
        """An environment variable's value, empty when it is not set."""
        return self._env.get(name, "")

    def has(self, key: str) -> bool:
        """True when the file gives this key."""
        return key in self._values

    def done(self, value: T) -> T:
        """Fail on a key that nobody asked for; else hand ``value`` back."""
        for key in self._values.keys() - self._asked:
            close = get_close_matches(key, self._asked, 1)
            hint = f"did you mean {close[0]}?" if close else "known: " + ", ".join(self._known())
            raise self.error(key, f"unknown key; {hint}")
        return value

    def error(self, key: str, message: str) -> ConfigError:
        """An error about one key of this table."""
        return ConfigError(f"{self._at(key)}: {message}")

    def _take(self, key: str, default: Any) -> Any:
        self._asked.add(key)
        value = self._values.get(key, default)
        if value is _REQUIRED:
            raise self.error(key, "is required")
        return value

    def _variable(self, key: str, found: re.Match[str]) -> str:
        value = self._env.get(found[1]) or found[2]
        if value is None:
            raise self.error(key, f"the environment has no {found[1]}")
        return value

    def _at(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def _known(self) -> list[str]:
        return sorted(self._asked)


def _kind(value: object) -> str:
    names = {bool: "true/false", int: "a number", float: "a number", str: "text", list: "a list"}
    return names.get(type(value), f"a {type(value).__name__}")
