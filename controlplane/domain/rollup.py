"""Which counters of its minute an attempt or a refusal adds to.

Invariant: adding is commutative and associative, so the sum over any batches in any order equals
the sum over the raw rows. An attempt belongs to the UTC minute in which it was begun, a refusal to
the minute in which it was refused. Milliseconds are whole, pounds exact (design 4.7, 6).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import UTC, datetime
from decimal import Decimal

from controlplane.domain.pricing import EXACT

_REFUSED = {
    "breaker": "refused_breaker",
    "override": "refused_override",
    "budget": "refused_budget",
}
_ROLES = {
    "first": "firsts",
    "retry": "retries",
    "fallback": "fallbacks",
    "redelivery": "redeliveries",
}
_MONEY = ("cost_gbp", "wasted_gbp")
_ZERO = Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The counters of one gateway, circuit and minute. ``failed``: counted against the breaker;
    ``wasted_*``: of attempts that ended not served; ``unpriced``: attempts without a known cost;
    ``would_refuse``: calls that only an ObserveOnly override let through.
    """

    attempts: int = 0
    firsts: int = 0
    retries: int = 0
    fallbacks: int = 0
    redeliveries: int = 0
    succeeded: int = 0
    failed: int = 0
    served: int = 0
    refused_breaker: int = 0
    refused_override: int = 0
    refused_budget: int = 0
    refused_other: int = 0
    would_refuse: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    wasted_tokens: int = 0
    cost_gbp: Decimal = _ZERO
    wasted_gbp: Decimal = _ZERO
    unpriced: int = 0
    ended_ms_sum: int = 0
    ended_count: int = 0

    def __add__(self, other: Counts) -> Counts:
        # The usual decimal context would round a long sum of pounds.
        exact = {n: EXACT.add(getattr(self, n), getattr(other, n)) for n in _MONEY}
        whole = {n: getattr(self, n) + getattr(other, n) for n in COUNTERS if n not in _MONEY}
        return Counts(**whole, **exact)  # type: ignore[arg-type]  # each dict has its own fields


COUNTERS = tuple(field.name for field in fields(Counts))


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Disjoint counts, already 0 where the provider said nothing."""

    input: int = 0
    cached_read: int = 0
    cache_write: int = 0
    output: int = 0

    @property
    def total(self) -> int:
        """All tokens that were read or written."""
        return self.input + self.cached_read + self.cache_write + self.output


def minute_of(at: datetime) -> datetime:
    """The UTC minute that ``at`` lies in."""
    return at.astimezone(UTC).replace(second=0, microsecond=0)


def of_attempt(
    *,
    role: str,
    verdict: str,
    counts_against_breaker: bool,
    served: bool,
    tokens: TokenCounts,
    cost_gbp: Decimal | None,
    ended_ms: int | None,
) -> Counts:
    """What one attempt adds. One of unknown cost adds to ``unpriced``, never £0 in silence."""
    cost = cost_gbp if cost_gbp is not None else _ZERO
    return Counts(
        attempts=1,
        **{_ROLES[role]: 1},
        succeeded=int(verdict == "success"),
        failed=int(counts_against_breaker),
        served=int(served),
        input_tokens=tokens.input,
        cached_tokens=tokens.cached_read,
        cache_write_tokens=tokens.cache_write,
        output_tokens=tokens.output,
        wasted_tokens=0 if served else tokens.total,
        cost_gbp=cost,
        wasted_gbp=_ZERO if served else cost,
        unpriced=int(cost_gbp is None),
        ended_ms_sum=ended_ms or 0,
        ended_count=int(ended_ms is not None),
    )


def of_refusal(*, gate: str, would_have: bool) -> Counts:
    """What one refusal adds; under ObserveOnly (``would_have``) nothing was refused."""
    name = "would_refuse" if would_have else _REFUSED.get(gate, "refused_other")
    return Counts(**{name: 1})  # type: ignore[arg-type]  # the names are ints' alone
