"""Label selectors in the equality form: ``region=eu,tier!=canary,spot`` (design 4.5).

Invariant: a selector that cannot be read is an error, never one that matches everything; the empty
selector is not a selector (the caller decides what "any" means).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

_KEY = re.compile(
    r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
)
_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?")
_LONGEST = 63


class Term(NamedTuple):
    """One requirement. ``value`` None: the key must be there, whatever its value."""

    key: str
    value: str | None
    equal: bool = True


@lru_cache(maxsize=1024)
def parse_selector(text: str) -> tuple[Term, ...]:
    """The terms of a selector. Raises ``ValueError`` that names the term it cannot read."""
    terms = []
    for part in text.split(","):
        term = part.strip()
        if "!=" in term:
            key, _, value = term.partition("!=")
            terms.append(Term(_key(key, term), _value(value, term), equal=False))
        elif "=" in term:
            key, _, value = term.partition("=")
            # ``==`` is the other way that people write it.
            terms.append(Term(_key(key, term), _value(value.removeprefix("="), term)))
        else:
            terms.append(Term(_key(term, term), None))
    return tuple(terms)


def _key(text: str, term: str) -> str:
    key = text.strip()
    if len(key) > _LONGEST * 2 or not _KEY.fullmatch(key):
        raise ValueError(f"{term!r}: write key, key=value or key!=value, separated by commas")
    return key


def _value(text: str, term: str) -> str:
    value = text.strip()
    if len(value) > _LONGEST or not _VALUE.fullmatch(value):
        raise ValueError(f"{term!r}: a value is at most 63 letters, digits, '-', '_' and '.'")
    return value


def selects(text: str, labels: Mapping[str, str]) -> bool:
    """True when every term holds. A missing key satisfies ``!=``, as in Kubernetes."""
    return all(_holds(term, labels) for term in parse_selector(text))


def _holds(term: Term, labels: Mapping[str, str]) -> bool:
    if term.value is None:
        return term.key in labels
    return (labels.get(term.key) == term.value) is term.equal


def check_labels(labels: Mapping[str, str]) -> None:
    """Raise ``ValueError`` for a label that no selector could name."""
    for key, value in labels.items():
        _key(key, key)
        _value(value, f"{key}={value}")
