"""Watching a stream go by: has it ended properly, and did it carry an error?

Fed event by event by the gateway, so it looks for a marker in the raw bytes and parses only the
few events that can matter; its memory is constant.

Invariant: what a stream said first about failing stands; an end mark does not undo an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_DONE = b"[DONE]"
_RAW = (bytes, bytearray)  # a union of both is made anew for each question
# One of these stands in every event that ends or fails a stream of the providers we know. Inside
# generated text the quotes are escaped, so prose about an "error" costs no parse. Few and short,
# because each is searched in every event: fifteen of them cost as much as parsing a short event.
_MARKERS = (b'"error"', b"Exception", b'eason":"', b'eason": "', b'top"', b'-end"', b'"done"')
STREAM_MARKERS = (*_MARKERS, b'"response.', b"data: [DONE]")
"""An event without a name and without any of these neither ends nor fails its stream."""
# (completed, cancelled, incomplete, failed, done)
_RESPONSES = (b"response.c", b"response.incomplete", b"response.failed", b"response.done")
_END_TYPES = frozenset(
    {"message_stop", "response.completed", "response.incomplete", "response.cancelled"}
    | {"response.done", "message-end", "messageStop"}
)
# Reasons to stop, of every provider, that mean: output was held back.
FILTERED = frozenset(
    {"content_filter", "safety", "prohibited_content", "blocklist", "spii", "sensitive"}
    | {"recitation", "image_safety", "image_prohibited_content", "image_recitation"}
    | {"refusal", "guardrail_intervened", "content_filtered", "error_toxic"}
)
# Of a chunk with no more members than these only the choices can tell of an end: every stream of
# OpenAI's chat API ends with one, and to look for all else took more than half of it (measured).
_OF_A_CHUNK = frozenset(
    {"id", "object", "created", "model", "choices", "usage"}
    | {"service_tier", "system_fingerprint", "obfuscation"}
)
# Finish reasons that mean: what came is no answer. Each is the code of a row in ``providers``.
BROKEN = frozenset(
    {"error", "network_error", "insufficient_system_resource", "malformed_function_call"}
    | {"unexpected_tool_call", "malformed_tool_use", "malformed_model_output"}
)
# An object with a code, a text and nothing else is an error, unless the code says that all is well.
_ONLY_A_CODE = frozenset(
    {"code", "message", "msg", "request_id", "requestId", "sid", "type", "param"}
)
_GOOD_CODES = (None, 0, "0", "", 200, "200", "ok", "OK", "success", "Success")


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One SSE event: its name, its data (parsed, or raw text or bytes) and any comment."""

    event: str | None = None
    data: Any = None
    comment: str | None = None


class StreamProgress:
    """What has been seen of one stream. Not shared between threads.

    ``error``: the first error object (with ``type`` filled from the event's name), else None.
    ``finished``: an end mark was seen. ``filtered``: it ended because content was held back.
    """

    __slots__ = ("error", "events", "filtered", "finished")

    def __init__(self) -> None:
        self.error: Mapping[str, Any] | None = None
        self.finished = False
        self.filtered = False
        self.events = 0

    @classmethod
    def of(cls, events: Sequence[StreamEvent]) -> StreamProgress:
        """The progress after all of ``events``."""
        progress = cls()
        for event in events:
            progress.feed(event.event, event.data)
        return progress

    def feed(
        self, event: str | None, data: Any, decode: Callable[[bytes], Any] = json.loads
    ) -> None:
        """Note one event. ``data`` may be raw (bytes, text) or parsed; comments are not fed.

        ``decode`` raises ``ValueError`` for what is no JSON.
        """
        if data is None and not event:
            return
        self.events += 1
        if isinstance(data, str):
            data = data.encode("utf-8", "replace")
        if isinstance(data, _RAW):
            raw = bytes(data)
            if raw.strip() == _DONE:
                self.finished = True
                return
            if not _telling(event or "", raw):
                return
            try:
                data = decode(raw)
            except (ValueError, RecursionError):
                data = {"message": raw[:2000].decode("utf-8", "replace")}
        self._note(event or "", data if isinstance(data, dict) else {})

    def passed(self, events: int) -> None:
        """Note so many events that have no name and none of ``STREAM_MARKERS``."""
        self.events += events

    # What is parsed is asked for ``dict``: the abstract ``Mapping`` takes five times as long.
    def _note(self, event: str, item: Mapping[str, Any]) -> None:
        if event or not item.keys() <= _OF_A_CHUNK:
            self._note_all_but_reasons(event, item)
        for reason in finish_reasons(item):
            self._stopped_for(reason)
            self.finished = True

    def _note_all_but_reasons(self, event: str, item: Mapping[str, Any]) -> None:
        kind = str(item.get("type") or event)
        error = _error_of(event, kind, item)
        if error is not None:
            self.error = self.error or error
        elif (
            kind in _END_TYPES
            or event in _END_TYPES
            or "messageStop" in item
            or item.get("done") is True
        ):
            self.finished = True
        if stop := stop_reason(item):
            self._stopped_for(stop)

    def _stopped_for(self, reason: str) -> None:
        if reason in BROKEN:
            self.error = self.error or broken(reason)
        self.filtered = self.filtered or reason in FILTERED


