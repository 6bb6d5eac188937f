"""A stream on its way through: the same bytes however it is cut, and no usage if hidden."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.event_stream import MAX_EVENT, EventStream
from gateway.faults import MalformedStream

EVENTS = [
    b": keep-alive",
    b'data: {"choices":[{"delta":{"content":"a"}}],"usage":null}',
    b'data: {"choices":[{"delta":{"content":"\\"usage\\": null, "}}], "usage": null}',
    b'event: x\ndata: {"choices":\ndata: [{"delta":{"content":"b"},"finish_reason":"stop"}]}',
    b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}',
    b"data: [DONE]",
]


def through(stream: EventStream, pieces: list[bytes]) -> bytes:
    return b"".join(stream.feed(piece) for piece in pieces) + stream.end()


@settings(deadline=None)  # the machine may be busy; what is asserted is not speed
@given(
    cuts=st.lists(st.integers(0, 400), max_size=12),
    end=st.sampled_from([b"\n\n", b"\r\n\r\n"]),
    complete=st.booleans(),
)
def test_bytes_do_not_depend_on_how_they_arrive(
    cuts: list[int], end: bytes, complete: bool
) -> None:
    lines = [event.replace(b"\n", end[: len(end) // 2]) for event in EVENTS]
    whole = end.join(lines) + (end if complete else b"")
    places = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    pieces = [whole[a:b] for a, b in pairwise(places)]
    shown, hidden = EventStream("p", hide_usage=False), EventStream("p", hide_usage=True)
    assert through(shown, pieces) == whole
    left = through(hidden, pieces)
    assert b'"prompt_tokens"' not in left
    assert b',"usage":null' not in left
    assert b'\\"usage\\": null, ' in left
    for stream in (shown, hidden):
        assert stream.done
        assert stream.progress.finished
        assert stream.usage.result().output == 2
        assert not stream.usage.result().estimated


def test_usage_that_stands_beside_output_stays() -> None:
    """Some providers put it into the last chunk with choices, asked or not."""
    event = (
        b'data: {"choices":[{"delta":{}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n'
    )
    assert EventStream("p", hide_usage=True).feed(event) == event


def test_event_without_an_end_is_not_kept_for_ever() -> None:
    stream = EventStream("p", hide_usage=True)
    stream.feed(b"x" * MAX_EVENT)
    with pytest.raises(MalformedStream):
        stream.feed(b"x")
