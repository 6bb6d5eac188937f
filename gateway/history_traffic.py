"""A simulated past: what one instance would have reported of one week.

Invariant: a stream's events depend on nothing but its name and the numbers it was asked for, not on
the clock or the process, so that generating a week again gives the same ids, the same batches and
the same bytes. Times are aware UTC, whole milliseconds.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any
from zoneinfo import ZoneInfo

from controlplane.domain.calendar import Week
from controlplane.wire.events import (
    AnyEvent,
    Attempt,
    Batch,
    Billing,
    Counters,
    Gate,
    Outcome,
    Refusal,
    Role,
    Tokens,
    Transition,
    VerdictKind,
    mint_id,
)
from gateway.history_brownout import Brownout, State
from gateway.history_routes import ROUTES, Route, Target

BATCH_EVENTS = 4000
# Shares of a day's traffic by local hour, and of a week's by weekday: mostly offices.
_HOURS = (2, 1, 1, 1, 1, 2, 4, 8, 14, 19, 21, 20, 17, 19, 21, 20, 17, 13, 9, 7, 6, 5, 4, 3)
_WEEKDAYS = (20, 21, 21, 20, 18, 7, 6)


_TENANTS = ("shop", "support", "back-office", "research")
# Cumulated, because ``choices`` would add them up again for each of half a million draws.
_TENANT_SHARES = (46, 77, 92, 100)
# verdict, reason, status, counts against the breaker, share of the failures, billing
_FAULTS: tuple[tuple[VerdictKind, str, int | None, bool, float, Billing], ...] = (
    ("retryable", "overloaded", 503, True, 0.44, "not_billed"),
    ("retryable", "rate_limited", 429, True, 0.2, "not_billed"),
    ("retryable", "timeout", None, True, 0.22, "unknown"),
    ("partial", "stream_cut", 200, True, 0.14, "billed"),
)
_QUIET_FAILURES, _BROWNOUT_FAILURES = 0.008, 0.55


@dataclass(frozen=True, slots=True)
class Stream:
    """One instance of a simulated gateway in one week."""

    gateway: str
    worker: int
    week: Week
    zone: ZoneInfo
    tasks: int

    @property
    def name(self) -> str:
        """What everything random of it is drawn from."""
        return f"{self.gateway}/{self.worker}/{self.week}/{self.zone.key}/{self.tasks}"

    @property
    def boot(self) -> uuid.UUID:
        """Its boot id: one for each week, so that each week's batches count from 1."""
        return uuid.UUID(bytes=sha256(self.name.encode()).digest()[:16])

    def batches(self) -> Iterator[Batch]:
        """Its week as batches with fixed numbers, oldest first."""
        events = _Instance(self).events()
        for seq, first in enumerate(range(0, len(events), BATCH_EVENTS), start=1):
            part = events[first : first + BATCH_EVENTS]
            yield Batch(
                instance=self.boot,
                slot=f"{self.gateway}/{self.worker}",
                seq=seq,
                sent_at=part[-1].occurred_at,
                events=part,
            )


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the events of one request share."""

    request: uuid.UUID
    task: str | None
    tenant: str
    route: Route


@dataclass(slots=True)
class _Instance:
    """The running instance: its dice, its browned-out circuit, and what it reported."""

    stream: Stream
    draw: random.Random = field(init=False)
    brownout: Brownout = field(init=False)
    _events: list[AnyEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        week, zone = self.stream.week, self.stream.zone
        # S311: these dice are the point; nothing secret hangs on them.
        self.draw = random.Random(self.stream.name)
        # All instances meet the same incident; each breaker sees it a little differently.
        shared = random.Random(f"{week}/{zone.key}")
        target = shared.choice([route.targets[0] for route in ROUTES[:4]])
        day = week.midnights(zone)[shared.randrange(5)]
        start = day + timedelta(minutes=shared.randrange(9 * 60, 15 * 60))
        length = timedelta(minutes=shared.randrange(60, 150))
        self.brownout = Brownout((target.provider, target.model), start, length, self.draw)

    def events(self) -> list[AnyEvent]:
        """Everything it reported, in order of time."""
        for step in self.brownout.steps:
            self._transition(step.at, step.before, step.after, step.number)
        begins = self._begins()
        routes = self.draw.choices(ROUTES, weights=[route.share for route in ROUTES], k=len(begins))
        for number, (begin, route) in enumerate(zip(begins, routes, strict=True)):
            self._task(number, begin, route)
        self._events.sort(key=lambda event: (event.occurred_at, event.id))
        return self._events

    def _begins(self) -> list[datetime]:
        """When the tasks begin: by the week's and the day's rhythm in local time."""
        start, end = self.stream.week.bounds(self.stream.zone)
        hours = int((end - start) / timedelta(hours=1))
        weights = []
        for hour in range(hours):
            local = (start + timedelta(hours=hour)).astimezone(self.stream.zone)
            weights.append(_HOURS[local.hour] * _WEEKDAYS[local.weekday()])
        chosen = self.draw.choices(range(hours), weights=weights, k=self.stream.tasks)
        millis = sorted(hour * 3_600_000 + self.draw.randrange(3_600_000) for hour in chosen)
        return [start + timedelta(milliseconds=ms) for ms in millis]

    def _task(self, number: int, begin: datetime, route: Route) -> None:
        """A task: one request, or (with the header) up to three and perhaps its caller's word."""
        draw = self.draw
        tenant = draw.choices(_TENANTS, cum_weights=_TENANT_SHARES)[0]
        named = draw.random() < 0.15
        task = f"{self.stream.week}-{self.stream.worker}-{number}" if named else None
        at, success = begin, True
        for _ in range(draw.choice((1, 1, 2, 3)) if named else 1):
            asked = _Asked(self._id(at), task, tenant, route)
            at, success = self._request(at, asked)
            at += timedelta(milliseconds=draw.randrange(2_000, 90_000))
        if named and draw.random() < 0.5:
            # Now and then what was served was of no use to the caller.
            self._add(Outcome, at, task=task, tenant=tenant, route=route.name, explicit=True,
                      success=success and draw.random() < 0.985)  # fmt: skip

    def _request(self, begin: datetime, asked: _Asked) -> tuple[datetime, bool]:
        """One request: the primary, perhaps once again, then the fallback. (when, how) it ended."""
        at, ordinal, success = begin, 0, False
        role: Role = "first"
        for place, target in enumerate(asked.route.targets):
            if self.brownout.state((target.provider, target.model), at) is not State.CLOSED:
                self._refusal(at, asked, target, "breaker", "open")
                continue
            tries = 0
            while True:
                ordinal, tries = ordinal + 1, tries + 1
                if ordinal > 1:
                    role = "retry" if tries > 1 else "fallback"
                at, verdict = self._attempt(at, asked, target, ordinal, role, rerouted=place > 0)
                success = verdict == "success"
                if success or verdict == "partial":
                    return self._ended(begin, at, asked, success)
                if tries == 2:
                    break
                if self.brownout.covers(at) and self.draw.random() < 0.8:
                    self._refusal(at, asked, target, "budget", "system: no retry left")
                    break
                at += timedelta(milliseconds=self.draw.randrange(60, 900))
        return self._ended(begin, at, asked, success)

    def _attempt(
        self, at: datetime, asked: _Asked, target: Target, ordinal: int, role: Role, rerouted: bool
    ) -> tuple[datetime, VerdictKind]:
        draw = self.draw
        bad = self.brownout.hits((target.provider, target.model), at)
        failed = draw.random() < (_BROWNOUT_FAILURES if bad else _QUIET_FAILURES)
        took = max(40, int(draw.lognormvariate(0, 0.45) * target.mean_ms * (1.8 if bad else 1)))
        verdict: VerdictKind = "success"
        billing: Billing = "billed"
        status: int | None = 200
        reason, counts = "", False
        if failed:
            weights = [fault[4] for fault in _FAULTS]
            verdict, reason, status, counts, _, billing = draw.choices(_FAULTS, weights)[0]
            took = 8000 if reason == "timeout" else took // 3 + 20
        ended = at + timedelta(milliseconds=took)
        self._add(
            Attempt, at, request=asked.request, task=asked.task, tenant=asked.tenant,
            route=asked.route.name, ordinal=ordinal, role=role, rerouted=rerouted and ordinal == 1,
            provider=target.provider, model=target.model, region=target.region,
            served_model=None if status in (429, 503, None) else target.served, key="main",
            status=status, verdict=verdict, reason=reason, counts_against_breaker=counts,
            first_byte_ms=None if failed else took // 3, ended_ms=took, billing=billing,
            served=not failed, tokens=self._tokens(asked.route, billing, verdict),
        )  # fmt: skip
        return ended, verdict

    def _tokens(self, route: Route, billing: Billing, verdict: VerdictKind) -> Tokens | None:
        if billing == "not_billed":
            return None
        draw = self.draw
        prompt = int(draw.lognormvariate(0, 0.5) * route.prompt) + 12
        cached = int(prompt * draw.random() * 0.8) if draw.random() < 0.35 else 0
        answer = int(draw.lognormvariate(0, 0.6) * route.answer) + 4
        if billing == "unknown":
            return Tokens(input=prompt, output=0, estimated=True)
        if verdict == "partial":
            return Tokens(input=prompt, output=answer // 3, estimated=True)
        return Tokens(input=prompt - cached, cached_read=cached, output=answer)

    def _refusal(
        self, at: datetime, asked: _Asked, target: Target, gate: Gate, detail: str
    ) -> None:
        self._add(
            Refusal, at, request=asked.request, task=asked.task, tenant=asked.tenant,
            route=asked.route.name, provider=target.provider, model=target.model,
            region=target.region, gate=gate, detail=detail,
        )  # fmt: skip

    def _ended(
        self, begin: datetime, at: datetime, asked: _Asked, success: bool
    ) -> tuple[datetime, bool]:
        self._add(
            Outcome, at, request=asked.request, task=asked.task, tenant=asked.tenant,
            route=asked.route.name, success=success, started_at=begin, ended_at=at,
            latency_ms=(at - begin) // timedelta(milliseconds=1),
        )  # fmt: skip
        return at, success

    def _transition(self, at: datetime, before: State, after: State, number: int) -> None:
        provider, model = self.brownout.circuit
        region = next(
            t.region
            for r in ROUTES
            for t in r.targets
            if (t.provider, t.model) == (provider, model)
        )
        opened = after is State.OPEN
        causes = {State.OPEN: "FailureRatio", State.HALF_OPEN: "OpenPeriodOver"}
        cause = "ProbeFailed" if before is State.HALF_OPEN and opened else causes.get(after)
        counters = Counters(calls=40, failures=21) if opened else Counters()
        self._add(
            Transition, at, provider=provider, model=model, region=region, number=number,
            from_state=before.value, to_state=after.value, cause=cause or "ProbesSucceeded",
            counters=counters,
        )  # fmt: skip

    def _id(self, at: datetime) -> uuid.UUID:
        return mint_id(at, self.draw.getrandbits(74))

    def _add(self, kind: Callable[..., AnyEvent], at: datetime, **fields: Any) -> None:
        self._events.append(kind(id=self._id(at), occurred_at=at, **fields))
