"""The events of one request: attempts, refusals, its outcome (design 4.7).

Invariant: an attempt has one id from its begin mark to its end; its ``occurred_at`` is when it was
begun. Ids are minted when the time is taken. Durations are whole milliseconds of the monotonic
clock; nothing of a prompt or a completion gets in here.
"""

from __future__ import annotations

from datetime import datetime
from random import getrandbits
from typing import Protocol
from uuid import UUID

from msgspec import to_builtins
from msgspec.structs import replace

from controlplane.domain import usage
from controlplane.domain.circuit import Circuit
from controlplane.domain.request_plan import Send
from controlplane.domain.verdict import Kind, Verdict
from controlplane.wire.events import (
    AnyEvent,
    Attempt,
    Billing,
    Gate,
    Outcome,
    Refusal,
    Tokens,
    mint_id,
)
from gateway.attempt import Seen
from gateway.clock import Clock
from gateway.records import GATEWAY_FAULT

_LONGEST = 200


class Sink(Protocol):
    """The spool: one write for each call, nothing awaited."""

    def begin(self, attempt: Attempt) -> None:
        """Mark a call as begun, before it is sent."""

    def append(self, *events: AnyEvent) -> None:
        """Keep events for sending."""


class Ledger:
    """Writes the events of one request. ``generation``: the configuration it was served under.

    The end of an attempt is held back until the next event, so that it shares the outcome's write;
    whoever awaits anything after it calls ``write`` first.
    """

    __slots__ = (
        "_begun",
        "_clock",
        "_generation",
        "_held",
        "_route",
        "_sink",
        "_task",
        "_tenant",
        "closed",
        "request",
        "started",
        "started_at",
        "waited_s",
    )

    def __init__(
        self,
        clock: Clock,
        sink: Sink,
        *,
        tenant: str,
        task: str | None,
        route: str,
        generation: int,
    ) -> None:
        self._clock = clock
        self._sink = sink
        self._tenant = tenant
        self._task = task
        self._route = route
        self._generation = generation
        self._held: tuple[Attempt, ...] = ()
        self._begun: Attempt | None = None
        """The attempt that has not ended."""
        self.started_at = clock.wall()
        self.started = clock.monotonic()
        self.request = _mint(self.started_at)
        self.waited_s = 0.0
        self.closed = False

    def begun(self, circuit: Circuit, send: Send, key: str, waited_s: float) -> Attempt:
        """Put the begin mark of an attempt into the spool."""
        # Before the first attempt nothing was waited for: it begins when its request did.
        at = self.started_at if send.ordinal == 1 and not waited_s else self._clock.wall()
        mark = Attempt(
            id=_mint(at),
            occurred_at=at,
            request=self.request,
            task=self._task,
            ordinal=send.ordinal,
            role=send.role._value_,  # ``value`` is a method in Python: 1,500 instructions
            rerouted=send.rerouted,
            provider=circuit.provider,
            model=circuit.model,
            region=circuit.region,
            key=key,
            tenant=self._tenant,
            route=self._route,
            verdict="local_fault",
            billing="unknown",
            waited_ms=_ms(waited_s),
            generation=self._generation,
        )
        self.write()
        self._sink.begin(mark)
        self._begun = mark
        return mark

    def ended(
        self,
        mark: Attempt,
        verdict: Verdict,
        *,
        status: int | None,
        first_byte_s: float | None,
        ended_s: float,
        tokens: usage.Tokens | None,
        billing: Billing,
        served_model: str | None,
        service_tier: str | None,
    ) -> None:
        """The attempt as it ended; durations are from its begin."""
        self.write()
        self._held = (
            replace(
                mark,
                served_model=_label(served_model) if served_model else None,
                status=status,
                verdict=verdict.kind._value_,
                reason=verdict.reason,
                counts_against_breaker=verdict.counts_against_breaker,
                retry_after_s=verdict.retry_after_s,
                first_byte_ms=None if first_byte_s is None else _ms(first_byte_s),
                ended_ms=_ms(ended_s),
                tokens=None if tokens is None else _wire(tokens),
                service_tier=_label(service_tier) if service_tier else "",
                billing=billing,
                served=verdict.ok,
            ),
        )
        self._begun = None

    def broke(self, mark: Attempt, seen: Seen | None) -> None:
        """The attempt's end after a fault of our own, of which nothing more is known than this.

        An end that was put down before the fault stands. Nothing that came from outside gets in
        here, as that may be what the fault was.
        """
        if self._begun is not mark:
            return
        self._begun = None
        left_us = seen is not None and seen.progress.left_us
        self._held = (
            replace(
                mark,
                status=None if seen is None else seen.status,
                verdict=Kind.LOCAL_FAULT.value,
                reason=GATEWAY_FAULT,
                billing="unknown" if left_us else "not_billed",
            ),
        )

    def write(self, *events: AnyEvent) -> None:
        """Put what was held back, and these, into the spool."""
        held, self._held = self._held, ()
        if held or events:
            self._sink.append(*held, *events)

    def refused(
        self, circuit: Circuit, gate: Gate, detail: str, *, key: str = "", would_have: bool = False
    ) -> None:
        """A call that was not made (or, under ObserveOnly, would not have been)."""
        at = self._clock.wall()
        self.write(
            Refusal(
                id=_mint(at),
                occurred_at=at,
                request=self.request,
                task=self._task,
                provider=circuit.provider,
                model=circuit.model,
                region=circuit.region,
                key=key,
                tenant=self._tenant,
                route=self._route,
                gate=gate,
                detail=detail,
                would_have=would_have,
                generation=self._generation,
            )
        )

    def outcome(self, success: bool, reason: str) -> None:
        """How the request ended. Only the first word counts."""
        if self.closed:
            return
        self.closed = True
        at = self._clock.wall()
        try:
            self.write(
                Outcome(
                    id=_mint(at),
                    occurred_at=at,
                    request=self.request,
                    task=self._task,
                    tenant=self._tenant,
                    route=self._route,
                    success=success,
                    reason=reason,
                    started_at=self.started_at,
                    ended_at=at,
                    latency_ms=_ms(self._clock.monotonic() - self.started),
                    waited_ms=_ms(self.waited_s),
                )
            )
        finally:
            self.write()  # an attempt's end does not wait for an outcome that cannot be made


def explicit_outcome(clock: Clock, tenant: str, task: str, success: bool, reason: str) -> Outcome:
    """The caller's own word on a task."""
    at = clock.wall()
    return Outcome(
        id=_mint(at),
        occurred_at=at,
        task=task,
        tenant=tenant,
        success=success,
        explicit=True,
        reason=reason,
        ended_at=at,
    )


def written(uuid: UUID) -> str:
    """As ``str`` writes it, in a third of the time."""
    text: str = to_builtins(uuid)
    return text


def _mint(at: datetime) -> UUID:
    return mint_id(at, getrandbits(74))


def _ms(seconds: float) -> int:
    return int(seconds * 1000) if seconds > 0 else 0


def _label(text: str) -> str:
    """A provider's own word, cut to what an event may hold."""
    kept = text if text.isascii() else text.encode("utf-8", "replace").decode()
    return kept.replace("\0", "")[:_LONGEST]


def _wire(tokens: usage.Tokens) -> Tokens:
    return Tokens(
        input=tokens.input,
        cached_read=tokens.cached_read,
        cache_write=tokens.cache_write,
        output=tokens.output,
        reasoning_in_output=tokens.reasoning_in_output,
        estimated=tokens.estimated,
        invalid=tokens.invalid,
    )
