"""From the bytes of a batch to events that can be stored, and dead letters for the rest.

Invariant: one event that cannot be read never costs its neighbours; only a batch whose own fields
cannot be read is refused as a whole. After this module every value fits its column: no NUL, no
number out of range, no time that Postgres or Python cannot hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import repeat
from uuid import UUID

import msgspec
from msgspec import structs

from controlplane.domain.usage_counts import MOST_TOKENS
from controlplane.errors import InvalidInput, Problem
from controlplane.wire.events import (
    AnyEvent,
    Attempt,
    Batch,
    BatchHead,
    Budget,
    Outcome,
    Tokens,
    Transition,
    id_matches,
    nul_field,
)

AHEAD = timedelta(hours=24)
LATE = timedelta(hours=1)
SKEWED = timedelta(minutes=5)
# Times that stand beside occurred_at; further off they are a fault of the sender.
_BESIDE = timedelta(days=400)
_ANY_AGE = timedelta(days=3650)
_LONGEST_REASON = 300
_LONGEST_LETTER = 16 * 1024
_MOST_MENDED = 4 * 1024 * 1024
_MOST_BALANCE = 2**53
_PATH = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<field>.*)`)?\Z", re.DOTALL)
# A surrogate pair, half of one, or any other escape (so that a backslash's own is not misread).
_LONE_SURROGATE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_NUL = b"\\u0000"
_TIMES = ("occurred_at", "started_at", "ended_at", "next_probe_at")
_COUNTS = ("input", "cached_read", "cache_write", "output", "reasoning_in_output")

_batch = msgspec.json.Decoder(Batch)
_head = msgspec.json.Decoder(BatchHead)
_event = msgspec.json.Decoder(AnyEvent)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that cannot be stored: its place in the batch, why, and its bytes (cut)."""

    index: int
    reason: str
    body: bytes


class _Raws:
    """The bytes of a batch's events, cut apart once and only if one is asked for."""

    __slots__ = ("_body", "_parts")

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._parts: list[msgspec.Raw] | None = None

    def of(self, index: int) -> bytes:
        """The first bytes of one event."""
        if self._parts is None:
            self._parts = _head.decode(self._body).events
        return bytes(self._parts[index])[:_LONGEST_LETTER]


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """A batch whose every event stands either in ``events`` (by its place) or in ``unread``.

    ``newest`` and ``oldest`` are times of its events; ``late`` and ``skewed`` count those that came
    over an hour old, and more than five minutes ahead of our clock.
    """

    instance: UUID
    slot: str
    seq: int
    epoch: str
    generation: int
    acknowledged: int
    sent_at: datetime
    events: dict[int, AnyEvent]
    unread: list[DeadLetter]
    newest: datetime
    oldest: datetime
    late: int
    skewed: int
    raws: _Raws

    def letter(self, index: int, reason: str) -> DeadLetter:
        """A dead letter of an event that turned out later to be impossible to store."""
        return DeadLetter(index, _clean(reason), self.raws.of(index))


def read_batch(body: bytes, *, now: datetime, retention: timedelta) -> ReadBatch:
    """Read a batch that arrived at ``now``. ``InvalidInput`` or 400 if its head cannot be read."""
    try:
        # Without a NUL the events' types say all that their texts must be.
        batch: Batch | None = None if _NUL in body else _batch.decode(body)
    except (msgspec.DecodeError, RecursionError):
        batch = None
        if len(body) <= _MOST_MENDED:
            body = _LONE_SURROGATE.sub(_marked, body)
    head: Batch | BatchHead
    found: Iterable[tuple[AnyEvent | None, str]]
    if batch is not None:
        head, found = batch, zip(batch.events, repeat(""))
    else:
        head = _read_head(body)
        found = map(_read_event, head.events)
    _check_head(head, now)
    return _sorted_out(head, found, _Raws(body), now, retention)


def _sorted_out(
    head: Batch | BatchHead,
    found: Iterable[tuple[AnyEvent | None, str]],
    raws: _Raws,
    now: datetime,
    retention: timedelta,
) -> ReadBatch:
    events: dict[int, AnyEvent] = {}
    unread: list[DeadLetter] = []
    oldest, late, skewed, farthest = now - retention, now - LATE, now + SKEWED, now + AHEAD
    times: list[datetime] = []
    for index, (event, reason) in enumerate(found):
        if event is None:
            unread.append(DeadLetter(index, _clean(reason), raws.of(index)))
            continue
        at = event.occurred_at
        # The plain case first: nearly every event of nearly every batch.
        plain = at.tzinfo is UTC and oldest <= at <= farthest and id_matches(event.id, at)
        if not plain or not isinstance(event, Attempt):
            fault = None if plain else _fault_of_when(event, now, retention)
            fault = fault or _fault_beside(event)
            if fault is not None:
                unread.append(DeadLetter(index, _clean(fault), raws.of(index)))
                continue
            event = _in_utc(event)
            at = event.occurred_at
        if isinstance(event, Attempt) and event.tokens is not None:
            event = _without_absurd_counts(event, event.tokens)
        events[index] = event
        times.append(at)
    return ReadBatch(
        head.instance,
        head.slot,
        head.seq,
        head.epoch,
        head.generation,
        head.acknowledged,
        head.sent_at.astimezone(UTC),
        events,
        unread,
        max(times, default=head.sent_at).astimezone(UTC),
        min(times, default=now),
        sum(at < late for at in times),
        sum(at > skewed for at in times),
        raws,
    )


