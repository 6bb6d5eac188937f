"""What may be asked below ``/v1``, and whether a second run of it has effects of its own.

Invariant: only what is known to be repeatable is ever sent again once a byte of it may have reached
a provider (design 4.4); of an operation that this table does not know, nothing is assumed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct

from gateway.asked import Asked
from gateway.opaque import Unread

_PATH = re.compile(r"/v1/((?:[a-z0-9_]{1,40}/){0,3}[a-z0-9_]{1,40})")
_OWN_TOOLS = frozenset({"function", "custom"})
"""Tools that the caller runs itself; every other kind the provider runs, with effects."""


class _Tool(Struct):
    type: str = ""


_TOOLS = msgspec.json.Decoder(list[_Tool] | None)
_NOTHING = (b"null", b"false")


@dataclass(frozen=True, slots=True)
class Operation:
    """One kind of request. ``path`` is below a provider's base URL.

    ``tells_usage_when_asked``: its streams have ``stream_options``. ``unread``: one request whose
    body is passed on as it is.
    """

    path: str
    repeatable: Callable[[Any], bool]
    tells_usage_when_asked: bool = False
    unread: Unread | None = None


def of_path(path: str) -> Operation | None:
    """The operation that a request's path names; None when it names none."""
    known = _KNOWN.get(path)
    if known is not None:
        return known
    found = _PATH.fullmatch(path)
    if found is None or found[1] == "models":
        return None
    return Operation(found[1], _never)


def _always(_: Asked) -> bool:
    return True


def _never(_: Asked) -> bool:
    return False


def _response(asked: Asked) -> bool:
    """Not one that is stored (which is what happens when nobody says otherwise), goes on in the
    background, adds to a conversation, or lets the provider run tools."""
    fields = asked.fields
    if bytes(fields.get("store", b"true")) != b"false":
        return False
    if any(bytes(fields.get(name, b"null")) not in _NOTHING for name in ("background", "prompt")):
        return False
    if bytes(fields.get("conversation", b"null")) != b"null":
        return False
    try:
        tools = _TOOLS.decode(fields["tools"]) if "tools" in fields else None
    except msgspec.DecodeError:
        return False
    return all(tool.type in _OWN_TOOLS for tool in tools or ())


CHAT = Operation("chat/completions", _always, tells_usage_when_asked=True)
CHAT_PATH = f"/v1/{CHAT.path}"
_KNOWN = {
    f"/v1/{operation.path}": operation
    for operation in (
        CHAT,
        Operation("completions", _always, tells_usage_when_asked=True),
        Operation("messages", _always),
        Operation("embeddings", _always),
        Operation("moderations", _always),
        Operation("responses", _response),
    )
}
KNOWN_PATHS = frozenset(_KNOWN)
