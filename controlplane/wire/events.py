"""Events in: what a gateway says it did, and the receipt it gets for a batch.

Invariant: an event is immutable and known by its id, a UUIDv7 minted when ``occurred_at`` was taken
(they agree to the millisecond), so that any number of deliveries is one event. Times are aware UTC,
durations are whole milliseconds, tokens are whole numbers and ``None`` means "not known", never 0.
Unknown fields are ignored, so an older control plane reads a newer gateway.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID, SafeUUID

import msgspec
from msgspec import Meta, Struct

_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_new, _set = object.__new__, object.__setattr__
_UNKNOWN = SafeUUID.unknown  # off its class it costs a hundred times as much (``domain.request``)

Label = Annotated[str, Meta(max_length=200, pattern=r"^[^\x00]*\Z")]
Name = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[^\x00]*\Z")]
Text = Annotated[str, Meta(max_length=1000, pattern=r"^[^\x00]*\Z")]
# The same in events, where a pattern for each text was measured at half the time of decoding a
# batch. JSON can hold a NUL only as its escape, so a reader looks for that once in the whole body
# and asks ``nul_field`` when it is there.
_Label = Annotated[str, Meta(max_length=200)]
_Name = Annotated[str, Meta(min_length=1, max_length=200)]
_Text = Annotated[str, Meta(max_length=1000)]
Instant = Annotated[datetime, Meta(tz=True)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
# What a gateway was told counts what happened, a million a second for thirty years: a claim beyond
# that was never told by any database.
MOST_TOLD = 10**15
Told = Annotated[int, Meta(ge=0, le=MOST_TOLD)]
Millis = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Ordinal = Annotated[int, Meta(ge=1, le=10_000)]

Role = Literal["first", "retry", "fallback", "redelivery"]
Billing = Literal["billed", "not_billed", "unknown"]
State = Literal["Closed", "Open", "HalfOpen"]
Mode = Literal["Auto", "ForceOpen", "ForceClosed", "ObserveOnly"]
VerdictKind = Literal[
    "success",
    "retryable",
    "permanent",
    "partial",
    "client_cancelled",
    "client_deadline",
    "local_fault",
]
Gate = Literal[
    "breaker", "override", "budget", "rate", "concurrency", "key", "deadline", "policy", "cost"
]


class Tokens(Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """Disjoint token counts of one attempt; ``output`` includes ``reasoning_in_output``.

    ``invalid``: the provider's own numbers contradict each other; what could be kept was kept.
    """

    input: Count | None = None
    cached_read: Count | None = None
    cache_write: Count | None = None
    output: Count | None = None
    reasoning_in_output: Count | None = None
    estimated: bool = False
    invalid: bool = False


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", gc=False):
    """What every event has.

    Outside the garbage collector: an event holds nothing that could lead back to it.
    """

    id: UUID
    occurred_at: Instant


class Attempt(Event, frozen=True, kw_only=True, omit_defaults=True, tag="attempt"):
    """A connection or a send to a provider was begun at ``occurred_at`` and ended later."""

    request: UUID
    task: _Label | None = None
    ordinal: Ordinal
    role: Role
    rerouted: bool = False
    provider: _Name
    model: _Name
    served_model: _Label | None = None
    region: _Label = ""
    key: _Label = ""
    tenant: _Label = "default"
    route: _Label = ""
    status: Annotated[int, Meta(ge=0, le=999)] | None = None
    verdict: VerdictKind
    reason: _Label = ""
    counts_against_breaker: bool = False
    retry_after_s: Annotated[float, Meta(ge=0)] | None = None
    first_byte_ms: Millis | None = None
    ended_ms: Millis | None = None
    waited_ms: Millis = 0
    tokens: Tokens | None = None
    service_tier: _Label = ""
    billing: Billing
    served: bool = False
    generation: Count = 0


class Refusal(Event, frozen=True, kw_only=True, omit_defaults=True, tag="refusal"):
    """A call that was not made, with the gate that stopped it. Never an attempt."""

    request: UUID
    task: _Label | None = None
    provider: _Name
    model: _Name
    region: _Label = ""
    key: _Label = ""
    tenant: _Label = "default"
    route: _Label = ""
    gate: Gate
    detail: _Text = ""
    would_have: bool = False
    generation: Count = 0


class Outcome(Event, frozen=True, kw_only=True, omit_defaults=True, tag="outcome"):
    """How a request ended (``explicit`` false), or what a caller said of a task (true)."""

    request: UUID | None = None
    task: _Label | None = None
    tenant: _Label = "default"
    route: _Label = ""
    success: bool
    explicit: bool = False
    reason: _Label = ""
    started_at: Instant | None = None
    ended_at: Instant | None = None
    latency_ms: Millis | None = None
    waited_ms: Millis = 0


class Counters(Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """The breaker's window at the moment of a transition."""

    calls: Count = 0
    failures: Count = 0
    slow: Count = 0
    consecutive: Count = 0