def _telling(event: str, raw: bytes) -> bool:
    """True for an event that may end or fail its stream."""
    for marker in _MARKERS:
        if raw.find(marker) >= 0:  # ``in`` first takes it for a number: 2,000 instructions
            return True
    if event:
        # Responses and Amazon name their events, so their data need not be searched.
        return event == "error" or event in _END_TYPES or event.endswith(("Exception", ".failed"))
    return raw.find(b'"response.') >= 0 and any(marker in raw for marker in _RESPONSES)


def _error_of(event: str, kind: str, item: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The error that one event carries, as an object shaped like an error body."""
    for holder in (item, item.get("response"), item.get("message")):
        if isinstance(holder, dict) and holder.get("error"):
            return holder
    if event == "error" or kind in ("error", "response.failed", "response.error"):
        return {**item, "type": item.get("type") or "error"} if item else {"type": "error"}
    for name in (event, kind, *item):
        if name.endswith("Exception"):  # Amazon names the event, or the member, after the fault
            inner = item.get(name)
            return {"code": name, **(inner if isinstance(inner, dict) else item)}
    return stated_failure(item)


def stated_failure(item: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The failure that an object states elsewhere than in an ``error`` of its own."""
    if item.get("error_code") or item.get("success") is False:
        return item
    if "code" in item and item.keys() <= _ONLY_A_CODE and item["code"] not in _GOOD_CODES:
        return item
    response = item.get("Response")
    if isinstance(response, dict) and isinstance(response.get("Error"), dict):
        return response
    base = item.get("base_resp")
    if isinstance(base, dict) and base.get("status_code"):
        return item
    feedback = item.get("promptFeedback")
    if isinstance(feedback, dict) and feedback.get("blockReason"):
        return {"code": "content_filter", "message": str(feedback["blockReason"])}
    return None


def broken(reason: str) -> Mapping[str, Any]:
    """The error that a finish reason of ``BROKEN`` stands for."""
    return {"code": reason, "message": "provider returned error" if reason == "error" else reason}


def stop_reason(item: Mapping[str, Any]) -> str | None:
    """Why one whole answer, or the event that says it, stopped: Anthropic's, Amazon's, Cohere's.

    It ends no stream: each of the three has an end mark of its own.
    """
    if "choices" in item or "candidates" in item:
        return None
    for holder in (item, item.get("delta"), item.get("messageStop")):
        if isinstance(holder, dict):
            for name in ("stop_reason", "stopReason", "finish_reason"):
                reason = holder.get(name)
                if isinstance(reason, str):
                    return reason.lower()
    return None


def finish_reasons(item: Mapping[str, Any]) -> list[str]:
    """Why generation stopped, in lower case, for each choice of one event or one whole answer.

    The providers with one reason an answer are left out, see ``stop_reason``.
    """
    found = []
    for group in ("choices", "candidates"):
        members = item.get(group)
        for member in members[:50] if isinstance(members, list) else ():
            if isinstance(member, dict):
                reason = member.get("finish_reason") or member.get("finishReason")
                if isinstance(reason, str):
                    found.append(reason.lower())
    for holder in (item, item.get("response")):  # OpenAI's Responses
        details = holder.get("incomplete_details") if isinstance(holder, dict) else None
        if isinstance(details, dict) and isinstance(details.get("reason"), str):
            found.append(details["reason"].lower())
    return found
