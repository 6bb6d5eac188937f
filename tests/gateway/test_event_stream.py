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


PLAIN = [
    b'data: {"choices":[{"delta":{"content":"two words"}}], "usage": null}',
    b'data: {"choices":[{"delta":{"content":"an \\"error\\" of 5 tokens"}}]}',
    b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}',
    b'data: {"choices":[{"delta":{},"finish_reason":"content_filter"}],"usage":null}',
    b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}',
    b'data: {"error":{"message":"no"}}',
    b'data: {"type":"response.completed","response":{}}',
    b"data: ",
    b"data: [DONE]",
    b'event: error\ndata: {"message":"later"}',
    b": comment",
    b"",
]


@given(events=st.lists(st.sampled_from(PLAIN), max_size=8), hide=st.booleans())
def test_many_events_at_once_say_what_each_of_them_says(events: list[bytes], hide: bool) -> None:
    at_once, one_by_one = (EventStream("p", hide_usage=hide) for _ in range(2))
    pieces = [event + b"\n\n" for event in events]
    assert through(at_once, [b"".join(pieces)]) == through(one_by_one, pieces)
    for field in ("error", "events", "filtered", "finished"):
        assert getattr(at_once.progress, field) == getattr(one_by_one.progress, field)
    assert at_once.done == one_by_one.done
    assert at_once.usage.result() == one_by_one.usage.result()
    assert at_once.usage.delivered_tokens == one_by_one.usage.delivered_tokens


def test_a_long_stream_is_measured_as_it_goes_and_not_kept() -> None:
    event = b'data: {"choices":[{"delta":{"content":"one two, \\"three\\""}}]}\n\n'
    short, long = EventStream("p", hide_usage=False), EventStream("p", hide_usage=False)
    short.feed(event)
    for _ in range(100):
        long.feed(event * 20)
        assert len(b"".join(long.usage._unmeasured)) < 2**14 + len(event) * 20
    one, many = short.usage.result().output, long.usage.result().output
    assert one == 4
    assert many == 2000 * 16 // 4


@pytest.mark.parametrize(
    "spelling", [b',"usage":null', b', "usage": null', b',"usage": null', b',\t"usage":null']
)
def test_an_empty_usage_is_hidden_however_it_is_written(spelling: bytes) -> None:
    event = b'data: {"choices":[{"delta":{"content":", \\"usage\\": null"}}]%b}\n\n'
    hidden = EventStream("p", hide_usage=True).feed(event % spelling * 2)
    assert hidden == event % b"" * 2
    assert EventStream("p", hide_usage=False).feed(event % spelling) == event % spelling


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