class Transition(Event, frozen=True, kw_only=True, omit_defaults=True, tag="transition"):
    """One breaker of one instance changed; ``number`` rises by 1 per instance and circuit."""

    provider: _Name
    model: _Name
    region: _Label = ""
    number: Annotated[int, Meta(ge=1, le=2**53)]
    from_state: State = msgspec.field(name="from")
    to_state: State = msgspec.field(name="to")
    cause: _Name
    counters: Counters = Counters()
    next_probe_at: Instant | None = None
    mode: Mode = "Auto"
    generation: Count = 0


class Budget(Event, frozen=True, kw_only=True, omit_defaults=True, tag="budget"):
    """A retry budget's bucket as it stood. ``scope`` is ``level/subject``."""

    scope: _Name
    balance: int
    earned: Count = 0
    spent: Count = 0
    refused: Count = 0
    window_s: Annotated[float, Meta(gt=0)]


AnyEvent = Attempt | Refusal | Outcome | Transition | Budget


class BatchHead(Struct, frozen=True, kw_only=True):
    """A batch without its events, for reading a batch whose events are not all understood."""

    instance: UUID
    slot: _Name
    seq: Annotated[int, Meta(ge=1, le=2**53)]
    epoch: _Label = ""
    generation: Told = 0
    acknowledged: Told = 0
    sent_at: Instant
    events: Annotated[list[msgspec.Raw], Meta(max_length=5000)]


class Batch(Struct, frozen=True, kw_only=True):
    """Events of one instance. Content and ``seq`` are fixed on disk before the first send.

    ``acknowledged``: the highest seq of this instance that was receipted under ``epoch``. A control
    plane of that epoch that has never seen it is a restored backup, and mints a new epoch.
    """

    instance: UUID
    slot: _Name
    seq: Annotated[int, Meta(ge=1, le=2**53)]
    epoch: _Label = ""
    generation: Told = 0
    acknowledged: Told = 0
    sent_at: Instant
    events: Annotated[list[AnyEvent], Meta(max_length=5000)]


class Unread(Struct, frozen=True, kw_only=True):
    """One event that was kept as a dead letter, and why."""

    index: int
    reason: str


class Receipt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The control plane's word, given only after commit, that the batch is stored.

    ``contiguous`` is the highest seq up to which nothing of this instance is missing.
    """

    seq: int
    epoch: str
    contiguous: int
    generation: int
    server_time: Instant
    stored: int = 0
    duplicates: int = 0
    unread: list[Unread] = []


def nul_field(value: Struct) -> str | None:
    """The path of the first text with a NUL in an event or a batch's head; None without one."""
    return next(_nul_fields(value), None)


def _nul_fields(value: Struct) -> Iterator[str]:
    for name, written in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
        held: Any = getattr(value, name)
        if isinstance(held, str) and "\0" in held:
            yield written
        elif isinstance(held, Struct):
            yield from (f"{written}.{inner}" for inner in _nul_fields(held))


def id_matches(event_id: UUID, occurred_at: datetime) -> bool:
    """True when the id is a UUIDv7 of the event's own millisecond."""
    value = event_id.int
    return (
        value >> 80 == unix_millis(occurred_at)
        and (value >> 76) & 0xF == 7
        and (value >> 62) & 0b11 == 0b10
    )


def unix_millis(at: datetime) -> int:
    """Whole milliseconds since 1970 of an aware time, rounded down, without float error."""
    since = at - _UNIX_EPOCH
    # To divide one by the other makes five large numbers of it: 0.8 us against 0.5.
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def mint_id(occurred_at: datetime, random_74: int) -> UUID:
    """A UUIDv7 (RFC 9562) of ``occurred_at``; 74 random bits are the caller's."""
    rand_a, rand_b = (random_74 >> 62) & 0xFFF, random_74 & ((1 << 62) - 1)
    value = (unix_millis(occurred_at) << 80) | (0x7 << 76) | (rand_a << 64) | (0b10 << 62) | rand_b
    # UUID's own __init__ first finds out which of its six arguments was given: 0.61 us against
    # 0.24, and a request has three ids.
    made = _new(UUID)
    _set(made, "int", value)
    _set(made, "is_safe", _UNKNOWN)
    return made
