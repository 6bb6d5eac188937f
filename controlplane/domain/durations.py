"""Durations and instants as providers write them: ``1.5``, ``6m0s``, ``PT30S``, ``00:01:30``, an
HTTP-date, RFC 3339.

Invariant: every reader returns a finite number of seconds or None; none raises, whatever the text.
Negative values are returned as they stand (callers decide), in seconds; instants as aware UTC.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, timezone
from operator import mul

_LONGEST = 128
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
# "ms" stands before "m" and "s": reading 17ms as 17 minutes is the classic fault.
_UNITS = {
    "d": 86400.0, "day": 86400.0, "days": 86400.0,
    "h": 3600.0, "hr": 3600.0, "hrs": 3600.0, "hour": 3600.0, "hours": 3600.0,
    "ms": 1e-3, "msec": 1e-3, "millisecond": 1e-3, "milliseconds": 1e-3,
    "m": 60.0, "min": 60.0, "mins": 60.0, "minute": 60.0, "minutes": 60.0,
    "us": 1e-6, "µs": 1e-6, "ns": 1e-9,
    "s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0,
}  # fmt: skip
_UNIT = "|".join(sorted(_UNITS, key=len, reverse=True))
_PART = re.compile(rf"([0-9]+(?:\.[0-9]+)?)\s*({_UNIT})(?![a-zµ])")
_GO = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|µs|us|ns|d|h|m|s)")
_ISO = re.compile(
    r"p(?:([0-9]{1,9})d)?(?:t(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9}(?:\.[0-9]+)?)s)?)?"
)
_CLOCK_LENGTH = re.compile(r"(?:([0-9]{1,6})\.)?([0-9]{1,3}):([0-9]{2}):([0-9]{2}(?:\.[0-9]+)?)")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = "mon|tue|wed|thu|fri|sat|sun"
_LONG_DAYS = "monday|tuesday|wednesday|thursday|friday|saturday|sunday"
_CLOCK = r"(?P<h>\d{2}):(?P<mi>\d{2}):(?P<s>\d{2})"
_ZONE = r"(?: (?P<zone>gmt|utc|z|[+-]\d{4}))?"
_MONTH = r"(?P<mo>[a-z]{3})"
# The three forms of RFC 9110 section 5.6.7; a missing zone is read as GMT, as that section says.
_DATES = tuple(
    re.compile(form)
    for form in (
        rf"(?:(?:{_DAYS})(?:, ?| ))?(?P<d>\d{{1,2}}) {_MONTH} (?P<y>\d{{4}}) {_CLOCK}{_ZONE}",
        rf"(?:{_LONG_DAYS}|{_DAYS}), (?P<d>\d{{2}})-{_MONTH}-(?P<y>\d{{2,4}}) {_CLOCK}{_ZONE}",
        rf"(?:{_DAYS}) {_MONTH} (?P<d>\d{{1,2}}) {_CLOCK}{_ZONE} (?P<y>\d{{4}})",
    )
)


def number(text: str) -> float | None:
    """A plain finite decimal number; None for nan, inf, empty text and everything else."""
    text = text.strip()
    if len(text) > _LONGEST or not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def quantity(value: object) -> float | None:
    """A finite number out of a JSON value: a number, or text that holds a plain one."""
    if isinstance(value, str):
        return number(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def duration(text: str) -> float | None:
    """Seconds of ``1m30s``, ``579ms``, ``2 minutes``, ``PT30S`` or a clock (``00:01:30``, with days
    ``5.03:23:11``); None for anything else.
    """
    text = text.strip().lower()
    if not text or len(text) > _LONGEST:
        return None
    sign, text = (-1.0, text[1:]) if text[0] == "-" else (1.0, text)
    days = _ISO.fullmatch(text) or _CLOCK_LENGTH.fullmatch(text)
    if days is not None:
        parts = [float(part) for part in days.groups(default="0")]
        return (
            sign * sum(map(mul, parts, (86400.0, 3600.0, 60.0, 1.0)))
            if any(days.groups())
            else None
        )
    text = text.replace(" and ", " ")
    for part in (_GO, _PART):
        total, position = 0.0, 0
        for match in part.finditer(text):
            if text[position : match.start()].strip(" ,"):
                break
            total += float(match[1]) * _UNITS[match[2]]
            position = match.end()
        if position and position == len(text):
            return sign * total if math.isfinite(total) else None
    return None


def instant(text: str) -> datetime | None:
    """The moment of an HTTP-date (all three forms) or an RFC 3339 timestamp."""
    text = " ".join(text.split()) if len(text) <= _LONGEST else ""
    for form in _DATES:
        match = form.fullmatch(text.lower())
        if match:
            return _http_date(match)
    if not re.match(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:", text):
        return None
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _http_date(match: re.Match[str]) -> datetime | None:
    year = int(match["y"])
    if year < 100:
        # The RFC 850 form has two digits; servers speak of about now, so 23 is 2023.
        year += 2000 if year < 70 else 1900
    zone = match["zone"] or "gmt"
    offset = timedelta()
    if zone[0] in "+-":
        offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[3:5]))
        offset = -offset if zone[0] == "-" else offset
    try:
        moment = datetime(
            year,
            _MONTHS.index(match["mo"]) + 1,
            int(match["d"]),
            int(match["h"]),
            int(match["mi"]),
            min(int(match["s"]), 59),
            tzinfo=timezone(offset),
        )
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def seconds_until(text: str, now: datetime) -> float | None:
    """Seconds from ``now`` to a reset written in any of the ways providers use.

    A bare number of at least 10^9 is a Unix time (10^12: in milliseconds, 10^15: microseconds,
    10^18: nanoseconds); a smaller one is a duration in seconds. Units make it a duration; otherwise
    it is a date.
    """
    value = number(text)
    if value is None:
        length = duration(text)
        if length is not None:
            return length
        moment = instant(text)
        return (moment - now).total_seconds() if moment else None
    for scale, floor in ((1e9, 1e18), (1e6, 1e15), (1e3, 1e12), (1.0, 1e9)):
        if value >= floor:
            return value / scale - now.timestamp()
    return value


_LENGTH = r"[0-9]+(?:\.[0-9]+)?\s?[a-zµ]+"
_LENGTHS = rf"{_LENGTH}(?:[ ,]{{0,2}}(?:and )?{_LENGTH}){{0,3}}"
_PROSE = re.compile(
    r"\b(?:(?:try|retry(?:ing)?|retried|wait)"
    r"(?: (?:again|your request|the request|for|another|about|at least|in|after)){0,3}"
    r"|(?:resets?|available|replenished|refreshed)(?: again)? (?:in|after)(?: about)?):? "
    rf"((?:[0-9]+\.)?[0-9]{{1,3}}:[0-9]{{2}}:[0-9]{{2}}|{_LENGTHS})"
)
# Only with its zone: what has none may be the time of any place.
_PROSE_MOMENT = re.compile(
    r"\b(?:try again|resets?|available|replenished|refreshed)(?: again)? (?:at|on|after) "
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}t[0-9:.]{5,16}(?:z|[+-][0-9]{2}:?[0-9]{2}))"
)


def in_prose(text: str, now: datetime) -> float | None:
    """The wait that a message names ("try again in 579ms", "wait 17 seconds"), in seconds."""
    text = text[:4000].lower()
    match = _PROSE.search(text)
    if match is not None:
        return duration(match[1])
    match = _PROSE_MOMENT.search(text)
    moment = instant(match[1]) if match is not None else None
    return None if moment is None else max((moment - now).total_seconds(), 0.0)
