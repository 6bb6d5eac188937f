"""Environment variables, read once and strictly.

Invariant: an odd value stops the start with a line that names the variable; nothing is guessed.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


class EnvError(Exception):
    """A variable is missing or cannot be read; the message says which and what to write."""


def text(name: str, default: str | None = None) -> str:
    """A text value. ``NAME_FILE`` may hold the path of a file with it (for secrets)."""
    if path := os.environ.get(f"{name}_FILE"):
        try:
            return Path(path).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise EnvError(f"{name}_FILE={path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError:
            raise EnvError(f"{name}_FILE={path} is not UTF-8 text") from None
    value = os.environ.get(name, default)
    if value is None:
        raise EnvError(f"{name} is not set; see docs/operating.md")
    return value


def flag(name: str, default: bool) -> bool:
    """``1``/``true`` or ``0``/``false``."""
    value = os.environ.get(name)
    if value is None or value == "":
        return default
    if value.lower() in {"1", "true"}:
        return True
    if value.lower() in {"0", "false"}:
        return False
    raise EnvError(f"{name}={value!r}: write 1 or 0")


def number(name: str, default: int, *, low: int, high: int) -> int:
    """A whole number within bounds."""
    value = os.environ.get(name, str(default))
    if not value.isascii() or not value.isdigit() or not low <= int(value) <= high:
        raise EnvError(f"{name}={value!r}: write a whole number from {low} to {high}")
    return int(value)


def names(name: str, default: str) -> list[str]:
    """A list separated by commas."""
    return [part.strip() for part in os.environ.get(name, default).split(",") if part.strip()]


def secret(name: str) -> str:
    """A text that signs things: 32 characters at least, so that none can be guessed."""
    value = text(name)
    if len(value) < 32:
        raise EnvError(f"{name} has {len(value)} characters: write 32 or more, at random")
    return value


def level(name: str, default: str) -> str:
    """A log level by its standard name."""
    value = text(name, default).upper() or default
    if value not in _LEVELS:
        raise EnvError(f"{name}={value!r}: write one of {', '.join(_LEVELS)}")
    return value


def zone(name: str, default: str) -> str:
    """The name of a time zone that this machine knows."""
    value = text(name, default) or default
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise EnvError(f"{name}={value!r}: write a time zone such as Europe/London") from None
    return value


def database(name: str) -> dict[str, object]:
    """A Postgres URL as Django's settings. ``host`` may be a socket folder in the query."""
    form = f"{name}: write postgresql://user:password@host:port/database"
    try:
        url = urlsplit(text(name))
        port = url.port
    except ValueError as error:
        raise EnvError(f"{form} ({error})") from None
    if url.scheme not in {"postgres", "postgresql"} or len(url.path) < 2:
        raise EnvError(form)
    query = dict(part.partition("=")[::2] for part in url.query.split("&") if part)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(url.path[1:]),
        "USER": unquote(url.username or ""),
        "PASSWORD": unquote(url.password or ""),
        "HOST": unquote(query.get("host", "")) or url.hostname or "",
        "PORT": str(port or query.get("port", "")),
    }
