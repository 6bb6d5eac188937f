"""Frames carry exactly what changed: applying each in order gives the newest board."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dashboard import frames
from dashboard.board import Board, Group

FIELDS = st.dictionaries(
    st.sampled_from(["state", "count", "why", "lane_open"]),
    st.one_of(st.none(), st.sampled_from(["", "Open", "Closed", "2/3"])),
)
EACH = st.dictionaries(st.sampled_from(["c1", "c2", "c3", "c4"]), FIELDS, max_size=4)
START = datetime(2026, 11, 24, 14, 3, 22, tzinfo=UTC)


@st.composite
def boards(draw: st.DrawFn) -> Board:
    cards = draw(EACH)
    ids = draw(st.permutations(sorted(cards)))
    cut = draw(st.integers(0, len(ids)))
    return Board(
        at=START + timedelta(seconds=draw(st.integers(0, 9))),
        version=draw(st.integers(0, 9)),
        epoch="e",
        density=draw(st.sampled_from(["roomy", "dense"])),
        strip=draw(FIELDS),
        titles=draw(FIELDS),
        gateways=draw(EACH),
        cards=cards,
        attention=tuple(ids[:cut]),
        healthy=(Group("openai", "note", tuple(ids[cut:])),),
    )


def known(fields: dict[str, Any]) -> dict[str, Any]:
    """A field that is None says the same as one that is not there."""
    return {key: value for key, value in fields.items() if value is not None}


def apply(shown: dict[str, Any], frame: dict[str, Any]) -> None:
    """What ``wall.js`` does with a frame."""
    for name in ("strip", "titles"):
        shown[name] = shown.get(name, {}) | frame.get(name, {})
    for name in ("gateways", "cards"):
        held = shown.setdefault(name, {})
        for key, fields in frame.get(name, {}).items():
            held[key] = held.get(key, {}) | fields
        for key in frame.get(f"{name}_gone", []):
            del held[key]
    for name in ("order", "density"):
        if name in frame:
            shown[name] = frame[name]


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(boards(), min_size=1, max_size=5))
def test_a_snapshot_and_its_patches_give_the_newest_board(sequence: list[Board]) -> None:
    shown: dict[str, Any] = {}
    apply(shown, frames.snapshot(sequence[0]))
    for before, after in pairwise(sequence):
        apply(shown, frames.patch(before, after) or {})
    last = sequence[-1]
    assert known(shown["strip"]) == known(last.strip)
    for name in ("gateways", "cards"):
        found = {key: known(fields) for key, fields in shown[name].items()}
        assert found == {key: known(fields) for key, fields in getattr(last, name).items()}
    assert shown["order"] == last.order
    assert shown["density"] == last.density


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(boards())
def test_nothing_changed_is_no_frame(board: Board) -> None:
    assert frames.patch(board, board) is None


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(boards())
def test_a_ping_says_how_old_the_data_is(board: Board) -> None:
    frame = frames.ping(board, board.at + timedelta(seconds=12))
    assert frame["age_s"] == 12
    assert frames.encode(frame).startswith('{"type":"ping","version":')


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(boards(), min_size=2, max_size=4))
def test_a_shared_frame_is_the_one_that_each_viewer_needs(sequence: list[Board]) -> None:
    shared = frames.Shared()
    for newest, board in enumerate(sequence):
        for before in [None, *sequence[:newest]]:
            frame = frames.snapshot(board) if before is None else frames.patch(before, board)
            wanted = None if frame is None else frames.encode(frame)
            assert shared.frame(before, board) == wanted
            assert shared.frame(before, board) is shared.frame(before, board)


@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(boards())
def test_a_shared_frame_says_how_old_its_data_is_when_it_is_sent(board: Board) -> None:
    """The text is made once a board; a viewer who comes a minute later is told of that minute."""
    text = frames.Shared().frame(None, board)
    assert text is not None
    late = msgspec.json.decode(frames.aged(text, board, board.at + timedelta(seconds=61.5)))
    assert late == msgspec.json.decode(text) | {"age_s": 61.5}
