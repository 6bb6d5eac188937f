"""Which sums of its minute an attempt, a refusal or a request's end adds to.

Invariant: adding is commutative and associative, so the sums over any batches in any order equal
the sums over the raw rows. An attempt belongs to the UTC minute in which it was begun, a refusal to
the one in which it was refused, a request to the one in which it ended. Milliseconds are whole,
pounds exact (design 4.7, 6).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Protocol

from controlplane.domain.histogram import bucket_of
from controlplane.domain.pricing import EXACT, Cost, CostStatus

# failed: counted against the breaker. unpriced: of unknown cost, whatever the reason; the
# cost_* counters part them by status. wasted_*: of attempts that ended not served. would_refuse:
# calls that only an ObserveOnly override let through. refused_other: by any gate but the first
# three, which the counters after it name.
COUNTERS = (
    *("attempts", "firsts", "retries", "fallbacks", "redeliveries", "rerouted"),
    *("succeeded", "retryable", "permanent", "partial"),
    *("client_cancelled", "client_deadline", "local_fault", "failed", "served"),
    *("refused_breaker", "refused_override", "refused_budget", "refused_other"),
    *("refused_rate", "refused_concurrency", "refused_key", "refused_deadline"),
    *("refused_policy", "refused_cost", "would_refuse"),
    *("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens"),
    *("reasoning_tokens", "wasted_tokens"),
    *("unpriced", "wasted_unpriced", "cost_priced", "cost_estimated", "cost_unpriced"),
    *("cost_not_billed", "cost_unknown", "cost_invalid_usage"),
    *("ended_ms_sum", "ended_count"),
)
MONEY = ("cost_gbp", "wasted_gbp", "estimated_gbp", "wasted_estimated_gbp")

FIVE_MINUTES = timedelta(minutes=5)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_AT = {name: place for place, name in enumerate(COUNTERS)}
_ROLE = {
    "first": _AT["firsts"],
    "retry": _AT["retries"],
    "fallback": _AT["fallbacks"],
    "redelivery": _AT["redeliveries"],
}
_VERDICT = {
    "success": _AT["succeeded"],
    **{
        name: _AT[name]
        for name in (
            *("retryable", "permanent", "partial"),
            *("client_cancelled", "client_deadline", "local_fault"),
        )
    },
}
_STATUS = {status: _AT[f"cost_{status.value}"] for status in CostStatus}
_FIRST_GATES = frozenset({"breaker", "override", "budget"})
_REROUTED, _FAILED, _SERVED = _AT["rerouted"], _AT["failed"], _AT["served"]
_INPUT, _CACHED, _WRITE = _AT["input_tokens"], _AT["cached_tokens"], _AT["cache_write_tokens"]
_OUTPUT, _REASONING, _WASTED = _AT["output_tokens"], _AT["reasoning_tokens"], _AT["wasted_tokens"]
_UNPRICED, _WASTED_UNPRICED = _AT["unpriced"], _AT["wasted_unpriced"]
_ENDED_SUM, _ENDED = _AT["ended_ms_sum"], _AT["ended_count"]
_ZERO = Decimal(0)


class TokenCounts(Protocol):
    """Disjoint token counts; None = not known."""

    @property
    def input(self) -> int | None: ...
    @property
    def cached_read(self) -> int | None: ...
    @property
    def cache_write(self) -> int | None: ...
    @property
    def output(self) -> int | None: ...
    @property
    def reasoning_in_output(self) -> int | None: ...


class AttemptLike(Protocol):
    """What is counted of an attempt."""

    @property
    def role(self) -> str: ...
    @property
    def rerouted(self) -> bool: ...
    @property
    def verdict(self) -> str: ...
    @property
    def counts_against_breaker(self) -> bool: ...
    @property
    def served(self) -> bool: ...
    @property
    def tokens(self) -> TokenCounts | None: ...
    @property
    def first_byte_ms(self) -> int | None: ...
    @property
    def ended_ms(self) -> int | None: ...


class MinuteSums:
    """The sums of one gateway, circuit and minute. Lists, because an event adds to ten of them."""

    __slots__ = ("counts", "first_byte", "latency", "money")

    def __init__(self) -> None:
        self.counts = [0] * len(COUNTERS)
        self.money = [_ZERO] * len(MONEY)
        self.latency: dict[int, int] = {}
        self.first_byte: dict[int, int] = {}

    def __getitem__(self, name: str) -> int:
        """One counter, by its name."""
        return self.counts[_AT[name]]

    def add_attempt(self, attempt: AttemptLike, cost: Cost) -> None:
        """Add one attempt. One of unknown cost adds to ``unpriced``, never £0 in silence."""
        counts = self.counts
        counts[0] += 1
        counts[_ROLE[attempt.role]] += 1
        counts[_VERDICT[attempt.verdict]] += 1
        counts[_STATUS[cost.status]] += 1
        if attempt.rerouted:
            counts[_REROUTED] += 1
        if attempt.counts_against_breaker:
            counts[_FAILED] += 1
        if attempt.served:
            counts[_SERVED] += 1
        if attempt.tokens is not None:
            self._add_tokens(attempt.tokens, wasted=not attempt.served)
        self._add_cost(cost, wasted=not attempt.served)
        if attempt.ended_ms is not None:
            counts[_ENDED_SUM] += attempt.ended_ms
            counts[_ENDED] += 1
            bucket = bucket_of(attempt.ended_ms)
            self.latency[bucket] = self.latency.get(bucket, 0) + 1
        if attempt.first_byte_ms is not None:
            bucket = bucket_of(attempt.first_byte_ms)
            self.first_byte[bucket] = self.first_byte.get(bucket, 0) + 1

    def add_refusal(self, *, gate: str, would_have: bool) -> None:
        """Add one refusal; under ObserveOnly (``would_have``) nothing was refused."""
        if would_have:
            self.counts[_AT["would_refuse"]] += 1
            return
        self.counts[_AT[f"refused_{gate}"]] += 1
        if gate not in _FIRST_GATES:
            self.counts[_AT["refused_other"]] += 1

    def _add_tokens(self, tokens: TokenCounts, *, wasted: bool) -> None:
        counts = self.counts
        read, cached = tokens.input or 0, tokens.cached_read or 0
        written, output = tokens.cache_write or 0, tokens.output or 0
        counts[_INPUT] += read
        counts[_CACHED] += cached
        counts[_WRITE] += written
        counts[_OUTPUT] += output
        counts[_REASONING] += tokens.reasoning_in_output or 0
        if wasted:
            counts[_WASTED] += read + cached + written + output

    def _add_cost(self, cost: Cost, *, wasted: bool) -> None:
        money, gbp = self.money, cost.gbp
        if gbp is None:
            self.counts[_UNPRICED] += 1
            if wasted:
                self.counts[_WASTED_UNPRICED] += 1
            return
        if not gbp:
            return
        # The usual decimal context would round a long sum of pounds.
        money[0] = EXACT.add(money[0], gbp)
        estimated = cost.status is CostStatus.ESTIMATED
        if wasted:
            money[1] = EXACT.add(money[1], gbp)
        if estimated:
            money[2] = EXACT.add(money[2], gbp)
        if wasted and estimated:
            money[3] = EXACT.add(money[3], gbp)


class RequestSums:
    """The ends of requests of one gateway in one minute: they have no circuit of their own."""

    __slots__ = ("latency", "requests", "succeeded", "waited")

    def __init__(self) -> None:
        self.requests = self.succeeded = 0
        self.latency: dict[int, int] = {}
        self.waited: dict[int, int] = {}

    def add(self, *, success: bool, latency_ms: int | None, waited_ms: int) -> None:
        """Add one request's end. ``waited_ms`` is its age in queues: admission and deferral."""
        self.requests += 1
        self.succeeded += success
        if latency_ms is not None:
            bucket = bucket_of(latency_ms)
            self.latency[bucket] = self.latency.get(bucket, 0) + 1
        bucket = bucket_of(waited_ms)
        self.waited[bucket] = self.waited.get(bucket, 0) + 1


def minute_of(at: datetime) -> datetime:
    """The UTC minute that ``at`` lies in."""
    return at.astimezone(UTC).replace(second=0, microsecond=0)


def hour_of(at: datetime) -> datetime:
    """The UTC hour that ``at`` lies in."""
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def floor_to(step: timedelta, at: datetime) -> datetime:
    """The last whole multiple of ``step`` since 1970 that is not after ``at``; of UTC."""
    return at.astimezone(UTC) - (at - EPOCH) % step


def is_of_fives(start: datetime, step: timedelta) -> bool:
    """Whether steps of this length from ``start`` on are whole five minutes of the clock."""
    return not step % FIVE_MINUTES and floor_to(FIVE_MINUTES, start) == start
