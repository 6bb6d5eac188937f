"""A chat request, read once and only as far as routing needs.

Invariant: apart from ``model`` and ``stream_options`` the body goes to the provider value for value
as it came: every other value is kept as its raw bytes and never decoded.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec import Struct

from controlplane.domain.ceiling import ASSUMED_OUTPUT
from controlplane.domain.usage import estimate_tokens
from controlplane.domain.usage_counts import MOST_TOKENS

T = TypeVar("T")
_Fields = dict[str, msgspec.Raw]
_DECODER = msgspec.json.Decoder(_Fields)
_ENCODER = msgspec.json.Encoder()
# Made once: a decoder for a union costs more to build than to use.
_TEXT = msgspec.json.Decoder(str)
_COUNT = msgspec.json.Decoder(int | None)
_FLAG = msgspec.json.Decoder(bool | None)
_OPTIONS = msgspec.json.Decoder(_Fields | None)
_TRUE = msgspec.Raw(b"true")
_ONLY_USAGE = msgspec.Raw(b'{"include_usage":true}')


class Unreadable(Exception):
    """The body is not a chat request; ``field`` is what is wrong, the text says how."""

    def __init__(self, field: str | None, message: str) -> None:
        super().__init__(message)
        self.field = field


class Asked(Struct, frozen=True, gc=False):
    """What the caller asked. ``model`` is the route's name."""

    model: str
    stream: bool
    wants_usage: bool
    size: int
    fields: _Fields
    options: dict[str, msgspec.Raw]

    def body_for(self, model: str, ask_usage: bool) -> bytes:
        """The body for a target's model, asking for a stream's usage where the caller did not."""
        fields = {**self.fields, "model": msgspec.Raw(_ENCODER.encode(model))}
        if self.stream and ask_usage and not self.wants_usage:
            options = {**self.options, "include_usage": _TRUE} if self.options else None
            fields["stream_options"] = (
                msgspec.Raw(_ENCODER.encode(options)) if options else _ONLY_USAGE
            )
        return _ENCODER.encode(fields)

    def prompt_estimate(self) -> int:
        """Input tokens, when the provider does not say: from the size of the messages."""
        messages = self.fields.get("messages")
        return estimate_tokens(memoryview(messages).nbytes if messages is not None else self.size)

    def output_limit(self) -> int:
        """The most output tokens that the answer may have, over all its choices; a guess if the
        caller names no limit."""
        most = ASSUMED_OUTPUT
        for name in ("max_completion_tokens", "max_output_tokens", "max_tokens"):
            if (named := self._count(name)) is not None:
                most = named
                break
        return most * max(1, self._count("n") or 1)

    def _count(self, name: str) -> int | None:
        """A whole number of the body. What is none is for the provider to refuse."""
        try:
            count = _COUNT.decode(self.fields[name]) if name in self.fields else None
        except msgspec.DecodeError:
            return None
        return count if count is not None and 0 <= count <= MOST_TOKENS else None


def read(body: bytes) -> Asked:
    """Read a request's body. Raises ``Unreadable``."""
    try:
        body.decode()
        fields = _DECODER.decode(body)
    except UnicodeDecodeError as error:
        raise Unreadable(None, f"the body is not UTF-8 at byte {error.start}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise Unreadable(None, f"the body is not a JSON object: {error}") from error
    if "model" not in fields:
        raise Unreadable("model", "you must name a model: the name of a route of this gateway")
    options = _value(fields, "stream_options", _OPTIONS) or {}
    return Asked(
        model=_value(fields, "model", _TEXT) or "",
        stream=_value(fields, "stream", _FLAG) is True,
        wants_usage="include_usage" in options and bytes(options["include_usage"]) == b"true",
        size=len(body),
        fields=fields,
        options=options,
    )


def _value(fields: _Fields, name: str, decoder: msgspec.json.Decoder[T]) -> T | None:
    if name not in fields:
        return None
    try:
        return decoder.decode(fields[name])
    except msgspec.ValidationError as error:
        raise Unreadable(name, f"{name}: {error}") from error
