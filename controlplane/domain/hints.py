"""How long a server asks us to wait, and what to do about it.

Read from headers, gRPC metadata, error bodies and messages, the most precise source first. All
times are seconds.

Invariants: reading never raises, whatever a provider sends; ``hint_s`` is None or a number from 0
to ``LONGEST_S``; a hint is a *minimum* wait, so nothing here shortens one to make it fit. A longer
one is a fault of the server's (a time in other units, an overflow): it is no hint, for a breaker or
a key that obeyed it would never come back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import Any

from controlplane.domain.durations import (
    duration,
    in_prose,
    instant,
    number,
    quantity,
    seconds_until,
)
from controlplane.domain.error_body import normal, objects, parse_body
from controlplane.domain.pace import (
    DAY_S,
    LONGEST_S,
    buckets_of,
    fold_names,
    remaining,
    server_clock,
)

__all__ = ["LONGEST_S", "Action", "Hint", "decide", "parse_hint", "remaining", "sleep_s"]


class Action(StrEnum):
    """What a caller does next about one failed attempt, as far as the server's hint goes."""

    WAIT = "wait"
    BACKOFF = "backoff"
    GIVE_UP = "give_up"
    NO_RETRY = "no_retry"


@dataclass(frozen=True, slots=True)
class Hint:
    """A server's own wait: ``hint_s`` seconds (None: no usable one) and where it stood.

    ``server_says``: True or False when the server said outright that a retry is (not) welcome.
    ``exact``: zero seconds means "at once" (gRPC pushback), not "no information".
    """

    hint_s: float | None = None
    source: str | None = None
    server_says: bool | None = None
    exact: bool = False


def parse_hint(
    headers: Mapping[str, Any],
    body: Any = None,
    *,
    now: datetime,
    status: int | None = None,
    protocol: str = "http",
) -> Hint:
    """Find the server's wait. ``now`` is aware; ``body`` is a parsed object, text or None.

    Order: gRPC pushback, ``retry-after-ms``, ``retry-after``, the body's own fields
    (google.rpc.RetryInfo first), then on a 429 the resets of used-up buckets, then the message.
    """
    named = fold_names(headers)
    says = _should_retry(named)
    if "grpc-retry-pushback-ms" in named and (protocol == "grpc" or "retry-after" not in named):
        return _pushback(named["grpc-retry-pushback-ms"], says)
    # A server's own clock, where it tells us, makes its dates immune to the skew of ours.
    clock = server_clock(named, now)
    unusable: Hint | None = None
    for source, seconds in _candidates(named, body, clock, status):
        if seconds is None or seconds < 0:
            continue
        if 0 < seconds <= LONGEST_S:
            return Hint(seconds, source, says)
        unusable = unusable or Hint(None if seconds else 0.0, source, says)
    return unusable or Hint(server_says=says)


def decide(hint: Hint, max_wait_s: float) -> Action:
    """What the hint means for a request that may wait at most ``max_wait_s`` seconds in itself.

    A hint above the limit is ``GIVE_UP`` (fail or fall back, rest the key), never a shorter sleep.
    """
    if hint.server_says is False:
        return Action.NO_RETRY
    if hint.hint_s is None or (hint.hint_s == 0 and not hint.exact):
        return Action.BACKOFF
    return Action.WAIT if hint.hint_s <= max_wait_s else Action.GIVE_UP


def sleep_s(hint: Hint, max_wait_s: float, buffer_s: float = 0.0) -> float:
    """Seconds to sleep for ``Action.WAIT``: the hint and a margin, the margin cut at the limit."""
    wanted = hint.hint_s or 0.0
    return max(wanted, min(wanted + max(buffer_s, 0.0), max_wait_s))


def _should_retry(named: Mapping[str, str]) -> bool | None:
    return {"true": True, "false": False}.get(named.get("x-should-retry", "").lower())


def _pushback(text: str, says: bool | None) -> Hint:
    """gRPC A6: a negative or unreadable pushback means do not retry at all."""
    value = number(text)
    if value is None or not 0 <= value / 1000 <= LONGEST_S:
        return Hint(None, "grpc-retry-pushback-ms", False)
    return Hint(value / 1000, "grpc-retry-pushback-ms", says, exact=True)


def _candidates(
    named: Mapping[str, str], body: Any, now: datetime, status: int | None
) -> Iterator[tuple[str, float | None]]:
    for name in ("retry-after-ms", "x-ms-retry-after-ms"):
        value = _longest(named.get(name, ""))
        yield name, value / 1000 if value is not None else None
    yield "retry-after", _retry_after(named.get("retry-after", ""), now)
    tree = parse_body(body)
    yield from _body_fields(tree, now)
    if status in (None, 429):
        yield from _used_up(named, now)
        yield from _used_up(_forwarded_headers(tree), now)
    if status is None or status in (408, 409, 425, 429) or status >= 500:
        for text in _messages(tree):
            yield "body:message", in_prose(text, now)


