"""Telemetry of a fleet for the benchmarks: 12 circuits, 20 gateways, 50 tenants x 6 routes by Zipf.

3 % of the events are transitions and outcomes. Deterministic but for the times, which lie in the
minute before the moment that is given.
"""

from __future__ import annotations

import itertools
import random
import uuid
from datetime import datetime, timedelta

import msgspec

from controlplane.wire.events import AnyEvent, Attempt, Outcome, Tokens, Transition, mint_id

GATEWAYS = 20
MODELS = (
    ("openai", "gpt-4o"),
    ("openai", "gpt-4o-mini"),
    ("anthropic", "claude-sonnet-4-5"),
    ("google", "gemini-2.5-flash"),
)
CIRCUITS = tuple((*model, region) for model in MODELS for region in ("", "eu", "us"))
TENANTS = tuple(f"tenant-{i:02d}" for i in range(50))
ROUTES = tuple(f"route-{i}" for i in range(6))


def zipf(count: int) -> tuple[float, ...]:
    """Cumulative weights 1, 1/2, 1/3 …"""
    return tuple(itertools.accumulate(1 / (i + 1) for i in range(count)))


_CIRCUIT_W, _TENANT_W, _ROUTE_W = map(zipf, (len(CIRCUITS), len(TENANTS), len(ROUTES)))


class Fleet:
    """Makes bodies of batches; every call makes new events and the next seq of its instance."""

    def __init__(self, seed: int = 20261130) -> None:
        self._random = random.Random(seed)
        self._boots = [uuid.UUID(int=self._random.getrandbits(128)) for _ in range(GATEWAYS)]
        self._seqs = [0] * GATEWAYS
        self._numbers: dict[tuple[int, int], int] = {}

    def body(self, gateway: int, events: int, until: datetime) -> bytes:
        """One batch of ``gateway`` as JSON."""
        self._seqs[gateway] += 1
        head = {
            "instance": self._boots[gateway],
            "slot": f"host-{gateway}/0",
            "seq": self._seqs[gateway],
            "sent_at": until,
            "events": self._events(gateway, events, until),
        }
        return msgspec.json.encode(head)

    def _events(self, gateway: int, count: int, until: datetime) -> list[AnyEvent]:
        draw = self._random.random
        begin = until - timedelta(seconds=30)
        last = self._attempt(begin)
        made: list[AnyEvent] = [last]
        for place in range(1, count):
            at = begin + timedelta(microseconds=30_000_000 * place // count)
            kind = draw()
            if kind < 0.015:
                made.append(self._outcome(at, last))
            elif kind < 0.03:
                made.append(self._transition(gateway, at))
            else:
                last = self._attempt(at)
                made.append(last)
        return made

    def _id(self, at: datetime) -> uuid.UUID:
        return mint_id(at, self._random.getrandbits(74))

    def _attempt(self, at: datetime) -> Attempt:
        chance = self._random
        provider, model, region = chance.choices(CIRCUITS, cum_weights=_CIRCUIT_W)[0]
        good = chance.random() < 0.95
        ended = int(chance.lognormvariate(7.5, 0.6))
        tokens = Tokens(
            input=chance.randint(50, 4000),
            cached_read=chance.randint(0, 2000),
            output=chance.randint(10, 900),
        )
        return Attempt(
            id=self._id(at),
            occurred_at=at,
            request=self._id(at),
            ordinal=1,
            role="first" if chance.random() < 0.95 else "retry",
            provider=provider,
            model=model,
            region=region,
            served_model=model,
            key="key-1",
            tenant=chance.choices(TENANTS, cum_weights=_TENANT_W)[0],
            route=chance.choices(ROUTES, cum_weights=_ROUTE_W)[0],
            status=200 if good else 503,
            verdict="success" if good else "retryable",
            reason="" if good else "overloaded",
            counts_against_breaker=not good,
            first_byte_ms=ended // 3,
            ended_ms=ended,
            tokens=tokens if good else None,
            billing="billed" if good else "not_billed",
            served=good,
            generation=12,
        )

    def _outcome(self, at: datetime, last: Attempt) -> Outcome:
        return Outcome(
            id=self._id(at),
            occurred_at=at,
            request=last.request,
            tenant=last.tenant,
            route=last.route,
            success=last.served,
            started_at=last.occurred_at,
            ended_at=at,
            latency_ms=last.ended_ms,
        )

    def _transition(self, gateway: int, at: datetime) -> Transition:
        circuit = self._random.randrange(len(CIRCUITS))
        number = self._numbers.get((gateway, circuit), 0) + 1
        self._numbers[gateway, circuit] = number
        provider, model, region = CIRCUITS[circuit]
        return Transition(
            id=self._id(at),
            occurred_at=at,
            provider=provider,
            model=model,
            region=region,
            number=number,
            from_state="Closed" if number % 2 else "Open",
            to_state="Open" if number % 2 else "Closed",
            cause="ConsecutiveFailures" if number % 2 else "ProbesSucceeded",
        )