def _marked(found: re.Match[bytes]) -> bytes:
    """Half a surrogate pair is no text, and the JSON reader would give up the whole batch for it.

    As a NUL, which no field may hold, it costs only the event that it stands in.
    """
    return rb"\u0000" if found["lone"] else found[0]


def _read_head(body: bytes) -> BatchHead:
    try:
        return _head.decode(body)
    except RecursionError as error:
        raise Problem("The JSON is nested too deeply.", code="too_deep") from error
    except msgspec.ValidationError as error:
        field, message = _place(error)
        raise InvalidInput(
            f"{field}: {message}" if field else message,
            errors=[{"field": field, "message": message}],
            code="invalid_batch",
        ) from error
    except msgspec.DecodeError as error:
        raise Problem(f"The body is not JSON: {_clean(str(error))}", code="not_json") from error


def _check_head(head: Batch | BatchHead, now: datetime) -> None:
    nul = nul_field(head)
    if nul is not None:
        message = "a text cannot hold a NUL"
        raise InvalidInput(
            f"{nul}: {message}", errors=[{"field": nul, "message": message}], code="invalid_batch"
        )
    if abs(head.sent_at - now) > _ANY_AGE:
        message = "expected a time within ten years of now"
        raise InvalidInput(
            f"sent_at: {message}",
            errors=[{"field": "sent_at", "message": message}],
            code="invalid_batch",
        )


def _read_event(raw: msgspec.Raw) -> tuple[AnyEvent | None, str]:
    try:
        event = _event.decode(raw)
        nul = nul_field(event)
        return (event, "") if nul is None else (None, f"{nul}: a text cannot hold a NUL")
    except RecursionError:
        return None, "nested too deeply"
    except msgspec.DecodeError as error:
        field, message = _place(error)
        return None, f"{field}: {message}" if field else message


def _fault_of_when(event: AnyEvent, now: datetime, retention: timedelta) -> str | None:
    """Why an event of that time or id cannot be stored, or None."""
    at = event.occurred_at
    if at < now - retention:
        return f"occurred_at: older than the {retention.days} days that raw events are kept"
    if at > now + AHEAD:
        return "occurred_at: more than 24 hours ahead of this control plane's clock"
    if not id_matches(event.id, at):
        return "id: expected a UUIDv7 of the same millisecond as occurred_at"
    return None


def _fault_beside(event: AnyEvent) -> str | None:
    """Why an event cannot be stored for what its types let through beside that, or None."""
    at = event.occurred_at
    beside: tuple[datetime | None, ...] = ()
    if isinstance(event, Outcome):
        beside = (event.started_at, event.ended_at)
    elif isinstance(event, Transition):
        beside = (event.next_probe_at,)
    elif isinstance(event, Budget) and abs(event.balance) > _MOST_BALANCE:
        return f"balance: expected a number between -{_MOST_BALANCE} and {_MOST_BALANCE}"
    if any(time is not None and abs(time - at) > _BESIDE for time in beside):
        return f"a time of this event is more than {_BESIDE.days} days from occurred_at"
    return None


def _in_utc(event: AnyEvent) -> AnyEvent:
    """The event with its times in UTC. Postgres reads no offset of 16 hours, which RFC 3339 allows.

    To be called only once they are known to be near now.
    """
    moved = {
        name: at.astimezone(UTC)
        for name in _TIMES
        if (at := getattr(event, name, None)) is not None and at.tzinfo is not UTC
    }
    return structs.replace(event, **moved) if moved else event


def _without_absurd_counts(event: Attempt, tokens: Tokens) -> Attempt:
    """An impossible count becomes "not known" and the usage invalid: it must reach no sum."""
    if (
        (tokens.input or 0) <= MOST_TOKENS
        and (tokens.output or 0) <= MOST_TOKENS
        and (tokens.cached_read or 0) <= MOST_TOKENS
        and (tokens.cache_write or 0) <= MOST_TOKENS
        and (tokens.reasoning_in_output or 0) <= MOST_TOKENS
    ):
        return event
    counts = {name: getattr(tokens, name) for name in _COUNTS}
    kept = {n: c if c is not None and c <= MOST_TOKENS else None for n, c in counts.items()}
    return structs.replace(event, tokens=Tokens(**kept, estimated=tokens.estimated, invalid=True))


def _place(error: msgspec.DecodeError) -> tuple[str, str]:
    """The field that an error is about ('' = the whole) and what was expected there."""
    found = _PATH.match(str(error))
    assert found is not None
    message = _clean(found["what"].replace("`", ""))
    return found["field"] or "", message[:1].lower() + message[1:]


def _clean(text: str) -> str:
    """Text that may quote the sender: bounded, and nothing that Postgres cannot hold."""
    return text[:_LONGEST_REASON].replace("\x00", "\\0").encode("utf-8", "replace").decode()
