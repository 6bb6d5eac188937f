"""What is left of a key's limits: the remaining and reset headers that stand on every answer.

Good answers pace the next calls of their key with these; on a 429 they stand in for a missing
Retry-After. Times are seconds.

Invariant: nothing here raises; ``reset_s`` and ``rest_s`` are from 0 to ``LONGEST_S``.
"""

from __future__ import annotations

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
)


@dataclass(frozen=True, slots=True)
class Bucket:
    """One limit of a key as an answer reported it; ``reset_s`` seconds until it is full again."""

    name: str
    remaining: float | None
    reset_s: float | None


@dataclass(frozen=True, slots=True)
class Pace:
    """What is left of a key's limits after an answer."""

    buckets: tuple[Bucket, ...]

    @property
    def rest_s(self) -> float:
        """Seconds for which the key's next call would certainly be refused; 0 when it may go."""
        return max((b.reset_s or 0.0 for b in self.buckets if b.remaining == 0), default=0.0)


def remaining(headers: Mapping[str, Any], *, now: datetime) -> Pace | None:
    """What an answer's rate-limit headers say is left; None when it carries none."""
    named = fold_names(headers)
    buckets = tuple(bucket for _, bucket in buckets_of(named, server_clock(named, now)))
    return Pace(buckets) if buckets else None


def fold_names(headers: Mapping[str, Any]) -> dict[str, str]:
    """Header names in lower case, values as stripped text."""
    return {str(name).lower(): str(value).strip() for name, value in headers.items()}


def server_clock(named: Mapping[str, str], now: datetime) -> datetime:
    """The answer's own ``Date`` when it is within a day of ``now``, else ``now``."""
    moment = instant(named.get("date", ""))
    return moment if moment and abs((moment - now).total_seconds()) < DAY_S else now


def buckets_of(named: Mapping[str, str], now: datetime) -> Iterator[tuple[str, Bucket]]:
    """(reset header, bucket) of each limit, in OpenAI's, Anthropic's and the plain spelling."""
    for name in named:
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
        seconds = seconds_until(named[name], now)
        if seconds is not None and seconds > LONGEST_S:
            seconds = None
        yield (
            name,
            Bucket(
                label,
                number(left) if left is not None else None,
                None if seconds is None else max(seconds, 0.0),
            ),
        )
