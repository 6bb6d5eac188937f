"""From the bytes of a batch to events that can be stored, and dead letters for the rest.

Invariant: one event that cannot be read never costs its neighbours; only a batch whose own fields
cannot be read is refused as a whole. After this module every value fits its column: no NUL, no
number out of range, no time that Postgres or Python cannot hold.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import msgspec
from msgspec import structs

from controlplane.domain.usage import MOST_TOKENS
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
    """A batch whose every event stands either in ``events`` (by its place) or in ``unread``."""

    instance: UUID
    slot: str
    seq: int
    sent_at: datetime
    events: dict[int, AnyEvent]
    unread: list[DeadLetter]
    raws: _Raws

    def newest(self) -> datetime:
        """The time of the newest event; without events, when the batch was made."""
        return max((event.occurred_at for event in self.events.values()), default=self.sent_at)

    def letter(self, index: int, reason: str) -> DeadLetter:
        """A dead letter of an event that turned out later to be impossible to store."""
        return DeadLetter(index, _clean(reason), self.raws.of(index))


def read_batch(body: bytes, *, now: datetime, retention: timedelta) -> ReadBatch:
    """Read a batch that arrived at ``now``. ``InvalidInput`` or 400 if its head cannot be read."""
    try:
        batch: Batch | None = _batch.decode(body)
    except (msgspec.DecodeError, RecursionError):
        batch = None
    if batch is None and len(body) <= _MOST_MENDED:
        body = _LONE_SURROGATE.sub(_marked, body)
    head: Batch | BatchHead
    found: list[tuple[AnyEvent | None, str]]
    if batch is not None:
        head, found = batch, [(event, "") for event in batch.events]
    else:
        head = _read_head(body)
        found = [_read_event(raw) for raw in head.events]
    _check_head(head, now)
    raws = _Raws(body)
    events: dict[int, AnyEvent] = {}
    unread: list[DeadLetter] = []
    for index, (event, reason) in enumerate(found):
        fault = reason if event is None else _fault(event, now, retention)
        if event is None or fault is not None:
            unread.append(DeadLetter(index, _clean(fault or ""), raws.of(index)))
        else:
            events[index] = _without_absurd_counts(event)
    return ReadBatch(head.instance, head.slot, head.seq, head.sent_at, events, unread, raws)


def timeliness(occurred_at: datetime, received_at: datetime) -> str:
    """``late`` (over an hour old), ``skewed`` (over five minutes ahead) or ''."""
    if received_at - occurred_at > LATE:
        return "late"
    return "skewed" if occurred_at - received_at > SKEWED else ""


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
    if abs(head.sent_at - now) > _ANY_AGE:
        message = "expected a time within ten years of now"
        raise InvalidInput(
            f"sent_at: {message}",
            errors=[{"field": "sent_at", "message": message}],
            code="invalid_batch",
        )


def _read_event(raw: msgspec.Raw) -> tuple[AnyEvent | None, str]:
    try:
        return _event.decode(raw), ""
    except RecursionError:
        return None, "nested too deeply"
    except msgspec.DecodeError as error:
        field, message = _place(error)
        return None, f"{field}: {message}" if field else message


def _fault(event: AnyEvent, now: datetime, retention: timedelta) -> str | None:
    """Why an event whose types are right cannot be stored, or None."""
    at = event.occurred_at
    if at < now - retention:
        return f"occurred_at: older than the {retention.days} days that raw events are kept"
    if at > now + AHEAD:
        return "occurred_at: more than 24 hours ahead of this control plane's clock"
    if not id_matches(event.id, at):
        return "id: expected a UUIDv7 of the same millisecond as occurred_at"
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


def _without_absurd_counts(event: AnyEvent) -> AnyEvent:
    """An impossible count becomes "not known" and the usage invalid: it must reach no sum."""
    if not isinstance(event, Attempt) or event.tokens is None:
        return event
    counts = {name: getattr(event.tokens, name) for name in _COUNTS}
    if all(count is None or count <= MOST_TOKENS for count in counts.values()):
        return event
    kept = {n: c if c is not None and c <= MOST_TOKENS else None for n, c in counts.items()}
    tokens = Tokens(**kept, estimated=event.tokens.estimated, invalid=True)
    return structs.replace(event, tokens=tokens)


def _place(error: msgspec.DecodeError) -> tuple[str, str]:
    """The field that an error is about ('' = the whole) and what was expected there."""
    found = _PATH.match(str(error))
    assert found is not None
    message = _clean(found["what"].replace("`", ""))
    return found["field"] or "", message[:1].lower() + message[1:]


def _clean(text: str) -> str:
    """Text that may quote the sender: bounded, and nothing that Postgres cannot hold."""
    return text[:_LONGEST_REASON].replace("\x00", "\\0").encode("utf-8", "replace").decode()
