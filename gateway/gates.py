"""Every gate of one request's attempts, in their order, and what an open gate has taken.

Invariants: a refusal takes nothing; what a ``Pass`` has taken (the breaker's permit, a request and
tokens of the minute, pounds) is given back by exactly one of ``settle`` and ``release``. Nothing
here awaits, so nothing happens between the last question and the taking.

Order (design 4.4): rates, concurrency, key, cost, breaker and override.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from controlplane.domain.breaker import Permit
from controlplane.domain.ceiling import ZERO, Reservation
from controlplane.domain.circuit import Circuit
from controlplane.domain.gate import Gate, Refusal
from controlplane.domain.limits import RateLimit, Taken
from controlplane.domain.usage import Tokens
from controlplane.domain.verdict import Verdict
from controlplane.wire.events import Billing
from gateway.asked import Asked
from gateway.ceilings import Quote, Spending
from gateway.config import Key
from gateway.live import Live
from gateway.opaque import Opaque
from gateway.upstream import Upstream


@dataclass(slots=True)
class Pass:
    """One attempt that may go. Used once."""

    live: Live
    circuit: Circuit
    permit: Permit
    key: Key | None
    rates: list[tuple[RateLimit, Taken]] = field(default_factory=list)
    reserved: Reservation | None = None

    def settle(
        self,
        verdict: Verdict,
        tokens: Tokens | None,
        billing: Billing,
        now: float,
        duration_s: float | None,
    ) -> Verdict:
        """The attempt is over; returns the verdict as it counted."""
        # The permit first: a probe's must not be lost with a fault of what is counted.
        recorded = self.live.record(self.circuit, self.permit, verdict, now, duration_s)
        if self.rates or self.reserved is not None:
            self._count(tokens, billing, now)
        return recorded

    def release(self, now: float) -> None:
        """The attempt was not made."""
        for rate, taken in self.rates:
            rate.give_back(taken, now)
        if self.reserved is not None:
            self.reserved.settle(ZERO, now)
        self.live.release(self.circuit, self.permit, now)

    def _count(self, tokens: Tokens | None, billing: Billing, now: float) -> None:
        if billing == "unknown":
            return  # it may have been answered, and billed, in full: the estimates stand
        read, written = 0, 0
        if tokens is not None:
            read = (tokens.input or 0) + (tokens.cached_read or 0) + (tokens.cache_write or 0)
            written = tokens.output or 0
        for rate, taken in self.rates:
            rate.settle(taken, read + written, now)
        if self.reserved is not None:
            free = billing == "not_billed"
            cost = ZERO if free else self.reserved.price.cost(read, written)
            self.reserved.settle(cost, now)


class Gates:
    """Of one request."""

    __slots__ = ("_asked", "_live", "_low", "_spending", "_upstream")

    def __init__(
        self,
        live: Live,
        upstream: Upstream,
        asked: Asked | Opaque,
        tenant: str,
        task: str | None,
        *,
        low: bool = False,
    ) -> None:
        self._live = live
        self._upstream = upstream
        self._asked = asked
        self._low = low
        self._spending = Spending(live.ceilings, tenant, task) if live.ceilings.any else None

    def ask(self, circuit: Circuit, now: float) -> Pass | Refusal:
        """May the next attempt go to this circuit? A pass has to be settled or released."""
        live, provider = self._live, circuit.provider
        rate = live.rate(circuit, now)
        if rate is not None and (refusal := rate.refusal(self._tokens(), now)) is not None:
            return refusal
        places = live.places(provider)
        in_flight = self._upstream.in_flight(provider)
        if not places.admits(in_flight, urgent=False, low=self._low) and not (
            live.probes(circuit, now) and places.admits(in_flight, urgent=True)
        ):
            shed = self._low and places.admits(in_flight, urgent=False)
            return Refusal(Gate.CONCURRENCY, "low" if shed else "connections")
        key = live.key_for(provider, now, self._tokens)
        if isinstance(key, Refusal):
            return key
        quote = self._quote(circuit, now)
        if isinstance(quote, Refusal):
            return quote
        permit = live.admit(circuit, now)
        if isinstance(permit, Refusal):
            return permit
        passed = Pass(live, circuit, permit, key)
        for limit in (rate, live.key_rate(provider, key)):
            if limit is not None:
                passed.rates.append((limit, limit.take(self._tokens(), now)))
        if quote is not None:
            passed.reserved = quote.take(now)
        return passed

    def _quote(self, circuit: Circuit, now: float) -> Quote | Refusal | None:
        if self._spending is None:
            return None
        return self._spending.ask(circuit, *self._estimate(), now)

    def _tokens(self) -> int:
        return sum(self._estimate())

    def _estimate(self) -> tuple[int, int]:
        return self._asked.prompt_estimate(), self._asked.output_limit()
