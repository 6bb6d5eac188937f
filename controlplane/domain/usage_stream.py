"""Usage out of a stream, fed event by event as it passes through the gateway.

Invariants: constant memory, and no parse of an event that cannot hold usage; the provider's last
word counts, and what was delivered after it is estimated and marked. What was delivered is
measured, and less than ``_UNMEASURED`` bytes of it kept until then.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from controlplane.domain.usage import (
    NOTHING,
    UNKNOWN,
    Served,
    Tokens,
    estimate_tokens,
    find_usage,
    is_usage_only,
    served,
    tokens,
)

# Every provider's counts are named ...tokens, ...Tokens, ...TokenCount or ...eval_count.
USAGE_MARKERS = (b"okens", b"okenCount", b"eval_count")
# Text is taken in runs between backslashes: byte by byte took 3.6 times as long.
_DELIVERED = re.compile(
    rb'"(?:content|text|thinking|reasoning|reasoning_content|partial_json|arguments|delta|refusal'
    rb'|response)"'
    rb'\s*:\s*"([^"\\]*(?:\\.[^"\\]*)*)"'
)
# OpenAI's Responses say each text in pieces and then again as a whole.
_RESPONSES = b'"response.'
_AGAIN = re.compile(rb'(?<!\\)"type"\s*:\s*"response\.(?![a-z_.]*\.delta")')
_LONG_ANSWER = 2**20
_EMBEDDINGS = re.compile(rb'(?<!\\)"embeddings?"\s*:')
_FIRST_BYTES = 4096
# Looked for before the first event is parsed: most providers bill by no tier and name none.
_TIER, _TRAFFIC = b"ervice", b"trafficType"
_MOST_FIELDS = 40
_RAW = (bytes, bytearray)  # a union of both is made anew for each question
_UNMEASURED = 16 * 1024


_UNNAMED = Served()


class StreamUsage:
    """What one stream says it used, and the size of what it delivered. Not shared by threads."""

    __slots__ = (
        "_counted",
        "_counted_until",
        "_fields",
        "_final",
        "_first",
        "_opened",
        "_provider",
        "_served",
        "_uncounted",
        "_unmeasured",
        "_unmeasured_size",
    )

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._fields: dict[str, Any] = {}
        self._final = False
        self._opened = 0  # Anthropic's placeholder for the output
        # What was delivered before and after the last counts, in bytes and words.
        self._counted = self._uncounted = 0, 0
        self._unmeasured: list[bytes | bytearray] = []
        self._unmeasured_size = self._counted_until = 0
        self._first = b""
        self._served = _UNNAMED

    def feed(self, data: Any, decode: Callable[[bytes], Any] = json.loads) -> bool:
        """Note one event's data (bytes, text or parsed); ``decode`` raises ``ValueError``.

        True for OpenAI's usage-only chunk, which is kept from a client that did not ask for it.
        """
        if isinstance(data, str):
            data = data.encode("utf-8", "replace")
        elif not isinstance(data, _RAW):
            if not isinstance(data, Mapping):
                return False
            data = json.dumps(data, ensure_ascii=False, default=str).encode("utf-8", "replace")
        # Not ``in``, which first takes bytes for a number and fails: 2,000 instructions.
        if data.find(_RESPONSES) < 0 or not _AGAIN.search(data):
            self.measure(data)
        for marker in USAGE_MARKERS:
            if data.find(marker) >= 0:
                break
        else:
            return False
        try:
            event = decode(bytes(data))
        except (ValueError, RecursionError):
            return False
        return isinstance(event, dict) and self._note(event)

    def measure(self, data: bytes | bytearray) -> None:
        """Count the output in one event or in several, none of which holds usage.

        Nearly every stream ends with its provider's own counts, and then nobody asks for it.
        """
        self._unmeasured.append(data)
        self._unmeasured_size += len(data)
        if self._unmeasured_size >= _UNMEASURED:
            self._measure()

    def _measure(self) -> None:
        raw, until = self._unmeasured, self._counted_until
        if raw:
            self._first = self._first or bytes(raw[0][:_FIRST_BYTES])
            self._counted = _sum_of(self._counted, _text_in(raw[:until]))
            self._uncounted = _sum_of(self._uncounted, _text_in(raw[until:]))
            self._unmeasured, self._unmeasured_size, self._counted_until = [], 0, 0

    def _note(self, event: Mapping[str, Any]) -> bool:
        told = served(event)
        if told != self._served:
            self._served = Served(told.model or self._served.model, told.tier or self._served.tier)
        usage = find_usage(event)
        if usage is not None:
            news = usage
            if len(usage) > _MOST_FIELDS:
                news = dict(list(usage.items())[:_MOST_FIELDS])
            if event.get("type") == "message_start":
                news = {name: count for name, count in news.items() if name != "output_tokens"}
                opened = usage.get("output_tokens")
                self._opened = opened if type(opened) is int else 0
            else:
                self._final = True
                self._counted_until = len(self._unmeasured)
                if self._uncounted[0]:
                    self._counted = _sum_of(self._counted, self._uncounted)
                    self._uncounted = 0, 0
            self._fields = _newer(self._fields, news)
        return is_usage_only(event)

    @property
    def served_model(self) -> str | None:
        """The model that answers, as the stream names it."""
        return self._served.model or self._begun_as().model

    @property
    def service_tier(self) -> str | None:
        """The tier at which the stream is billed, as it names it."""
        if self._served.tier is None:
            first = self._first_event()
            if first.find(_TIER) >= 0 or first.find(_TRAFFIC) >= 0:
                return self._begun_as().tier
        return self._served.tier

    def _first_event(self) -> bytes:
        raw = self._first or (self._unmeasured[0] if self._unmeasured else b"")
        return bytes(raw[:_FIRST_BYTES]).partition(b"\n\n")[0]

    def _begun_as(self) -> Served:
        """What the first event says, of a stream that was cut before its usage."""
        try:
            event = json.loads(self._first_event().removeprefix(b"data: "))
        except (ValueError, RecursionError):
            return Served()
        return served(event) if isinstance(event, dict) else Served()

    @property
    def delivered_tokens(self) -> int:
        """An estimate of the output that has passed, in tokens."""
        self._measure()
        return estimate_tokens(*_sum_of(self._counted, self._uncounted))

    def result(self, *, prompt_estimate: int | None = None) -> Tokens:
        """The counts, estimated and marked where the stream did not say.

        Output that came after the last counts is added to them; a stream that ended before its
        counts has its output estimated, at least as much as it was said to begin with.
        """
        said = tokens(self._provider, self._fields, prompt_estimate=prompt_estimate)
        if said.invalid:
            return said
        if self._final and said.output:
            if not self._uncounted[0] and self._counted_until == len(self._unmeasured):
                return said  # as nearly all streams are
            late = _text_in(self._unmeasured[self._counted_until :])
            more = estimate_tokens(*_sum_of(self._uncounted, late))
            return said._replace(output=said.output + more, estimated=True) if more else said
        delivered = self.delivered_tokens
        if said.output is not None and not delivered:
            return said
        output = max(delivered, self._opened, said.reasoning_in_output or 0)
        return said._replace(output=output, estimated=True)


def delivered_tokens(answer: bytes) -> int:
    """An estimate of the output in a whole answer whose provider did not count it.

    Of one in which no text is found, or so long that a copy of its text would cost much, its size
    is taken; embeddings have no output.
    """
    if _EMBEDDINGS.search(answer):
        return 0
    size, words = _text_in([answer]) if len(answer) <= _LONG_ANSWER else (0, 0)
    return estimate_tokens(size or len(answer), words)


def _text_in(raw: list[bytes | bytearray]) -> tuple[int, int]:
    """Bytes and words of the text in some events: as it is in UTF-8 and not as JSON writes it."""
    if not raw:
        return 0, 0
    found = _DELIVERED.findall(b"\n".join(raw))
    text = b" ".join(found)
    # A quote is one byte and was written as two, of \\uXXXX about three were six.
    escapes = text.count(b"\\") + 2 * text.count(b"\\u") if b"\\" in text else 0
    return sum(map(len, found)) - escapes, len(text.split())


def _sum_of(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]


def _newer(before: Mapping[str, Any], news: Mapping[str, Any]) -> dict[str, Any]:
    """The fields so far and what an event says of them.

    Counts in streams are of all that came so far, so the last one holds; but a proxy's zeros, and
    what is left out, say nothing.
    """
    fields = dict(before)
    for name, value in news.items():
        known = fields.get(name)
        if isinstance(value, dict) and isinstance(known, dict):
            fields[name] = _newer(known, value)
        elif value is not None and (value or not known or isinstance(value, bool)):
            fields[name] = value
    return fields


def total(attempts: Iterable[Tokens]) -> Tokens:
    """The sum over attempts; a count that one of them does not know is not known of the sum."""
    result = NOTHING
    for one in attempts:
        result = Tokens(
            _sum(result.input, one.input),
            _sum(result.cached_read, one.cached_read),
            _sum(result.cache_write, one.cache_write),
            _sum(result.output, one.output),
            _sum(result.reasoning_in_output, one.reasoning_in_output),
            result.estimated or one.estimated,
            result.invalid or one.invalid,
        )
    return result


def _sum(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left + right


__all__ = ["NOTHING", "UNKNOWN", "USAGE_MARKERS", "StreamUsage", "delivered_tokens", "total"]