def _longest(text: str) -> float | None:
    """The one number, or of several folded into one header the largest: each is a minimum wait."""
    parts = [number(part) for part in text[:1000].split(",")]
    return max((p for p in parts if p is not None), default=None)


def _retry_after(text: str, now: datetime) -> float | None:
    """RFC 9110 section 10.2.3, and what is sent in its place: fractions, units, a Unix time."""
    text = text.strip(' "')
    value = number(text)
    if value is not None:
        for units_a_second in (1.0, 1e3):
            from_now = value / units_a_second - now.timestamp()
            if abs(from_now) < DAY_S:
                return from_now
        return value
    moment = instant(text)
    if moment is not None:
        # A date in the past is a zero wait; a negative number is no wait at all.
        return max((moment - now).total_seconds(), 0.0)
    if "," in text:
        # Two headers folded into one: both minimum waits hold, so the longer one does.
        dates = [instant(part) for part in _FOLDED_DATES.findall(text[:1000])]
        waits = [(date - now).total_seconds() for date in dates if date is not None]
        return _longest(text) if not waits else max(*waits, 0.0)
    return duration(text)


def _used_up(named: Mapping[str, str], now: datetime) -> Iterator[tuple[str, float | None]]:
    """The latest reset among buckets that are empty (or say nothing of what remains).

    Reset headers stand on every answer, so that of a bucket with something left is no hint.
    """
    found = [
        (bucket.reset_s, source)
        for source, bucket in buckets_of(named, now)
        if bucket.reset_s is not None and (bucket.remaining is None or bucket.used_up)
    ]
    if found:
        seconds, source = max(found)
        yield source, seconds


_FOLDED_DATES = re.compile(r"[A-Za-z]{3,9}, [^,]{1,40}")
# Names without case and punctuation: retry_after_ms, retryAfterMs and Retry-After-Ms are one.
_WAITS = {
    **dict.fromkeys(("retryafterms", "retryaftermilliseconds"), 1e-3),
    **dict.fromkeys(("retryafter", "retryafters", "retryaftersec", "retryafterseconds"), 1.0),
    **dict.fromkeys(("resetsinseconds", "resetafterseconds", "quotaresetdelay"), 1.0),
    "estimatedtime": 1.0,  # until a model is loaded
}
_MOMENTS = frozenset({"resetsat", "resetat", "quotaresettimestamp"})


def _body_fields(tree: Any, now: datetime) -> Iterator[tuple[str, float | None]]:
    """google.rpc.RetryInfo (a protobuf duration, up to nine decimals), then plain fields, those
    that name a wait before those that name a moment.
    """
    found = list(objects(tree))
    for item in found:
        if "retryDelay" in item:
            yield "body:RetryInfo", _protobuf_duration(item["retryDelay"])
    named = [
        (name, normal(name), value)
        for item in found
        for name, value in islice(item.items(), 50)
        if isinstance(name, str)
    ]
    for name, key, value in named:
        if key in _WAITS:
            yield f"body:{name}", _wait(value, _WAITS[key], now)
    for name, key, value in named:
        if key in _MOMENTS:
            yield f"body:{name}", _moment(value, now)


def _wait(value: Any, seconds: float, now: datetime) -> float | None:
    if isinstance(value, str):
        return _retry_after(value, now) if seconds == 1.0 else _scaled(number(value), seconds)
    return _scaled(quantity(value), seconds)


def _scaled(value: float | None, seconds: float) -> float | None:
    return None if value is None else value * seconds


def _moment(value: Any, now: datetime) -> float | None:
    number_of = quantity(value)
    if number_of is not None:
        return seconds_until(repr(number_of), now) if number_of >= 1e9 else None
    moment = instant(value) if isinstance(value, str) else None
    return None if moment is None else (moment - now).total_seconds()


def _protobuf_duration(value: Any) -> float | None:
    if isinstance(value, Mapping):
        whole, nanos = quantity(value.get("seconds", 0)), quantity(value.get("nanos", 0))
        return None if whole is None or nanos is None else whole + nanos / 1e9
    found = duration(value) if isinstance(value, str) else None
    return quantity(value) if found is None else found


def _forwarded_headers(tree: Any) -> dict[str, str]:
    """Rate-limit headers that an aggregator repeats inside its error body."""
    for item in objects(tree):
        inner = item.get("headers")
        if isinstance(inner, Mapping):
            return fold_names(inner)
    return {}


def _messages(tree: Any) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    for item in objects(tree):
        for name in ("message", "detail", "raw"):
            if isinstance(item.get(name), str):
                yield item[name]
