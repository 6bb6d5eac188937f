"""An error answer's body as objects: JSON text parsed, and JSON that was put into a text.

Gateways on the way wrap an error once more and put the first one, as text, into ``message`` or
``raw``; what counts then stands inside.

Invariant: nothing raises, whatever was sent, and the work is bounded: a walk visits at most
``MOST_OBJECTS`` objects, because every pattern is tried against all that they say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any

MOST_OBJECTS = 100
_DEPTH = 6
_MEMBERS = 50
_LONGEST_TEXT = 16_000
_NOT_WORD = re.compile(r"[^a-z0-9]+")
_WRAPPED_IN = frozenset({"message", "raw", "error", "detail"})


def normal(name: str) -> str:
    """A code or a name without case and punctuation, so that one spelling meets every other."""
    return _NOT_WORD.sub("", name.lower())


def parse_body(body: Any) -> Any:
    """JSON text as an object; other text, and what is parsed already, as it is."""
    if isinstance(body, dict):
        return body
    if isinstance(body, bytes | bytearray):
        body = bytes(body).decode("utf-8", "replace")
    if isinstance(body, str) and body.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            return body
    return body


def wrapped(text: str) -> Any:
    """The object or list that a text consists of; None for any other text."""
    if text[:64].lstrip()[:1] not in ("{", "[") or len(text) > _LONGEST_TEXT:
        return None
    found = parse_body(text)
    return None if isinstance(found, str) else found


def folded(item: Mapping[Any, Any]) -> dict[str, Any]:
    """The members of one object under normal names; of two alike the first."""
    named: dict[str, Any] = {}
    for name, value in islice(item.items(), _MEMBERS):
        if isinstance(name, str) and not name.startswith("@"):
            named.setdefault(normal(name), value)
    return named


def objects(tree: Any, inside: Collection[str] | None = None) -> Iterator[Mapping[Any, Any]]:
    """The objects of a body, outer ones first; with ``inside`` only below members so named."""
    return islice(_objects(tree, inside, _DEPTH), MOST_OBJECTS)


def _objects(tree: Any, inside: Collection[str] | None, depth: int) -> Iterator[Mapping[Any, Any]]:
    children: list[Any] = []
    if isinstance(tree, Mapping):
        yield tree
        for name, child in islice(tree.items(), _MEMBERS):
            key = normal(name) if isinstance(name, str) else ""
            if inside is not None and key not in inside:
                continue
            if isinstance(child, str) and key in _WRAPPED_IN:
                child = wrapped(child)
            children.append(child)
    elif isinstance(tree, list | tuple):
        children = list(tree[:_MEMBERS])
    for child in children if depth else ():
        if isinstance(child, Mapping | list | tuple):
            yield from _objects(child, inside, depth - 1)
