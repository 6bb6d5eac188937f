"""What is left of a key's limits: the remaining and reset headers that stand on every answer.

Good answers pace the next calls of their key with these; on a 429 they stand in for a missing
Retry-After. Times are seconds.

Invariant: nothing here raises; ``reset_s`` and ``rest_s`` are from 0 to ``LONGEST_S``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.domain.durations import instant, number, seconds_until

DAY_S = 86400.0
LONGEST_S = 31 * DAY_S
"""No allowance takes longer than a month to come back; what says so is not understood."""
_STYLES = (
    ("x-ratelimit-reset", "x-ratelimit-remaining"),
    ("ratelimit-reset", "ratelimit-remaining"),
    ("x-rate-limit-reset", "x-rate-limit-remaining"),
)
# The IETF's one field: of each policy what remains (r) and in how many seconds it resets (t); until
# draft 7 it was one policy with whole words and commas.
_POLICY = re.compile(r'"([^"]{0,64})"((?:\s*;\s*[a-z]+\s*=\s*[^;,"]{1,64})+)')
_MEMBER = re.compile(r"\b(r|t|remaining|reset)\s*=\s*([0-9]{1,18}(?:\.[0-9]{1,9})?)(?![^\s;,])")
_MOST_POLICIES = 20


@dataclass(frozen=True, slots=True)
class Bucket:
    """One limit of a key as an answer reported it; ``reset_s`` seconds until it is full again."""

    name: str
    remaining: float | None
    reset_s: float | None

    @property
    def used_up(self) -> bool:
        """Known to be empty; some servers count on below zero."""
        return self.remaining is not None and self.remaining <= 0


@dataclass(frozen=True, slots=True)
class Pace:
    """What is left of a key's limits after an answer."""

    buckets: tuple[Bucket, ...]

    @property
    def rest_s(self) -> float:
        """Seconds for which the key's next call would certainly be refused; 0 when it may go."""
        return max((b.reset_s or 0.0 for b in self.buckets if b.used_up), default=0.0)


def remaining(headers: Mapping[str, Any], *, now: datetime) -> Pace | None:
    """What an answer's rate-limit headers say is left; None when it carries none."""
    named = fold_names(headers)
    buckets = tuple(bucket for _, bucket in buckets_of(named, server_clock(named, now)))
    return Pace(buckets) if buckets else None


def fold_names(headers: Mapping[str, Any]) -> dict[str, str]:
    """Header names in lower case, values as stripped text; of a repeated one all, with commas."""
    named: dict[str, str] = {}
    for name, value in headers.items():
        text = value.strip() if isinstance(value, str) else _text(value)
        key = str(name).lower()
        named[key] = f"{named[key]}, {text}" if key in named else text
    return named


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value[:20]))
    return (value.decode("latin-1") if isinstance(value, bytes) else str(value)).strip()


def server_clock(named: Mapping[str, str], now: datetime) -> datetime:
    """The answer's own ``Date`` when it is within a day of ``now``, else ``now``."""
    moment = instant(named.get("date", ""))
    return moment if moment and abs((moment - now).total_seconds()) < DAY_S else now


def buckets_of(named: Mapping[str, str], now: datetime) -> Iterator[tuple[str, Bucket]]:
    """(reset header, bucket) of each limit, in OpenAI's, Anthropic's and the plain spelling."""
    for name in named:
        if "ratelimit" not in name and "rate-limit" not in name:
            continue
        if name == "ratelimit":
            yield from ((name, bucket) for bucket in _ietf_buckets(named[name]))
            continue
        if name.startswith("anthropic-ratelimit-") and name.endswith("-reset"):
            stem = name.removesuffix("-reset")
            if named.get(f"{stem}-status", "").startswith("allowed"):
                continue  # a subscription window that is not the one in force
            left = named.get(f"{stem}-remaining")
            label = stem.removeprefix("anthropic-ratelimit-")
        else:
            for reset, rest in _STYLES:
                if name == reset or name.startswith(f"{reset}-"):
                    left = named.get(name.replace(reset, rest, 1))
                    label = name.removeprefix(reset).lstrip("-") or "requests"
                    break
            else:
                continue
        remains = number(left) if left is not None else None
        yield name, Bucket(label, remains, _bounded(seconds_until(named[name], now)))


def _ietf_buckets(text: str) -> Iterator[Bucket]:
    text = text[:2000]
    policies = [found.groups() for found in _POLICY.finditer(text)][:_MOST_POLICIES]
    for label, members in policies or [("requests", text)]:
        said: dict[str, str] = dict(_MEMBER.findall(members))
        reset = said.get("t", said.get("reset"))
        if reset is not None:
            left = said.get("r", said.get("remaining", ""))
            yield Bucket(label, number(left), _bounded(number(reset)))


def _bounded(seconds: float | None) -> float | None:
    return None if seconds is None or seconds > LONGEST_S else max(seconds, 0.0)
