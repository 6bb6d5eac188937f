"""Reading what a person typed: every fault of a form is found, each with its field.

Invariant: text that Postgres could not hold (NUL), or that is too long, never reaches it. Fields
are named as in Python (``expires_in``); the HTTP door writes them as its callers spell them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from difflib import get_close_matches

from controlplane.domain.precedence import Selection
from controlplane.domain.selectors import check_labels, parse_selector
from controlplane.domain.text import hidden_character, readable
from controlplane.errors import InvalidInput

_OBJECT_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,98}[a-z0-9])?")
_GATEWAY_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")
_MOST_LABELS = 64
_LONGEST = {"reason": 1000, "selector": 400}


class Faults:
    """Collects what is wrong with the fields of one request."""

    def __init__(self) -> None:
        self.errors: list[dict[str, str]] = []

    def add(self, field: str, message: str) -> None:
        """One fault of one field."""
        self.errors.append({"field": field, "message": message})

    def text(self, field: str, value: object, *, required: bool = False) -> str:
        """Free text within its length; '' after a fault.

        Without surrounding blanks and without what no reader sees (``domain.text``).
        """
        return readable(self._text(field, value, required=required))

    def name(self, field: str, value: object, *, required: bool = False) -> str:
        """A text that names something: what no reader sees is a fault; '' after a fault."""
        text = self._text(field, value, required=required)
        if char := hidden_character(text):
            self.add(field, f"it holds {char}, which no reader sees; write it without")
            return ""
        return text

    def _text(self, field: str, value: object, *, required: bool) -> str:
        if value is None:
            value = ""
        if not isinstance(value, str):
            self.add(field, "write a text")
            return ""
        stripped = value.strip()
        if "\x00" in stripped or any("\ud800" <= c <= "\udfff" for c in stripped):
            self.add(field, "it holds a character that cannot be stored (NUL or half a surrogate)")
        elif len(stripped) > _LONGEST.get(field, 200):
            self.add(field, f"write at most {_LONGEST.get(field, 200)} characters")
        elif required and not readable(stripped):
            self.add(field, "required")
        else:
            return stripped
        return ""

    def object_name(self, field: str, value: object) -> str:
        """A name that stands in paths: lower-case letters, digits, ``-`` and ``.``."""
        text = self.name(field, value, required=True)
        if text and not _OBJECT_NAME.fullmatch(text):
            self.add(field, "write up to 100 lower-case letters, digits, '-' and '.'")
        return text

    def gateway_name(self, field: str, value: object) -> str:
        """A gateway's name: letters, digits, ``-``, ``_`` and ``.``."""
        text = self.name(field, value, required=True)
        if text and not _GATEWAY_NAME.fullmatch(text):
            self.add(field, "write up to 100 letters, digits, '-', '_' and '.'")
        return text

    def selection(self, parts: Mapping[str, object]) -> Selection:
        """The gateway, selector, provider, model, region (and tenant) of a request."""
        read = {part: self.name(part, parts.get(part)) for part in Selection.__slots__}
        if read["gateway"] and read["selector"]:
            self.add("selector", "name a gateway or write a selector, not both")
        if read["selector"]:
            with self.of("selector"):
                parse_selector(read["selector"])
        return Selection(**read)

    def still_to_come(self, field: str, at: datetime | None, now: datetime) -> None:
        """A fault for a time that has no offset or has passed; None is none."""
        if at is None:
            return
        if at.tzinfo is None:
            self.add(field, "write a time with its offset, such as 2026-11-30T04:00:00Z")
        elif at <= now:
            self.add(field, "write a time that is still to come")

    def labels(self, value: object) -> dict[str, str]:
        """Labels as texts that selectors can name."""
        if not isinstance(value, Mapping) or not all(
            isinstance(k, str) and isinstance(v, str) for k, v in value.items()
        ):
            self.add("labels", "write an object of texts")
            return {}
        if len(value) > _MOST_LABELS:
            self.add("labels", f"write at most {_MOST_LABELS} labels")
        with self.of("labels"):
            check_labels(value)
        return dict(value)

    def of(self, field: str) -> _Catching:
        """``with faults.of("field"):`` a ``ValueError`` within becomes that field's fault."""
        return _Catching(self, field)

    def raise_any(self, what: str) -> None:
        """``InvalidInput`` with every fault so far, if there is one."""
        if self.errors:
            said = "; ".join(f"{e['field']}: {e['message']}" for e in self.errors)
            raise InvalidInput(f"{what}: {said}", errors=self.errors)

    def __iter__(self) -> Iterator[dict[str, str]]:
        return iter(self.errors)


def unknown_field(name: str, known: Iterable[str]) -> str:
    """What to say of a field that there is not: the one that was meant, or all."""
    fields = sorted(known)
    if near := get_close_matches(name, fields, n=1):
        return f"unknown field; did you mean {near[0]}?"
    return f"unknown field; known: {', '.join(fields)}"


class _Catching:
    def __init__(self, faults: Faults, field: str) -> None:
        self._faults = faults
        self._field = field

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> bool:
        if isinstance(error, ValueError):
            self._faults.add(self._field, str(error))
            return True
        return False
